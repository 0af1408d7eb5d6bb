"""One side of a join inside a step, and combinations of the sides' tuples: row numbers, periods, blocks.

    segments   [ old 0 ][ old 1 ][ new ]
    row_idx     0 ..  5  6 ..  9  10 ..

A side is one alias or, in a pipeline, several whose tuples are bound together already; `Member` is one alias of it. Windows leave a period for the
next member of a combination:

    period of y     max over bound x of (x.ts + lo(x, y))  <=  y.ts  <=  min over bound x of (x.ts + hi(x, y))

Where the window graph has alternatives (PATH), a combination leaves some of them open: those whose windows all its members
satisfy. Its period is the hull of the periods of the open ones, so as soon as two members differ in time a path has one
direction and its period is that direction's. What satisfies several alternatives is still one combination.

Combinations are cut into blocks before their values are gathered, since a hot key multiplies wide values:

    300 x 300 tuples of one key with a text of 40 KB each: 90,000 combinations, 3.6 GB, from 24 MB of tuples

Invariant: row numbers are stable within a step; nothing is copied that no result needs. A member outside the period satisfies no open alternative; one
inside satisfies an alternative if and only if `check_windows` says so. Without alternatives the period alone decides. The blocks of combinations, laid end to
end, are the combinations; the named columns of a block of several hold at most a block's bytes.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1 (the period) and section 5.2.1 (the directed period of a path).
Departs from the paper: the union of the two directions is taken in one pass, whose period follows the direction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, cuts, is_bytes, is_text
from watersmeet.kernels.instants import FIRST, LAST, shift
from watersmeet.kernels.repeats import number_repeated
from watersmeet.plan import model
from watersmeet.plan.model import TIME, InputPlan
from watersmeet.query.window import UNBOUNDED, WindowGraph
from watersmeet.storage.segment import Segment


class VisibleSide:
    """The tuples of one side that a step can see."""

    def __init__(self, spec: model.Side, old: list[Segment], new: Segment | None) -> None:
        self.spec = spec
        self.old = old
        self.new = new
        self.segments = old if new is None else [*old, new]
        self.offsets = np.cumsum([0, *(s.rows for s in self.segments)])
        self._arrays: dict[tuple[str, str], np.ndarray] = {}
        self._wholes: dict[str, pa.Array] = {}
        """Columns of all segments together, of those that were worth it."""
        self._scratch = np.empty(0, np.int32)

    @cached_property
    def new_idx(self) -> np.ndarray:
        """The row numbers of this batch's tuples."""
        return np.arange(self.offsets[len(self.old)], self.offsets[-1])

    def admit(self, new: Segment | None) -> None:
        """Take this batch's tuples in; row numbers given out so far stay what they are."""
        assert self.new is None
        if new is None:
            return
        self.new = new
        self.__dict__.pop("new_idx", None)
        self.segments = [*self.segments, new]
        self._wholes.clear()
        self.offsets = np.append(self.offsets, self.offsets[-1] + new.rows)
        for (name, kind), array in self._arrays.items():
            self._arrays[name, kind] = np.concatenate([array, new.codes(name, kind) if name else new.ts])

    def visible(self, with_new: bool) -> list[tuple[int, Segment]]:
        """The segments that may be probed, each with its first row number."""
        segments = self.segments if with_new else self.old
        return [(int(self.offsets[i]), s) for i, s in enumerate(segments) if s.rows]

    def ts(self) -> np.ndarray:
        """The side's time: that of its reference."""
        return self._remember("", "", [s.ts for s in self.segments])

    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a column for all rows; kind 'double' gives doubles."""
        return self._remember(name, kind, None)

    def _remember(self, name: str, kind: str, parts: list[np.ndarray] | None) -> np.ndarray:
        if (name, kind) not in self._arrays:
            arrays = parts if parts is not None else [s.codes(name, kind) for s in self.segments]
            self._arrays[name, kind] = (
                arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.empty(0, np.int64)])
            )
        return self._arrays[name, kind]

    def widest(self, name: str) -> int:
        """The bytes of the widest value of a column."""
        return int(max((s.widest(name) for s in self.segments), default=0))

    def take(self, name: str, row_idx: np.ndarray) -> pa.Array:
        """The values of a column at these rows; costs what it returns, not what is stored."""
        if len(self.segments) == 1 or len(row_idx) == 0:
            return self.segments[0].column(name).take(pa.array(row_idx))
        if (whole := self._join_segments(name, len(row_idx))) is not None:
            return whole.take(pa.array(row_idx))
        lowest, highest = np.searchsorted(self.offsets, (row_idx.min(), row_idx.max()), side="right") - 1
        if lowest == highest:
            return self.segments[lowest].column(name).take(pa.array(row_idx - self.offsets[lowest]))
        segment_of = np.searchsorted(self.offsets, row_idx, side="right") - 1
        # What one probe found comes segment by segment, and need not be sorted.
        if np.all(segment_of[1:] >= segment_of[:-1]):
            return self._pieces(name, row_idx, segment_of)
        order = np.argsort(segment_of, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._pieces(name, row_idx[order], segment_of).take(pa.array(back))

    def _join_segments(self, name: str, rows: int) -> pa.Array | None:
        """A column of all segments, if that is short beside the rows that are taken of it: a copy of it costs less than a take from each."""
        if name not in self._wholes:
            stored = int(self.offsets[-1])
            if stored > MOST_STORED * rows or stored * self.widest(name) > WHOLE_BYTES:
                return None
            self._wholes[name] = pa.concat_arrays([s.column(name) for s in self.segments])
        return self._wholes[name]

    def _pieces(self, name: str, row_idx: np.ndarray, segment_of: np.ndarray) -> pa.Array:
        """The values at rows that stand segment by segment."""
        pieces, begin = [], 0
        for i, end in enumerate(np.cumsum(np.bincount(segment_of, minlength=len(self.segments)))):
            if end > begin:
                pieces.append(self.segments[i].column(name).take(pa.array(row_idx[begin:end] - self.offsets[i])))
            begin = end
        return pa.concat_arrays(pieces)

    def number_members(self, row_idx: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Which of the different rows each is, and these; None unless rows repeat OFTEN on average."""
        most = len(row_idx) // OFTEN
        if len(self._scratch) < self.offsets[-1]:
            self._scratch = np.full(self.offsets[-1], -1, np.int32)
        numbers, found = number_repeated(row_idx, self._scratch, most)
        return (numbers, found) if len(found) else None


