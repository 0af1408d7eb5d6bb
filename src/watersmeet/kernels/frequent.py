"""The most frequent codes of a sample, by a small table of counts.

    codes   c c a c b c ... a c c b      one position out of each run of `step`, at a pseudo-random place in it
    table   c: 5   a: 2   b: 2           those that come more than once, and in more than one of `rarest` positions

Invariant: a function of the codes alone. A code that is not told of came at most once in the sample, or in at most one of `rarest` of its positions.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix

SLOTS = 1024
"""Of the table: twice the positions of a sample at least."""
MOST_SAMPLED = SLOTS // 2


@kernel("int64[::1](int64, int64)")
def sample_positions(rows, most):  # type: ignore[no-untyped-def]
    """At most so many of the positions of `rows` rows, spread evenly; inside a run of positions any may be taken, so that no period of the rows is met.

    >>> sample_positions(4, 8).tolist(), len(sample_positions(1000, 100))
    ([0, 1, 2, 3], 100)
    """
    step = max(1, -(-rows // most))
    out = np.empty(-(-rows // step), np.int64)
    for i in range(len(out)):
        run = min(step, rows - i * step)
        out[i] = i * step + (0 if run == 1 else np.int64(mix(uint64(i)) % uint64(run)))
    return out


@kernel("Tuple((int64[::1], int64[::1]))(int64[:], int64)")
def find_frequent(codes, rarest):  # type: ignore[no-untyped-def]
    """Positions of the first of each code that is frequent, and how often it comes; in the order of the positions. At most MOST_SAMPLED codes.

    >>> [found.tolist() for found in find_frequent(np.array([7, 5, 7, 6, 7, 5]), 3)]
    [[0], [3]]
    """
    first = np.full(SLOTS, -1, np.int32)
    counts = np.zeros(SLOTS, np.int32)
    enough, frequent = max(2, len(codes) // rarest + 1), 0
    for i in range(len(codes)):
        slot = np.int64(mix(uint64(codes[i])) & uint64(SLOTS - 1))
        while first[slot] >= 0 and codes[first[slot]] != codes[i]:
            slot = np.int64((slot + 1) & (SLOTS - 1))
        if first[slot] < 0:
            first[slot] = i
        counts[slot] += 1
        frequent += counts[slot] == enough
    at, often = np.empty(frequent, np.int64), np.empty(frequent, np.int64)
    found = 0
    for place in range(SLOTS if frequent else 0):
        if counts[place] >= enough:
            at[found], often[found] = first[place], counts[place]
            found += 1
    in_order = np.argsort(at)
    return at[in_order], often[in_order]
