"""A running query's micro-batches, one by one and each once, and their totals.

The units report what they emit; conditions that Spark evaluates after the join may still drop some of it, so the
results are counted once more at the very end, by `count_results`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.runtime.observing import NewEvents
from watersmeet.runtime.progress import Progress, read

POLL_S = 0.25
_RESULTS = "results"


def count_results(frame: Any) -> Any:
    """The frame, with its rows counted in the query's progress."""
    from pyspark.sql import functions as F

    return frame.observe(_RESULTS, F.count(F.lit(1)).alias("rows"))


@dataclass
class Totals:
    """A query so far; `streams` says which stream each alias reads."""

    streams: Mapping[str, str]
    batches: list[Progress] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    set_aside: int = 0
    results: int = 0
    rows: int = 0

    def add(self, progress: Progress) -> None:
        self.batches.append(progress)
        self.late.update(progress.late)
        self.set_aside += sum(progress.set_aside.values())
        self.results += progress.results
        self.rows += progress.input_rows

    @property
    def rows_per_second(self) -> float:
        """While it was busy; the first batch, which starts workers and compiles, is left out where there are others."""
        timed = self.batches[1:] or self.batches
        busy_s = sum(p.seconds for p in timed)
        return sum(p.input_rows for p in timed) / busy_s if busy_s else 0.0

    @property
    def state_rows(self) -> dict[str, int]:
        """Retained rows by stream."""
        found = dict.fromkeys(self.streams.values(), 0)
        for alias, rows in (self.batches[-1].state_rows if self.batches else {}).items():
            found[self.streams[alias]] += rows
        return found


class QueryWatch:
    """Follows one query; `show` is called for every batch, in order, when it is in the totals."""

    def __init__(self, query: Any, totals: Totals, show: Callable[[Progress], None]) -> None:
        self.query, self.totals, self.show = query, totals, show
        self.seen = -1
        self._events = NewEvents(query)

    def until(self, finished: Callable[[], bool]) -> None:
        """Until the query ends or `finished` says so; raises what the query raises."""
        ended = False
        while not ended and not finished():
            ended = self._has_ended()
            self.catch_up()

    def catch_up(self) -> None:
        """Shows the batches that have ended since."""
        for progress in self._batches():
            if progress.batch_id > self.seen:
                self.seen = progress.batch_id
                self.totals.add(progress)
                self.show(progress)

    def _has_ended(self) -> bool:
        return bool(self.query.awaitTermination(POLL_S))

    def _batches(self) -> Iterator[Progress]:
        for event in self._events.after(self.seen):
            progress = read(event)
            if progress is not None:
                yield replace(progress, results=int(event.observedMetrics[_RESULTS]["rows"]))


class RoundsWatch(QueryWatch):
    """The same for a handle of the rounds runtime, which counts its batches itself."""

    def _has_ended(self) -> bool:
        return bool(self.query.await_termination(POLL_S))

    def _batches(self) -> Iterator[Progress]:
        yield from self.query.history()