class Member:
    """One alias of a side: its wire columns under the names that the side has for them."""

    def __init__(self, side: VisibleSide, source: InputPlan) -> None:
        self.side, self.source = side, source
        self._alone = len(side.spec.aliases) == 1
        has = {name for alias, name in side.spec.carried if alias == source.alias}
        self.keys = {c: name for c, name in source.keys.items() if self._alone or name in has}
        """Class number to wire column, of the keys that the side has."""

    def _column(self, name: str) -> str:
        """A side of one alias has columns under their own names."""
        return name if self._alone else self.side.spec.column(self.source.alias, name)

    def ts(self) -> np.ndarray:
        return self.side.ts() if self.side.spec.reference == self.source.alias else self.codes(TIME, "integer")

    def codes(self, name: str, kind: str) -> np.ndarray:
        return self.side.codes(self._column(name), kind)

    def widest(self, name: str) -> int:
        return self.side.widest(self._column(name))

    def take(self, name: str, row_idx: np.ndarray) -> pa.Array:
        return self.side.take(self._column(name), row_idx)

    def is_text(self, name: str) -> bool:
        """Whether a column has texts or bytes."""
        kind = self.side.segments[0].table.schema.field(self._column(name)).type
        return is_text(kind) or is_bytes(kind)


Times = Mapping[str, np.ndarray]
"""For every bound alias the times of its members, one per combination."""


