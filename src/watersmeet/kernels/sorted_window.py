"""Sorted window join (SW): an index by value, and inside a value by time, for bands and inequalities.

    values   -3      1          4    9          distinct, ascending
    rows     7 2     9 4 0      8    1 3 5      positions of the segment's rows
    times    -->     ----->     -    ----->     ascending inside each value

A probe asks for lo_value <= value <= hi_value and lo <= ts <= hi. Its values are one run of `rows`; how the period is
cut out of the run is chosen for every probe by what it costs:

    RUN      the segment lies inside the period: all of the run, no test
    TEST     test the time of every row of the run
    BISECT   few distinct values, many rows: bisect the period inside each value
    SCAN     the period is the more selective: bisect it in time order, test the value of every row

A second column that rises with the first (y - 1 and y + 1 of `x BETWEEN y - 1 AND y + 1`) needs no index of its own:
its ranges are ranges of the first (`steps`, `narrow`).

Invariant: `rows` is a permutation of the segment's rows, ascending in (value, time, row); a probe meets at most
min(rows in its range, rows in its period) rows, or FEW; output comes in chunks of at most `limit` pairs.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3: an ordered sub-index of the chain, and no window check where a
sub-index is wholly valid.
Departs from the paper: its sub-indexes are ordered trees that grow by insertion; ours are built once, by sorting, since
segments do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from watersmeet.kernels.compiled import kernel

BOTTOM, TOP = -(2**63), 2**63 - 1
RUN, TEST, BISECT, SCAN = 0, 1, 2, 3
FEW = 16
"""Rows that are tested at once, without a look for a cheaper way."""


class SortedIndex(NamedTuple):
    """An index over one segment; build it with `build`."""

    values: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    times: np.ndarray
    by_time: np.ndarray
    by_time_times: np.ndarray
    by_time_values: np.ndarray

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self)

    @property
    def groups(self) -> int:
        return len(self.values)


class Box(NamedTuple):
    """For every probe a range of values and a period; all four ends are inclusive, and lo > hi is nothing."""

    lo_value: np.ndarray
    hi_value: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


def build(values: np.ndarray, ts: np.ndarray) -> SortedIndex:
    """Index rows by value, then time; values are codes that keep order.

    >>> index = build(np.array([5, 3, 5]), np.array([20, 10, 10]))
    >>> index.values.tolist(), index.starts.tolist(), index.rows.tolist()
    ([3, 5], [0, 1, 3], [1, 2, 0])
    """
    in_order = len(ts) < 2 or bool(np.all(ts[1:] >= ts[:-1]))
    by_time = np.arange(len(ts)) if in_order else np.argsort(ts, kind="stable")
    by_time_times = np.ascontiguousarray(ts if in_order else ts[by_time])
    by_time_values = np.ascontiguousarray(values if in_order else values[by_time])
    # An unstable sort is several times faster; dealing the rows out in time order mends the ties.
    distinct, starts, rows, times = _deal(np.argsort(by_time_values), by_time_values, by_time, by_time_times)
    return SortedIndex(distinct, starts, rows, times, by_time, by_time_times, by_time_values)


@kernel(
    "Tuple((int64[::1], int64[::1], int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _deal(order, values, rows, times):  # type: ignore[no-untyped-def]
    """Distinct values, where each starts, and rows and times by (value, time); the input is in time order."""
    n = len(order)
    group_of = np.empty(n, np.int64)
    distinct = np.empty(n, np.int64)
    starts = np.empty(n + 1, np.int64)
    groups = 0
    # 1. Number the values in their order.
    for j in range(n):
        value = values[order[j]]
        if groups == 0 or value != distinct[groups - 1]:
            distinct[groups] = value
            starts[groups] = j
            groups += 1
        group_of[order[j]] = groups - 1
    starts[groups] = n
    # 2. Deal the rows out in time order, so every value is ascending in time.
    fill = starts.copy()
    dealt_rows = np.empty(n, np.int64)
    dealt_times = np.empty(n, np.int64)
    for i in range(n):
        at = fill[group_of[i]]
        dealt_rows[at] = rows[i]
        dealt_times[at] = times[i]
        fill[group_of[i]] = at + 1
    return distinct[:groups].copy(), starts[: groups + 1].copy(), dealt_rows, dealt_times


class Steps(NamedTuple):
    """What a second column has, at least and at most, for each value of an index; both ascending."""

    least: np.ndarray
    most: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.least.nbytes + self.most.nbytes)


def steps(index: SortedIndex, codes: np.ndarray) -> Steps | None:
    """A second column along the index; None if it does not rise with the first.

    >>> index = build(np.array([5, 3, 5]), np.array([20, 10, 10]))
    >>> steps(index, np.array([8, 6, 7])), steps(index, np.array([1, 2, 3]))
    (Steps(least=array([6, 7]), most=array([6, 8])), None)
    """
    ordered = codes[index.rows]
    least, most = (f.reduceat(ordered, index.starts[:-1]) for f in (np.minimum, np.maximum))
    rises = np.all(least[1:] >= least[:-1]) and np.all(most[1:] >= most[:-1])
    return Steps(least, most) if rises else None


def narrow(index: SortedIndex, second: Steps, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The range of the index' values outside of which no row has lo <= second column <= hi.

    >>> index = build(np.array([3, 4, 5]), np.array([0, 0, 0]))
    >>> [a.tolist() for a in narrow(index, steps(index, np.array([13, 14, 15])), np.array([14, 16]), np.array([20, 20]))]
    [[4, 9223372036854775807], [5, -9223372036854775808]]
    """
    first = np.searchsorted(second.most, lo, side="left")
    last = np.searchsorted(second.least, hi, side="right") - 1
    none = first > last
    lo_value, hi_value = (index.values[np.clip(at, 0, len(index.values) - 1)] for at in (first, last))
    lo_value[none], hi_value[none] = TOP, BOTTOM
    return lo_value, hi_value


