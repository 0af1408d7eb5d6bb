"""Hash window join (HW): an index by key, and inside a key by time.

    groups   k1            k2       k3
    rows     7 2 9 4       0 8      1 3 5 6        positions of the segment's rows
    times    ------>       -->      ------>        ascending inside each group

A probe finds its group in a hash table and cuts the period [lo, hi] out of it by bisection, so the matches of a probe
are one contiguous run: counting them costs nothing. `pairs` turns runs into pairs of row indices, in bounded chunks.
`group_rows` groups rows once, where no index is kept.

Invariant: `rows` is a permutation of the segment's rows; equal codes are contiguous and ascending in time. The chunks of one call of `pairs`, laid
end to end, hold every pair of every run exactly once, and no chunk holds more than `limit` pairs, however hot one key is.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1.2, HW-join.
Departs from the paper: buckets are kept in time order, so a period is bisected rather than scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix


class HashIndex(NamedTuple):
    """An index over one segment; build it with `build`."""

    slots: np.ndarray
    group_code: np.ndarray
    group_start: np.ndarray
    rows: np.ndarray
    times: np.ndarray

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self)

    @property
    def groups(self) -> int:
        return len(self.group_code)


def address(array: np.ndarray) -> int:
    """Where an array's data lie."""
    return int(array.__array_interface__["data"][0])


@dataclass
class Coded:
    """A column that may hold NULLs as codes: where it is valid (None: everywhere), and the index of the valid rows."""

    codes: np.ndarray
    valid: np.ndarray | None
    index: HashIndex | None

    @cached_property
    def hints(self) -> np.ndarray | None:
        """By group of the index a position to begin a search at; kernels move it."""
        return None if self.index is None else self.index.group_start.copy()

    @cached_property
    def addresses(self) -> tuple[int, int, tuple[int, ...]]:
        """Where codes and validity lie, and the index: slots, group codes, group starts, rows, times; the mask of the slots; hints. 0 is nothing."""
        valid = 0 if self.valid is None else address(self.valid)
        if self.index is None or self.hints is None:
            return address(self.codes), valid, (0,) * 7
        index = (*map(address, self.index), len(self.index[0]) - 1, address(self.hints))
        return address(self.codes), valid, index

    @property
    def nbytes(self) -> int:
        index = 0 if self.index is None else self.index.nbytes
        return self.codes.nbytes + index + (0 if self.valid is None else self.valid.nbytes)


def build(codes: np.ndarray, ts: np.ndarray) -> HashIndex:
    """Index rows by code, then time.

    >>> index = build(np.array([5, 3, 5]), np.array([20, 10, 10]))
    >>> first, count = probe(index, np.array([5, 4]), np.array([0, 0]), np.array([15, 15]))
    >>> count.tolist(), index.rows[first[0]].item()
    ([1, 0], 2)
    """
    order = np.argsort(ts, kind="stable") if len(ts) > 1 and np.any(ts[1:] < ts[:-1]) else np.arange(len(ts))
    return HashIndex(*_build(np.ascontiguousarray(codes), np.ascontiguousarray(ts), order))


