"""Unit ids that Spark spreads evenly.

Spark places a group by pmod(murmur3(id), partitions). With ids 0, 1, 2, ... some partitions get two units and others
none. Here unit i gets an id whose hash is congruent to i modulo a number that all usual partition counts divide, so
units are spread evenly, whatever the number of partitions.

Invariant: `labels(n)` is a prefix of `labels(m)` for n < m; it depends on nothing else.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

MODULUS = 201_600
"""2^7 * 3^2 * 5^2 * 7: divisible by 1 to 10, 12, 14 to 16, 18, 20, 24, 32, 48, 64, 96, 100, 128, 200, 400, ..."""


@lru_cache
def labels(units: int) -> tuple[int, ...]:
    """Ids of `units` units.

    >>> [spark_hash(np.array([label]))[0] % 4 for label in labels(6)] == [0, 1, 2, 3, 0, 1]
    True
    """
    found: dict[int, int] = {}
    for begin in range(0, 2**31, 2**20):
        ids = np.arange(begin, begin + 2**20, dtype=np.int64)
        residue = spark_hash(ids).astype(np.int64) % MODULUS
        for at in np.flatnonzero(residue < units):
            found.setdefault(int(residue[at]), int(ids[at]))
        if len(found) == units:
            break
    return tuple(found[i] for i in range(units))


def spark_hash(ids: np.ndarray) -> np.ndarray:
    """Spark's murmur3 of a bigint, seed 42, as signed 32 bits.

    >>> int(spark_hash(np.array([1]))[0])
    -1712319331
    """
    word = ids.astype(np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        h = np.full(len(ids), 42, np.uint32)
        for k in ((word & np.uint64(0xFFFFFFFF)).astype(np.uint32), (word >> np.uint64(32)).astype(np.uint32)):
            k = k * np.uint32(0xCC9E2D51)
            k = (k << np.uint32(15)) | (k >> np.uint32(17))
            h = h ^ (k * np.uint32(0x1B873593))
            h = (h << np.uint32(13)) | (h >> np.uint32(19))
            h = h * np.uint32(5) + np.uint32(0xE6546B64)
        h = h ^ np.uint32(8)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32)
