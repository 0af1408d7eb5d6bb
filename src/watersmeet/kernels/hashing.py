"""64-bit codes: what the join loops see instead of values.

Invariant: equal values have equal codes, in every process and on every machine; `order_floats` and
`order_bytes` also keep their order.
Codes of bytes may collide, so code that matches by them compares the values.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint8, uint64
from numba.types import Array

from watersmeet.kernels.compiled import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_PRIME = np.uint64(0x100000001B3)
_OFFSET = np.uint64(0xCBF29CE484222325)


@kernel("uint64(uint64)", inline="always")
def mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64: every input bit moves about half of the output bits."""
    x = uint64(x + _GOLDEN)
    x = uint64((x ^ (x >> uint64(30))) * _MIX1)
    x = uint64((x ^ (x >> uint64(27))) * _MIX2)
    return uint64(x ^ (x >> uint64(31)))


@kernel("int64[:](int64[:], int64[:])")
def combine(seed, codes):  # type: ignore[no-untyped-def]
    """Fold another column of codes into a running hash."""
    out = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        out[i] = np.int64(mix(uint64(seed[i]) ^ mix(uint64(codes[i]))))
    return out


@kernel([int64[:](int64[:], Array(uint8, 1, "C", readonly=True))])
def hash_bytes(offsets, data):  # type: ignore[no-untyped-def]
    """Codes of variable-length values: FNV-1a over eight bytes at a time, then mixed."""
    n = len(offsets) - 1
    out = np.empty(n, np.int64)
    for i in range(n):
        start, end = offsets[i], offsets[i + 1]
        h = uint64(_OFFSET ^ uint64(end - start))
        at = start
        while at + 8 <= end:
            word = uint64(0)
            for b in range(8):
                word |= uint64(data[at + b]) << uint64(8 * b)
            h = uint64((h ^ word) * _PRIME)
            h = uint64(h ^ (h >> uint64(29)))
            at += 8
        while at < end:
            h = uint64((h ^ uint64(data[at])) * _PRIME)
            at += 1
        out[i] = np.int64(mix(h))
    return out


@kernel([int64[:](int64[:], Array(uint8, 1, "C", readonly=True))])
def order_bytes(offsets, data):  # type: ignore[no-untyped-def]
    """Codes of variable-length values that keep the order of their first eight bytes; what is shorter is filled up with zeros."""
    n = len(offsets) - 1
    out = np.empty(n, np.int64)
    for i in range(n):
        word = uint64(0)
        for b in range(8):
            word <<= uint64(8)
            if offsets[i] + b < offsets[i + 1]:
                word |= uint64(data[offsets[i] + b])
        out[i] = np.int64(word ^ (uint64(1) << uint64(63)))
    return out


def order_floats(values: np.ndarray) -> np.ndarray:
    """Codes of floats that keep Spark's order: -0.0 equals 0.0, NaN equals NaN and is greater than all else.

    >>> codes = order_floats(np.array([np.nan, -1.5, -0.0, 0.0, np.inf]))
    >>> [int(i) for i in np.argsort(codes, kind="stable")], bool(codes[2] == codes[3])
    ([1, 2, 3, 4, 0], True)
    """
    normal = values.astype(np.float64, copy=True)
    normal[normal == 0.0] = 0.0
    normal[np.isnan(normal)] = np.nan
    bits = normal.view(np.int64)
    return np.where(bits < 0, np.int64(-0x8000000000000000) - bits - 1, bits)