def pairs(index: SortedIndex, box: Box, limit: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of (probe_idx, row_idx) of all rows in each probe's range and period.

    >>> index = build(np.array([5, 3, 5]), np.array([20, 10, 10]))
    >>> [(p.tolist(), r.tolist()) for p, r in pairs(index, Box(*np.array([[3], [9], [0], [15]])), 10)]
    [([0, 0], [1, 2])]
    """
    if len(index.rows) == 0:
        return
    way, first, end, most = _ways(index.values, index.starts, index.by_time_times, *box)
    at = (0, -1)
    while most > 0:
        size = min(limit, most)
        probe_idx, row_idx = np.empty(size, np.int64), np.empty(size, np.int64)
        found, met, *at = _collect(
            index.starts, index.rows, index.times, index.by_time, index.by_time_values,
            way, first, end, *box, *at, probe_idx, row_idx,
        )  # fmt: skip
        most -= met
        if found:
            yield probe_idx[:found], row_idx[:found]


@kernel("int64(int64[::1], int64, int64, int64)", inline="always")
def _not_below(array, left, right, value):  # type: ignore[no-untyped-def]
    """The first position in [left, right) whose value is not below."""
    while left < right:
        mid = (left + right) >> 1
        if array[mid] < value:
            left = mid + 1
        else:
            right = mid
    return left


@kernel("int64(int64[::1], int64, int64, int64)", inline="always")
def _above(array, left, right, value):  # type: ignore[no-untyped-def]
    """The first position in [left, right) whose value is above; cheap if it is near the left end."""
    step = 1
    while left + step <= right and array[left + step - 1] <= value:
        left += step
        step += step
    right = min(right, left + step - 1)
    while left < right:
        mid = (left + right) >> 1
        if array[mid] <= value:
            left = mid + 1
        else:
            right = mid
    return left


@kernel(
    "Tuple((int8[::1], int64[::1], int64[::1], int64))(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _ways(values, starts, in_time, lo_value, hi_value, lo, hi):  # type: ignore[no-untyped-def]
    """For every probe the way, the positions [first, end) that it meets, and how many all probes meet."""
    n, groups, rows = len(lo), len(values), len(in_time)
    way = np.zeros(n, np.int8)
    first = np.zeros(n, np.int64)
    end = np.zeros(n, np.int64)
    most = 0
    for i in range(n):
        if lo_value[i] > hi_value[i] or lo[i] > hi[i]:
            continue
        # 1. The range of values is a run of groups, and so of rows.
        g = _not_below(values, 0, groups, lo_value[i])
        h = _above(values, g, groups, hi_value[i])
        first[i], end[i] = starts[g], starts[h]
        count = end[i] - first[i]
        if lo[i] > in_time[0] or hi[i] < in_time[rows - 1]:
            way[i] = TEST
            if count > FEW:
                # 2. The period is a run in time order.
                left = _not_below(in_time, 0, rows, lo[i])
                right = _above(in_time, left, rows, hi[i])
                # 3. Bisecting a group costs a dozen tests, and some more each time that it doubles.
                price, size = 12, count // (h - g)
                while size > 1:
                    price += 4
                    size >>= 1
                if price * (h - g) < min(count, right - left):
                    way[i] = BISECT
                elif right - left < count:
                    way[i], first[i], end[i] = SCAN, left, right
        most += end[i] - first[i]
    return way, first, end, most


@kernel(
    "Tuple((int64, int64, int64, int64))(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int8[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64, int64, int64[::1], int64[::1])",
)
def _collect(  # type: ignore[no-untyped-def]
    starts, rows, times, by_time, by_time_values, way, first, end, lo_value, hi_value, lo, hi, i, at, probe_idx, row_idx
):
    """Fill one chunk from probe i, position `at` (-1: its first) on: pairs found, rows met, and where to go on."""
    n, met, room = 0, 0, len(probe_idx)
    while i < len(way) and n < room:
        if at < 0:
            at = first[i]
        begin, stop = at, end[i]
        if way[i] == RUN:
            stop = min(stop, at + room - n)
            for p in range(at, stop):
                probe_idx[n] = i
                row_idx[n] = rows[p]
                n += 1
            at = stop
        elif way[i] == TEST:
            low, high = lo[i], hi[i]
            while at < stop and n < room:
                probe_idx[n] = i
                row_idx[n] = rows[at]
                n += (times[at] >= low) & (times[at] <= high)
                at += 1
        elif way[i] == SCAN:
            low, high = lo_value[i], hi_value[i]
            while at < stop and n < room:
                probe_idx[n] = i
                row_idx[n] = by_time[at]
                n += (by_time_values[at] >= low) & (by_time_values[at] <= high)
                at += 1
        else:
            g = _above(starts, 0, len(starts), at) - 1
            while at < stop and n < room:
                left = _not_below(times, at, starts[g + 1], lo[i])
                right = _above(times, left, starts[g + 1], hi[i])
                cut = min(right, left + room - n)
                for p in range(left, cut):
                    probe_idx[n] = i
                    row_idx[n] = rows[p]
                    n += 1
                g += 1
                at = starts[g] if cut == right else cut
        met += at - begin
        if at == end[i]:
            i += 1
            at = -1
    return n, met, i, at