def find_period(graph: WindowGraph, times: Times, y: str) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time at which a member of y can stand, by combination.

    >>> there = WindowGraph(("a", "b"), ((0, 5), (0, 0)), ())
    >>> [bound.tolist() for bound in find_period(there, {"a": np.array([10, 20])}, "b")]
    [[10, 20], [15, 25]]
    """
    if not graph.alternatives:
        return _intersect(graph, times, y)
    rows = len(next(iter(times.values())))
    first, last = np.full(rows, LAST, np.int64), np.full(rows, FIRST, np.int64)
    for alternative in graph.alternatives:
        lo, hi = _intersect(alternative, times, y)
        is_open = (lo <= hi) & _check_graph(alternative, times)
        np.minimum(first, lo, out=first, where=is_open)
        np.maximum(last, hi, out=last, where=is_open)
    return first, last


def check_windows(graph: WindowGraph, times: Times) -> np.ndarray:
    """Which combinations satisfy the graph, or one of its alternatives, as far as they are bound.

    >>> from watersmeet.query.window import directed_edges
    >>> there, back = [[*directed_edges(x, "b", 9, ""), *directed_edges("b", z, 9, "")] for x, z in (("a", "c"), ("c", "a"))]
    >>> path = WindowGraph.either(("a", "b", "c"), [there, back])
    >>> check_windows(path, {"a": np.array([0, 9, 0]), "b": np.array([5, 5, 5]), "c": np.array([9, 0, 0])}).tolist()
    [True, True, False]
    """
    ways = [_check_graph(alternative, times) for alternative in graph.alternatives or (graph,)]
    return np.asarray(np.logical_or.reduce(ways))


def _intersect(graph: WindowGraph, times: Times, y: str) -> tuple[np.ndarray, np.ndarray]:
    rows = len(next(iter(times.values())))
    lo, hi = np.full(rows, FIRST, np.int64), np.full(rows, LAST, np.int64)
    for x, ts in times.items():
        low, high = graph.spans[x, y]
        if low > -UNBOUNDED:
            np.maximum(lo, shift(ts, low), out=lo)
        if high < UNBOUNDED:
            np.minimum(hi, shift(ts, high), out=hi)
    return lo, hi


def _check_graph(graph: WindowGraph, times: Times) -> np.ndarray:
    out = np.ones(len(next(iter(times.values()))), np.bool_)
    for x, y in combinations(times, 2):
        low, high = graph.spans[x, y]
        out &= times[y] >= shift(times[x], low)
        out &= times[y] <= shift(times[x], high)
    return out


Bound = dict[str, np.ndarray]
"""Combinations: for every bound alias the row number of its member."""
Columns = Collection[tuple[str, str]]
"""(alias, wire column)"""


def in_blocks(members: Mapping[str, Member], bound: Bound, columns: Columns) -> Iterator[Bound]:
    """Combinations as blocks, by the bytes of these columns; one block if there is nothing to cut."""
    rows, limit = len(next(iter(bound.values()))), block_bytes()
    widest = {(alias, name): members[alias].widest(name) for alias, name in columns}
    if rows * sum(widest.values()) <= limit:
        yield bound
        return
    widths = np.zeros(rows, np.int64)
    for (alias, name), most in widest.items():
        widths += members[alias].codes(name, "width")[bound[alias]] if most > FIXED else most
    for begin, end in cuts(widths, rows, limit):
        yield {alias: idx[begin:end] for alias, idx in bound.items()}


WHOLE_BYTES, MOST_STORED = 2**20, 16
"""Segments are joined to take from them where a column has at most so many bytes, and so many rows for each that is taken."""
OFTEN = 4
"""Texts of members leave as a dictionary if a member is in so many combinations of a chunk, on average."""
FIXED = 16
"""Values of at most so many bytes count as if all were of the widest."""