def probe(index: HashIndex, codes: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every probe the first position and the number of rows with its code and lo <= ts <= hi."""
    return _probe(index.slots, index.group_code, index.group_start, index.times, codes, lo, hi)


def group_rows(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
    """The rows that have each number, in order; None if all have the same.

    >>> [(n, rows.tolist()) for n, rows in group_rows(np.array([5, 2, 5]))]
    [(2, [1]), (5, [0, 2])]
    """
    if len(numbers) == 0:
        return
    if np.all(numbers == numbers[0]):
        yield int(numbers[0]), None
        return
    order = np.argsort(
        numbers.astype(np.uint16) if numbers.min() >= 0 and numbers.max() < 2**16 else numbers, kind="stable"
    )
    found, begins = np.unique(numbers[order], return_index=True)
    for number, begin, end in zip(found.tolist(), begins, [*begins[1:], len(order)], strict=True):
        yield number, order[begin:end]


@kernel(
    "Tuple((int32[::1], int64[::1], int64[::1], int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1])",
)
def _build(codes, ts, order):  # type: ignore[no-untyped-def]
    n = len(codes)
    capacity = 16
    while capacity < 2 * n:
        capacity *= 2
    mask = uint64(capacity - 1)
    slots = np.full(capacity, -1, np.int32)
    group_code = np.empty(n, np.int64)
    group_of = np.empty(n, np.int32)
    count = np.zeros(n + 1, np.int64)
    groups = 0
    # 1. Find or found the group of every row.
    for i in range(n):
        code = codes[i]
        at = mix(uint64(code)) & mask
        while True:
            g = slots[at]
            if g == -1:
                g = groups
                slots[at] = g
                group_code[g] = code
                groups += 1
                break
            if group_code[g] == code:
                break
            at = (at + uint64(1)) & mask
        group_of[i] = g
        count[g + 1] += 1
    # 2. Turn counts into starts.
    start = np.empty(groups + 1, np.int64)
    start[0] = 0
    for g in range(groups):
        start[g + 1] = start[g] + count[g + 1]
    # 3. Deal the rows out in time order: stable, so every group is ascending in time.
    rows = np.empty(n, np.int64)
    times = np.empty(n, np.int64)
    fill = start.copy()
    for j in range(n):
        i = order[j]
        at2 = fill[group_of[i]]
        rows[at2] = i
        times[at2] = ts[i]
        fill[group_of[i]] += 1
    return slots, group_code[:groups].copy(), start, rows, times


@kernel(
    "Tuple((int64[::1], int64[::1]))(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _probe(slots, group_code, group_start, times, codes, lo, hi):  # type: ignore[no-untyped-def]
    n = len(codes)
    first = np.zeros(n, np.int64)
    count = np.zeros(n, np.int64)
    mask = uint64(len(slots) - 1)
    for i in range(n):
        code = codes[i]
        at = mix(uint64(code)) & mask
        g = slots[at]
        while g != -1 and group_code[g] != code:
            at = (at + uint64(1)) & mask
            g = slots[at]
        if g == -1 or lo[i] > hi[i]:
            continue
        left, right = group_start[g], group_start[g + 1]
        end = right
        while left < right:
            mid = (left + right) >> 1
            if times[mid] < lo[i]:
                left = mid + 1
            else:
                right = mid
        begin, right = left, end
        while left < right:
            mid = (left + right) >> 1
            if times[mid] <= hi[i]:
                left = mid + 1
            else:
                right = mid
        first[i] = begin
        count[i] = left - begin
    return first, count


def pairs(
    first: np.ndarray, count: np.ndarray, rows: np.ndarray, limit: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of (probe_idx, row_idx) for runs of `count` positions from `first` in `rows`.

    >>> [(p.tolist(), r.tolist()) for p, r in pairs(np.array([0, 1]), np.array([2, 1]), np.array([7, 8]), 2)]
    [([0, 0], [7, 8]), ([1], [8])]
    """
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, limit):
        yield _pairs(first, count, ends, rows, begin, min(begin + limit, total))


def rows_with(index: HashIndex, codes: np.ndarray) -> np.ndarray:
    """The rows that have one of these codes, which are all different, whatever their times.

    >>> rows_with(build(np.array([7, 8, 7, 9]), np.zeros(4, np.int64)), np.array([7, 5])).tolist()
    [0, 2]
    """
    ever = np.full(len(codes), np.iinfo(np.int64).max)
    first, count = probe(index, codes, ~ever, ever)
    found = [rows for _, rows in pairs(first, count, index.rows, max(int(count.sum()), 1))]
    return found[0] if found else np.empty(0, np.int64)


@kernel("Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)")
def _pairs(first, count, ends, rows, begin, end):  # type: ignore[no-untyped-def]
    probe_idx = np.empty(end - begin, np.int64)
    row_idx = np.empty(end - begin, np.int64)
    i = np.searchsorted(ends, begin, side="right")
    at = begin
    while at < end:
        offset = at - (ends[i] - count[i])
        stop = min(end, ends[i])
        position = first[i] + offset
        for j in range(at, stop):
            probe_idx[j - begin] = i
            row_idx[j - begin] = rows[position]
            position += 1
        at = stop
        i += 1
    return probe_idx, row_idx
