"""Event time at a unit: how far every stream is, what is late, and what no future tuple can meet.

    watermark(s) = max(highest event time of s - lateness(s),  highest event time of the others - idle(s) if set)

    late   in batch n: a tuple that is older than its stream's watermark before batch n
    ahead  in batch n: a tuple that is later than the batch's own time + max_ahead(s); it moves no watermark
    dead   after batch n: a tuple x, if for every alias y that it waits for watermark(y) > x.ts + hi(x, y), that is

           x.ts < cut(x) = min over y of (watermark(y) - hi(x, y))

An earlier stage may hold tuples back, as ROWS windows require. It then promises watermarks, and no tuple that it releases is late. The end of
an input is such a promise, a watermark of infinity.

Invariant: maxima only grow, so watermarks and cuts only grow. No other module compares an event time with a watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.kernels.instants import FIRST, LAST, add_span
from watersmeet.query.stream import COUNTED, StreamSpec
from watersmeet.query.window import UNBOUNDED

NEVER = FIRST
"""Before all time: the watermark of a stream that has not been seen."""
TIMELESS = -(2**62)
"""What stands for the event time of rows that never expire. It is in stored segments, so it stays what it is."""

Times = Mapping[str, int]
"""Event times by stream: maxima, or watermarks."""
Bounds = Iterable[tuple[str, int]]
"""(stream, hi) of everything that a tuple waits for: partners come at most hi after it."""


@dataclass
class Seen:
    """What a batch has brought, before any filter: by stream the highest event time, and how many rows were set aside where they entered.

    Those are the rows that have no event time, or one too far ahead. Rows that break an expression are counted by themselves.
    """

    highest: dict[str, int] = field(default_factory=dict)
    aside: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)

    def include(self, other: Seen) -> None:
        self.highest = advance(self.highest, other.highest)
        for mine, its in ((self.aside, other.aside), (self.broken, other.broken)):
            for stream, rows in its.items():
                mine[stream] = mine.get(stream, 0) + rows


@dataclass(frozen=True)
class Promise:
    """What an earlier stage guarantees: watermarks after the batch, and by side the time before which no ROWS window holds a tuple."""

    marks: Times
    cuts: Times = field(default_factory=dict)

    def along_with(self, other: Promise) -> Promise:
        """What holds if both do: the lower watermarks, the later cuts."""
        marks = {s: min(m, other.marks.get(s, m)) for s, m in {**other.marks, **self.marks}.items()}
        cuts = {k: max(c, other.cuts.get(k, c)) for k, c in {**other.cuts, **self.cuts}.items()}
        return Promise(marks, cuts)


@dataclass(frozen=True)
class Clock:
    """Event time in one batch: maxima of the batches before it, and what it has seen, for certain, so far."""

    streams: Mapping[str, StreamSpec]
    maxima: Times = field(default_factory=dict)
    seen: Times = field(default_factory=dict)
    promise: Promise | None = None

    @cached_property
    def before(self) -> dict[str, int]:
        """Watermarks before the batch."""
        return watermarks(self.streams, self.maxima)

    @cached_property
    def after(self) -> dict[str, int]:
        """Watermarks after the batch."""
        return watermarks(self.streams, self.reached) if self.promise is None else dict(self.promise.marks)

    @cached_property
    def reached(self) -> dict[str, int]:
        """Maxima after the batch."""
        return advance(self.maxima, self.seen)

    def end(self) -> Clock:
        """The clock after the end of all input."""
        return self.with_promise(Promise(dict.fromkeys(self.streams, LAST)))

    def with_promise(self, promise: Promise) -> Clock:
        return Clock(self.streams, self.maxima, self.seen, promise)

    def late(self, stream: str, times: np.ndarray) -> np.ndarray | None:
        """Which of a stream's new tuples are late; None: none of them."""
        if self.promise is not None:
            return None
        late = times < self.before[stream]
        return late if late.any() else None

    def lag(self, stream: str, ts: int) -> int | None:
        """How far a stream's watermark before the batch was past an instant; None if there was none yet."""
        mark = NEVER if self.promise is not None else self.before[stream]
        return None if mark <= NEVER else add_span(mark, -ts)

    def has_passed(self, stream: str, times: np.ndarray) -> np.ndarray:
        """Which instants a stream's watermark is past after the batch; past the end of all input it is past all of them."""
        mark = self.after[stream]
        return np.ones(len(times), bool) if mark >= LAST else times < mark

    def cut(self, bounds: Bounds) -> int:
        """The time before which tuples are dead that wait for partners within these bounds."""
        return min((dead_before(self.after[stream], hi) for stream, hi in bounds), default=NEVER)

    def find_ends(self, stream: str, hi: int) -> tuple[int, int]:
        """From which time on, and up to which, tuples cease to wait in this batch: partners come from a stream, at most `hi` later.

        >>> Clock({"s": StreamSpec("s", {"ts": "timestamp"}, time="ts")}, {"s": 20}, {"s": 50}).find_ends("s", 5)
        (15, 45)
        """
        return dead_before(self.before[stream], hi), dead_before(self.after[stream], hi)

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes any more."""
        return self.lowest >= LAST

    def side_cut(self, side: str, bounds: Bounds) -> int:
        """The same for a side of a join, ROWS windows included."""
        left_behind = NEVER if self.promise is None else self.promise.cuts.get(side, NEVER)
        return max(self.cut(bounds), left_behind)

    @property
    def lowest(self) -> int:
        """Nothing that comes later is older."""
        return min(self.after.values(), default=NEVER)


def watermarks(streams: Mapping[str, StreamSpec], maxima: Times) -> dict[str, int]:
    """The watermark of every stream, once a batch has reached these maxima."""
    out = {}
    for name, spec in streams.items():
        mark = add_span(maxima.get(name, NEVER), -spec.lateness_us)
        others = [t for s, t in maxima.items() if s != name]
        if spec.idle_us is not None and others:
            mark = max(mark, add_span(max(others), -spec.idle_us))
        out[name] = mark
    return out


def find_ahead(times: np.ndarray, now: int, max_ahead_us: int) -> np.ndarray:
    """Which instants are too far ahead of a batch's own time.

    >>> find_ahead(np.array([5, 15, 16]), now=10, max_ahead_us=5).tolist()
    [False, False, True]
    """
    return np.asarray(times > add_span(now, max_ahead_us))


def dead_before(mark: int, hi: int) -> int:
    """The time before which no tuple can meet one at or after a watermark that comes at most `hi` later."""
    return NEVER if hi >= UNBOUNDED or mark <= NEVER else add_span(mark, -hi)


def find_holds(waits: Iterable[Sequence[tuple[str, int]]], marks: Times) -> dict[str, int | None]:
    """By stream, for how much event time state is kept only because this stream's watermark is behind the furthest; None: it has not been seen.

    `waits` has for every side the bounds that its tuples wait for. A stream that holds nothing back is not among them, and nobody is where a side is never cut.

    >>> find_holds([[("s", 10), ("t", 10)], [("t", 5)]], {"s": 100, "t": 40})
    {'t': 60}
    >>> find_holds([[("s", 10), ("t", 70)]], {"s": 40, "t": 100})  # s may be that far behind: t is waited for as long
    {}
    """
    furthest = max(marks.values(), default=NEVER)
    out: dict[str, int | None] = {}
    for bounds in waits:
        if furthest <= NEVER or any(hi >= UNBOUNDED for _, hi in bounds):
            continue
        best = min((dead_before(furthest, hi) for _, hi in bounds), default=NEVER)
        for stream, hi in bounds:
            if marks[stream] <= NEVER:
                out[stream] = None
            elif (held := best - dead_before(marks[stream], hi)) > 0:
                out[stream] = max(out.get(stream) or 0, held)
    return out


def stream_cuts(hull: Mapping[tuple[str, str], int], marks: Times) -> dict[str, int]:
    """By stream the time before which its tuples are dead, where many queries share them: `hull` has for every ordered pair of
    streams the largest y.ts - x.ts that some query allows.

    >>> stream_cuts({("r", "s"): 5, ("s", "r"): 2}, {"r": 100, "s": 90})
    {'r': 85, 's': 98}
    """
    out: dict[str, int] = {}
    for (x, y), hi in hull.items():
        cut = dead_before(marks[y], hi)
        out[x] = min(out.get(x, cut), cut)
    return out


def advance(before: Times, seen: Times) -> dict[str, int]:
    """Maxima after a batch."""
    return {s: max(before.get(s, NEVER), seen.get(s, NEVER)) for s in {*before, *seen}}


def count(table: pa.Table, dropped: np.ndarray) -> int:
    """How many of the dropped rows count for their stream."""
    return int(np.count_nonzero(dropped & ~find_counted(table)))


def find_counted(table: pa.Table) -> np.ndarray | np.bool_:
    """Which rows an earlier alias of their stream counts."""
    if COUNTED not in table.column_names:
        return np.False_
    return np.asarray(table.column(COUNTED).fill_null(False).to_numpy(), bool)
