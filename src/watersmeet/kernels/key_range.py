"""Key and range in one index: the distinct pairs of a key and a value, in order, and of each the rows by time.

    keys     3          7                distinct, ascending
    values   1   4  9   2   4            of each key, distinct and ascending
    rank     0   1  2   3   4            an index of `sorted_window` has the rows of every rank, in time order

A probe asks for one key, a range of values and a period. Inside its key the range is a run of ranks, so what it asks the index for is a
range of ranks and the period. A second column that rises with the values of each key bounds the run from its own values, as `narrow` does.

Invariant: a rank stands for one pair (key, value), and ranks ascend as pairs do; a run holds every row of its key whose value is in range, and no other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels import sorted_window
from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.sorted_window import BOTTOM, TOP, SortedIndex, Steps


class KeyRangeIndex(NamedTuple):
    """An index over one segment; build it with `build`."""

    keys: np.ndarray
    starts: np.ndarray
    """Where each key's ranks begin, and where the last one's end."""
    values: np.ndarray
    ranks: SortedIndex

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.starts.nbytes + self.values.nbytes) + self.ranks.nbytes


def build(keys: np.ndarray, values: np.ndarray, ts: np.ndarray) -> KeyRangeIndex:
    """Index rows by key, value and time; values are codes that keep order.

    >>> index = build(np.array([7, 3, 3, 7]), np.array([4, 9, 1, 4]), np.array([20, 0, 0, 10]))
    >>> index.keys.tolist(), index.starts.tolist(), index.values.tolist(), index.ranks.rows.tolist()
    ([3, 7], [0, 2, 3], [1, 9, 4], [2, 1, 3, 0])
    """
    order = np.lexsort((values, keys))
    key, value = keys[order], values[order]
    is_new_key = np.ones(len(key), np.bool_)
    is_new_key[1:] = key[1:] != key[:-1]
    is_new = is_new_key.copy()
    is_new[1:] |= value[1:] != value[:-1]
    rank = np.cumsum(is_new) - 1
    ranks = np.empty(len(rank), np.int64)
    ranks[order] = rank
    starts = np.append(rank[is_new_key], int(is_new.sum()))
    return KeyRangeIndex(key[is_new_key], starts, value[is_new], sorted_window.build(ranks, ts))


def steps(index: KeyRangeIndex, codes: np.ndarray) -> Steps | None:
    """What a second column has for each rank; None if it does not rise with the values of every key."""
    ordered = codes[index.ranks.rows]
    least, most = (f.reduceat(ordered, index.ranks.starts[:-1]) for f in (np.minimum, np.maximum))
    inside = np.ones(max(len(least) - 1, 0), np.bool_)
    inside[index.starts[1:-1] - 1] = False
    rises = np.all((least[1:] >= least[:-1])[inside]) and np.all((most[1:] >= most[:-1])[inside])
    return Steps(least, most) if rises else None


def find_keys(index: KeyRangeIndex, keys: np.ndarray) -> np.ndarray:
    """The number of every probe's key; -1 if the index does not have it."""
    at = np.minimum(np.searchsorted(index.keys, keys), len(index.keys) - 1)
    return np.where(index.keys[at] == keys, at, -1)


def find_ranks(
    index: KeyRangeIndex, keys: np.ndarray, lo: np.ndarray, hi: np.ndarray, second: Steps | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last rank of every probe's key in a range of values, or of a second column; first > last is nothing.

    >>> index = build(np.array([7, 3, 3, 7]), np.array([4, 9, 1, 4]), np.array([20, 0, 0, 10]))
    >>> probes = np.array([3, 3, 5, 7]), np.array([0, 2, 0, 5]), np.array([9, 9, 9, 9])
    >>> [a.tolist() for a in find_ranks(index, find_keys(index, probes[0]), *probes[1:])]
    [[0, 1, 9223372036854775807, 9223372036854775807], [1, 1, -9223372036854775808, -9223372036854775808]]
    """
    least, most = (index.values, index.values) if second is None else (second.least, second.most)
    return _find_ranks(index.starts, least, most, keys, lo, hi)


@kernel(
    "Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _find_ranks(starts, least, most, keys, lo, hi):  # type: ignore[no-untyped-def]
    n = len(keys)
    first, last = np.full(n, TOP), np.full(n, BOTTOM)
    for i in range(n):
        if keys[i] < 0 or lo[i] > hi[i]:
            continue
        begin, end = starts[keys[i]], starts[keys[i] + 1]
        # 1. The first rank that reaches up to the range.
        left, right = begin, end
        while left < right:
            mid = (left + right) >> 1
            if most[mid] < lo[i]:
                left = mid + 1
            else:
                right = mid
        from_rank = left
        # 2. The first rank after it that is wholly above.
        right = end
        while left < right:
            mid = (left + right) >> 1
            if least[mid] <= hi[i]:
                left = mid + 1
            else:
                right = mid
        if left > from_rank:
            first[i], last[i] = from_rank, left - 1
    return first, last
