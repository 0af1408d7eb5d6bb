"""Nested-loop window join (NLW): every pair inside the period, whatever the predicate.

The buffer is kept in time order, so the period of a probe is found by bisection and only rows inside it are paired.

Invariant: `rows` is a permutation of the segment's rows, ascending in time.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1.1, NLW-join.
Departs from the paper: the paper scans the buffer and tests each tuple against the period; we bisect.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TimeIndex(NamedTuple):
    """One segment in time order; build it with `build`."""

    rows: np.ndarray
    times: np.ndarray

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.times.nbytes)

    @property
    def groups(self) -> int:
        return 1


def build(ts: np.ndarray) -> TimeIndex:
    """Order a segment by time."""
    rows = np.argsort(ts, kind="stable")
    return TimeIndex(rows, ts[rows])


def probe(index: TimeIndex, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every probe the first position and the number of rows with lo <= ts <= hi.

    >>> probe(build(np.array([30, 10, 20])), np.array([10, 25]), np.array([20, 26]))[1].tolist()
    [2, 0]
    """
    first = np.searchsorted(index.times, lo, side="left")
    last = np.searchsorted(index.times, hi, side="right")
    return first.astype(np.int64), np.maximum(last - first, 0).astype(np.int64)
