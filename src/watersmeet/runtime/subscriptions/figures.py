"""What each registered query did and took since the job started: added up from the units' reports, batch by batch, in the driver.

    reports --take--> sums by id --> the dearest of the batch, for progress, metrics and the page
                                 --> any query's figures, for list()

Invariant: answers are counted exactly. CPU time is shared out by work (`registry.shared.meter`) and told of the dearest and of those that answer, so a share is at least what it says.
A query that comes again under an id begins at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from watersmeet.dataflow.clock import NEVER, stream_cuts, watermarks
from watersmeet.dataflow.report import Report, add_figures
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.shared.compiled import unit_of_query
from watersmeet.registry.subscription import Registered
from watersmeet.registry.template import Template, hull
from watersmeet.runtime.progress import QueryFigures, moment
from watersmeet.runtime.subscriptions.own import count_rows
from watersmeet.storage.segment import SegmentInfo

MOST_SHOWN = 10
Stored = Sequence[tuple[int, str, SegmentInfo]]
"""(unit, kind, segment)."""


class FigureBook:
    """Sums by query; it travels empty."""

    def __init__(self, plan: RegistryPlan) -> None:
        self.plan = plan
        self._sums: dict[str, list[float]] = {}
        self._versions: dict[str, int] = {}
        self._seconds = 0.0
        self._batch: dict[str, tuple[Registered, Sequence[float]]] = {}
        """What the latest batch took, by id."""
        self._stored: Stored = ()
        self.units = 0
        """So many units store it; 0: not known here."""
        self._marks: Mapping[str, int] = {}
        self._count_rows = lru_cache(None)(self._count)

    def __reduce__(self) -> tuple[Any, ...]:
        return FigureBook, (self.plan,)

    def take(
        self,
        reports: Iterable[Report],
        live: Mapping[str, Registered],
        stored: Stored,
        maxima: Mapping[str, int],
        units: int,
    ) -> None:
        """Take in a batch in which so many units answered these queries, with what is stored after it."""
        batch: dict[str, list[float]] = {}
        for report in reports:
            for id, told in report.registered.items():
                add_figures(batch, id, told)
        self._stored, self.units, self._marks = stored, units, watermarks(self.plan.streams, maxima)
        self._count_rows = lru_cache(None)(self._count)
        self._seconds += sum(told[1] for told in batch.values())
        for id, told in batch.items():
            if id in live:
                self._add(live[id], told)
        self._batch = {id: (live[id], told) for id, told in batch.items() if id in live}

    def show_dearest(self) -> list[QueryFigures]:
        """The dearest queries of the latest batch."""
        seconds = sum(told[1] for _, told in self._batch.values())
        dear = sorted(self._batch, key=lambda id: (-self._batch[id][1][1], id))[:MOST_SHOWN]
        found = (self._batch[id] for id in dear)
        return [self.show(known, told[1], seconds, int(told[0])) for known, told in found]

    def _add(self, known: Registered, told: Sequence[float]) -> None:
        if self._versions.get(known.id) != known.version:
            self._sums.pop(known.id, None)
            self._versions[known.id] = known.version
        add_figures(self._sums, known.id, told)

    def find(self, known: Registered) -> QueryFigures | None:
        """A query's figures since the job started; None before its first batch."""
        if not self._marks:
            return None
        mine = self._sums.get(known.id) if self._versions.get(known.id) == known.version else None
        return self.show(known, 0.0 if mine is None else mine[1], self._seconds, None)

    def show(self, known: Registered, seconds: float, of: float, batch_answers: int | None) -> QueryFigures:
        is_known = self._versions.get(known.id) == known.version
        answers, _, last = self._sums.get(known.id, [0, 0.0, NEVER]) if is_known else (0, 0.0, NEVER)
        own = [self._marks[s] for s in known.query.template.streams]
        lag = None if min(own) <= NEVER else max(self._marks.values()) - min(own)
        return QueryFigures(
            known.id,
            seconds / of if of else 0.0,
            int(answers),
            batch_answers,
            moment(int(last)),
            lag,
            self._count_state(known),
        )

    def _count_state(self, known: Registered) -> int:
        if known.query.own is not None:
            return count_rows(self._stored, known.query.own, known.effect)
        return self._count_rows(known.query.template, unit_of_query(known, self.units))

    def _count(self, template: Template, unit: int) -> int:
        """Rows of the segments that windows still reach: at the query's unit; under RJoin at all, with copies."""
        cuts, everywhere = stream_cuts(hull([template]), self._marks), self.plan.engine == "rjoin"
        return sum(
            info.rows
            for at, kind, info in self._stored
            if kind in cuts and info.max_ts >= cuts[kind] and (everywhere or at == unit)
        )
