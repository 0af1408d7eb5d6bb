"""From runs of matches to pairs of row indices, in bounded chunks.

Invariant: the chunks of one call, laid end to end, hold every pair of every run exactly once, and no chunk holds more
than `limit` pairs, however hot one key is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from watersmeet.kernels.compiled import kernel


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
