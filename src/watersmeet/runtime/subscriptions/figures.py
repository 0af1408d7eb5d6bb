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
        self._stored: Stored = ()
        self._marks: Mapping[str, int] = {}
        self._count_rows = lru_cache(None)(self._count)

    def __reduce__(self) -> tuple[Any, ...]:
        return FigureBook, (self.plan,)

    def take(
        self, reports: Iterable[Report], live: Mapping[str, Registered], stored: Stored, maxima: Mapping[str, int]
    ) -> list[QueryFigures]:
        """Take in a batch that answered these queries, with what is stored after it; the dearest of the batch."""
        batch: dict[str, list[float]] = {}
        for report in reports:
            for id, told in report.registered.items():
                add_figures(batch, id, told)
        self._stored, self._marks = stored, watermarks(self.plan.streams, maxima)
        self._count_rows = lru_cache(None)(self._count)
        seconds = sum(told[1] for told in batch.values())
        self._seconds += seconds
        for id, told in batch.items():
            if id in live:
                self._add(live[id], told)
        dear = sorted((id for id in batch if id in live), key=lambda id: (-batch[id][1], id))[:MOST_SHOWN]
        return [self.show(live[id], batch[id][1], seconds, int(batch[id][0])) for id in dear]

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
            self._count_rows(known.query.template, unit_of_query(known, self.plan.units)),
        )

    def _count(self, template: Template, unit: int) -> int:
        """Rows of the segments that windows still reach: at the query's unit; under RJoin at all, with copies."""
        cuts, everywhere = stream_cuts(hull([template]), self._marks), self.plan.engine == "rjoin"
        return sum(
            info.rows
            for at, kind, info in self._stored
            if kind in cuts and info.max_ts >= cuts[kind] and (everywhere or at == unit)
        )
