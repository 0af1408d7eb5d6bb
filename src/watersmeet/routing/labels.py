"""Unit ids that Spark spreads evenly.

Spark places a group by the placement hash of its id, see `kernels.placement`. With ids 0, 1, 2, ... some partitions get two units and others
none. Here unit i gets an id whose hash is congruent to i modulo a number that all usual partition counts divide, so
units are spread evenly, whatever the number of partitions.

Invariant: `labels(n)` is a prefix of `labels(m)` for n < m; it depends on nothing else.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from watersmeet.kernels.placement import hash_codes

MODULUS = 201_600
"""2^7 * 3^2 * 5^2 * 7: divisible by 1 to 10, 12, 14 to 16, 18, 20, 24, 32, 48, 64, 96, 100, 128, 200, 400, ..."""


@lru_cache
def labels(units: int, modulus: int = MODULUS) -> tuple[int, ...]:
    """Ids of `units` units: the least whose hashes are congruent to their numbers.

    >>> [hash_codes(np.array([label]))[0] % 4 for label in labels(6)] == [0, 1, 2, 3, 0, 1]
    True
    """
    found: dict[int, int] = {}
    for begin in range(0, 2**31, 2**20):
        ids = np.arange(begin, begin + 2**20, dtype=np.int64)
        residue = hash_codes(ids) % modulus
        wanted = np.flatnonzero(residue < units)
        met, first = np.unique(residue[wanted], return_index=True)
        found = dict(zip(met.tolist(), ids[wanted[first]].tolist(), strict=True)) | found
        if len(found) == units:
            break
    return tuple(found[i] for i in range(units))
