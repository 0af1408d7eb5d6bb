"""What each registered query did and took since the job started: added up from the units' reports, batch by batch, in the driver.

    reports --take--> sums by id --> the dearest of the batch, for progress, metrics and the page
                                 --> any query's figures, for list()

Invariant: answers are counted exactly. CPU time is shared out by work (`registry.shared.meter`) and told of the dearest and of those that answer, so a share is at least what it says.
A query that comes again under an id begins at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from typing import Any

from watersmeet.dataflow.clock import NEVER, stream_cuts, watermarks
from watersmeet.dataflow.report import Report, merge_figures
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


@dataclass(slots=True)
class _Sums:
    """What a query of a version did and took."""

    answers: float
    seconds: float
    last: float
    version: int


class FigureBook:
    """Sums by query; it travels empty."""

    def __init__(self, plan: RegistryPlan) -> None:
        self.plan = plan
        self._sums: dict[str, _Sums] = {}
        self._seconds = 0.0
        self._dear: list[tuple[Registered, Sequence[float]]] = []
        """The dearest queries of the latest batch, and what they took."""
        self._batch_seconds = 0.0
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
        told = [report.registered for report in reports]
        batch = dict[str, Sequence[float]]()
        for registered in told:
            merge_figures(batch, registered)
        self._stored, self.units, self._marks = stored, units, watermarks(self.plan.streams, maxima)
        self._count_rows = lru_cache(None)(self._count)
        self._batch_seconds = sum(figures[1] for figures in batch.values())
        self._seconds += self._batch_seconds
        self._dear = _find_dearest(batch, live)
        self._add(batch, live)

    def show_dearest(self) -> list[QueryFigures]:
        """The dearest queries of the latest batch."""
        return [self.show(known, told[1], self._batch_seconds, int(told[0])) for known, told in self._dear]

    def _add(self, batch: Mapping[str, Sequence[float]], live: Mapping[str, Registered]) -> None:
        """Add a batch, which thousands of queries may have answered."""
        sums = self._sums
        for id, (answers, seconds, last) in batch.items():
            known = live.get(id)
            if known is None:
                continue
            mine = sums.get(id)
            if mine is None or mine.version != known.version:
                sums[id] = _Sums(answers, seconds, last, known.version)
            else:
                mine.answers += answers
                mine.seconds += seconds
                if last > mine.last:
                    mine.last = last

    def find(self, known: Registered) -> QueryFigures | None:
        """A query's figures since the job started; None before its first batch."""
        if not self._marks:
            return None
        return self.show(known, self._find_sums(known).seconds, self._seconds, None)

    def show(self, known: Registered, seconds: float, of: float, batch_answers: int | None) -> QueryFigures:
        mine = self._find_sums(known)
        own = [self._marks[s] for s in known.query.template.streams]
        lag = None if min(own) <= NEVER else max(self._marks.values()) - min(own)
        return QueryFigures(
            known.id,
            seconds / of if of else 0.0,
            int(mine.answers),
            batch_answers,
            moment(int(mine.last)),
            lag,
            self._count_state(known),
        )

    def _find_sums(self, known: Registered) -> _Sums:
        mine = self._sums.get(known.id)
        return _Sums(0, 0.0, NEVER, known.version) if mine is None or mine.version != known.version else mine

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


def _find_dearest(
    batch: Mapping[str, Sequence[float]], live: Mapping[str, Registered]
) -> list[tuple[Registered, Sequence[float]]]:
    """The queries of a batch that took most, the first ids of equals."""
    costs = nlargest(MOST_SHOWN, [figures[1] for figures in batch.values()])
    least = costs[-1] if costs else 0.0
    dear = sorted((-figures[1], id) for id, figures in batch.items() if figures[1] >= least and id in live)
    return [(live[id], batch[id]) for _, id in dear[:MOST_SHOWN]]
