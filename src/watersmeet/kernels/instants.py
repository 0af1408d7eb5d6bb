"""Instants and spans: event times are any 64-bit numbers of microseconds, so their sums saturate instead of wrapping.

    FIRST <------------ ts - hi ---- ts ---- ts + hi ------------> LAST         about 292,000 years either way

A span of NO_BOUND or more is no bound: from any instant it reaches the end of time.

Invariant: x.ts + lo <= y.ts <= x.ts + hi is decided as in whole numbers of any size, except for an instant that is FIRST or LAST
itself: a sum beyond the end of time is the end of time.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiled import kernel

FIRST, LAST = -(2**63), 2**63 - 1
NO_BOUND = 2**62


@kernel("int64(int64, int64)")
def shifted(ts, by):  # type: ignore[no-untyped-def]
    """An instant, moved by a span.

    >>> shifted(5, -7), shifted(LAST - 1, 3) == LAST, shifted(0, -NO_BOUND) == FIRST
    (-2, True, True)
    """
    if by >= NO_BOUND:
        return np.int64(LAST)
    if by <= -NO_BOUND:
        return np.int64(FIRST)
    # Tested before the sum: compiled code takes it for granted that no sum wraps.
    if by > 0 and ts > LAST - by:
        return np.int64(LAST)
    if by < 0 and ts < FIRST - by:
        return np.int64(FIRST)
    return ts + by


def shift(ts: np.ndarray, by: int | np.ndarray) -> np.ndarray:
    """Instants, moved by a span, or each by its own.

    >>> shift(np.array([5, LAST]), 7).tolist() == [12, LAST], shift(np.array([5, 5]), np.array([-1, NO_BOUND])).tolist() == [4, LAST]
    (True, True)
    """
    if isinstance(by, np.ndarray):
        moved = np.where(by >= 0, np.minimum(ts, LAST - by) + by, np.maximum(ts, FIRST - by) + by)
        return np.where(by >= NO_BOUND, LAST, np.where(by <= -NO_BOUND, FIRST, moved))
    if abs(by) >= NO_BOUND:
        return np.full(len(ts), LAST if by > 0 else FIRST)
    return np.minimum(ts, LAST - by) + by if by >= 0 else np.maximum(ts, FIRST - by) + by


def moved(ts: int, by: int) -> int:
    """One instant, moved by a span of any length.

    >>> moved(5, 7), moved(5, -(2**70)) == FIRST
    (12, True)
    """
    return min(max(ts + by, FIRST), LAST)
