"""Which tuples have a window partner at all, by time alone: what MW knows before it looks at any predicate.

    times      . .    . .  .            . .          ascending, of another stream
    tuple          [--x--]     [--x--]               its period: the first has a partner, the second has none

Invariant: a tuple is marked if and only if some time lies in its period. Tuples mostly come in time order, and then the
place of one's period is near that of the one before: it is found by galloping from there.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.2, mode 1, for one stream against another.
"""

from __future__ import annotations

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import shifted

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
            low, high = shifted(ts[row], lo), shifted(ts[row], hi)
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
