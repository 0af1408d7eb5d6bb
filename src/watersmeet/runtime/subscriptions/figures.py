"""What each registered query did and took since the job started: added up from the units' reports, batch by batch, in the driver.

    reports --take--> sums by id --> the dearest of the batch, for progress, metrics and the page
                                 --> any query's figures, for list()

Invariant: answers are counted exactly. CPU time is shared out by work (`registry.shared.meter`) and told of the dearest and of those that answer, so a share is at least what it says.
A query that comes again under an id begins at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

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


class _Sum(NamedTuple):
    """What a query did and took."""

    answers: int = 0
    seconds: float = 0.0
    last: int = NEVER


class _Sums:
    """The same of all queries, in columns: thousands may have answered a micro-batch, which is added in one go."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._answers, self._seconds = np.zeros(0, np.int64), np.zeros(0)
        self._last, self._version = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, ids: Sequence[str], told: Sequence[np.ndarray]) -> None:
        """Add what queries have told, in columns."""
        places = np.array([*map(self._place.get, ids, repeat(-1))])
        new = np.flatnonzero(places < 0)
        if len(new):
            places[new] = self._make_room([ids[n] for n in new.tolist()])
        answers, seconds, last, version = told
        anew = places[self._version[places] != version]
        self._answers[anew], self._seconds[anew], self._last[anew] = _Sum()
        self._version[places] = version
        self._answers[places] += answers
        self._seconds[places] += seconds
        self._last[places] = np.maximum(self._last[places], last)

    def _make_room(self, ids: Sequence[str]) -> np.ndarray:
        """Places for queries that have none."""
        places = np.arange(len(self._place), len(self._place) + len(ids))
        self._place |= zip(ids, places.tolist(), strict=True)
        if len(self._place) > len(self._answers):
            more = (0, 2 * len(self._place) - len(self._answers))
            self._answers, self._seconds = np.pad(self._answers, more), np.pad(self._seconds, more)
            self._last, self._version = np.pad(self._last, more), np.pad(self._version, more, constant_values=-1)
        return places

    def find(self, known: Registered) -> _Sum:
        """What a query did and took; nothing, if it was another version."""
        at = self._place.get(known.id)
        if at is None or self._version[at] != known.version:
            return _Sum()
        return _Sum(int(self._answers[at]), float(self._seconds[at]), int(self._last[at]))


class FigureBook:
    """Sums by query; it travels empty."""

    def __init__(self, plan: RegistryPlan) -> None:
        self.plan = plan
        self._sums = _Sums()
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
        self._dear, self._batch_seconds = [], 0.0
        if batch:
            ids, columns = list(batch), [np.array(column) for column in zip(*batch.values(), strict=True)]
            self._sums.add(ids, columns)
            self._batch_seconds = float(columns[1].sum())
            dear = (ids[n] for n in _find_dearest(columns[1], ids))
            self._dear = [(live[id], batch[id]) for id in dear if id in live]
        self._seconds += self._batch_seconds

    def show_dearest(self) -> list[QueryFigures]:
        """The dearest queries of the latest batch."""
        return [self.show(known, told[1], self._batch_seconds, int(told[0])) for known, told in self._dear]

    def find(self, known: Registered) -> QueryFigures | None:
        """A query's figures since the job started; None before its first batch."""
        if not self._marks:
            return None
        return self.show(known, self._sums.find(known).seconds, self._seconds, None)

    def show(self, known: Registered, seconds: float, of: float, batch_answers: int | None) -> QueryFigures:
        mine = self._sums.find(known)
        own = [self._marks[s] for s in known.query.template.streams]
        lag = None if min(own) <= NEVER else max(self._marks.values()) - min(own)
        return QueryFigures(
            known.id,
            seconds / of if of else 0.0,
            mine.answers,
            batch_answers,
            moment(mine.last),
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


def _find_dearest(seconds: np.ndarray, ids: Sequence[str]) -> list[int]:
    """The numbers of the queries that took most, the first ids of equals.

    >>> _find_dearest(np.array([0.5, 2.0, 0.5]), ["b", "c", "a"])
    [1, 2, 0]
    """
    most = min(MOST_SHOWN, len(seconds))
    least = np.partition(seconds, len(seconds) - most)[len(seconds) - most]
    found = np.flatnonzero(seconds >= least).tolist()
    return sorted(found, key=lambda n: (-seconds[n], ids[n]))[:most]
