"""Instants and spans: event times are any 64-bit numbers of microseconds, so their sums saturate instead of wrapping.

    FIRST <------------ ts - hi ---- ts ---- ts + hi ------------> LAST         about 292,000 years either way

A span of NO_BOUND or more is no bound: from any instant it reaches the end of time. Time alone says which tuples have a window partner at all
(`mark`), before any predicate is looked at:

    times      . .    . .  .            . .          ascending, of another stream
    tuple          [--x--]     [--x--]               its period: the first has a partner, the second has none

Invariant: x.ts + lo <= y.ts <= x.ts + hi is decided as in whole numbers of any size, except for an instant that is FIRST or LAST
itself: a sum beyond the end of time is the end of time. A tuple is marked if and only if some time lies in its period.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.2, mode 1, for one stream against another.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiled import kernel

FIRST, LAST = -(2**63), 2**63 - 1
NO_BOUND = 2**62


@kernel("int64(int64, int64)")
def shift_instant(ts, by):  # type: ignore[no-untyped-def]
    """An instant, moved by a span.

    >>> shift_instant(5, -7), shift_instant(LAST - 1, 3) == LAST, shift_instant(0, -NO_BOUND) == FIRST
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


def add_span(ts: int, by: int) -> int:
    """One instant, moved by a span of any length.

    >>> add_span(5, 7), add_span(5, -(2**70)) == FIRST
    (12, True)
    """
    return min(max(ts + by, FIRST), LAST)


AHEAD = 16
"""How many times a partner that will serve several tuples is further ahead than the first."""


@kernel("int64(int64[::1], int64[::1], int64, int64, int64[::1], boolean[::1])")
def mark(ts, rows, lo, hi, times, marked):  # type: ignore[no-untyped-def]
    """Mark rows with lo <= t - ts <= hi for a t of `times`; how many are marked now, of these rows.

    >>> import numpy as np
    >>> marked = np.zeros(3, np.bool_)
    >>> mark(np.array([10, 20, 30]), np.arange(3), -2, 2, np.array([5, 12, 33]), marked), marked.tolist()
    (1, [True, False, False])
    """
    n, at, total = len(times), 0, 0
    for row in rows:
        if not marked[row]:
            low, high = shift_instant(ts[row], lo), shift_instant(ts[row], hi)
            # 1. Any partner will do: often it is that of the tuple before.
            if at == n or times[at] < low or times[at] > high:
                # 2. Gallop to the first time that is not below the period.
                step = 1
                if at < n and times[at] < low:
                    left = at + 1
                    while left + step <= n and times[left + step - 1] < low:
                        left += step
                        step += step
                    right = min(n, left + step - 1)
                else:
                    right = at
                    while right - step >= 0 and times[right - step] >= low:
                        right -= step
                        step += step
                    left = max(0, right - step)
                while left < right:
                    mid = (left + right) >> 1
                    if times[mid] < low:
                        left = mid + 1
                    else:
                        right = mid
                at = left
                # 3. One further ahead, if it is in the period too, will serve more tuples.
                if at + AHEAD < n and times[at + AHEAD] <= high:
                    at += AHEAD
            marked[row] = at < n and times[at] <= high
        total += marked[row]
    return total
