"""The placement hash: which of n units a row goes to. It is Spark's `hash`, so SQL and these kernels place a row alike.

    hash of values v1, v2, ...     h(v2, h(v1, 42))          h is Murmur3, 32 bits, of one value, with a seed; NULL leaves the seed as it is
    unit among n                   the hash modulo n, from 0 to n - 1

`place_in_sql` writes the same as SQL. A row's whole content is placed by a 64-bit hash of it, as one bigint.

Invariant: for values of every type that keys have, the unit is that of `pmod(hash(...), n)` in Spark. The hash is another one than hash
tables use, so the keys of one unit fill its tables evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import int64, uint8, uint32
from numba.types import Array

from watersmeet.kernels.compiled import kernel

SEED = 42
"""What the hash of every row begins with."""
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _ADDED = np.uint32(5), np.uint32(0xE6546B64)


def place_in_sql(columns: Sequence[str], n: int) -> str:
    """The unit among n as SQL over columns; of arrays of hashes it is `hashes % n`.

    >>> (hash_codes(np.array([1, 2, 3])) % 10).tolist(), place_in_sql(["k0"], 10)
    ([9, 8, 7], 'pmod(hash(k0), 10)')
    """
    return f"pmod(hash({', '.join(columns)}), {n})"


def hash_codes(codes: np.ndarray) -> np.ndarray:
    """The hash of one bigint in every row."""
    return hash_longs(np.full(len(codes), SEED, np.int64), codes)


@kernel("uint32(uint32, uint32)", inline="always")
def _mix_in(h, word):  # type: ignore[no-untyped-def]
    """Murmur3's step: four more bytes."""
    k = uint32(word * _C1)
    k = uint32((k << uint32(15)) | (k >> uint32(17)))
    h = uint32(h ^ uint32(k * _C2))
    h = uint32((h << uint32(13)) | (h >> uint32(19)))
    return uint32(uint32(h * _FIVE) + _ADDED)


@kernel("int64(uint32, uint32)", inline="always")
def _finish(h, length):  # type: ignore[no-untyped-def]
    """Murmur3's end, as a signed number."""
    h = uint32(h ^ length)
    h = uint32(uint32(h ^ (h >> uint32(16))) * _M1)
    h = uint32(uint32(h ^ (h >> uint32(13))) * _M2)
    h = uint32(h ^ (h >> uint32(16)))
    return int64(h) - ((int64(h) >> 31) << 32)


@kernel("int64[:](int64[:], int64[:])")
def hash_ints(seeds, values):  # type: ignore[no-untyped-def]
    """Values of 32 bits or fewer: booleans, dates, small whole numbers, the bits of floats."""
    out = np.empty(len(values), np.int64)
    for i in range(len(values)):
        out[i] = _finish(_mix_in(uint32(seeds[i]), uint32(values[i])), uint32(4))
    return out


@kernel("int64[:](int64[:], int64[:])")
def hash_longs(seeds, values):  # type: ignore[no-untyped-def]
    """Values of 64 bits: bigints, times, intervals, decimals of up to 18 digits, the bits of doubles."""
    out = np.empty(len(values), np.int64)
    for i in range(len(values)):
        low = _mix_in(uint32(seeds[i]), uint32(values[i]))
        out[i] = _finish(_mix_in(low, uint32(values[i] >> 32)), uint32(8))
    return out


@kernel([int64[:](int64[:], int64[:], Array(uint8, 1, "C", readonly=True))])
def hash_texts(seeds, offsets, data):  # type: ignore[no-untyped-def]
    """Texts and bytes: words of four bytes, then the bytes that are left, each as a signed number."""
    out = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        h = uint32(seeds[i])
        while at + 4 <= end:
            word = uint32(0)
            for b in range(4):
                word = uint32(word | (uint32(data[at + b]) << uint32(8 * b)))
            h = _mix_in(h, word)
            at += 4
        while at < end:
            byte = int64(data[at])
            h = _mix_in(h, uint32(byte - ((byte >> 7) << 8)))
            at += 1
        out[i] = _finish(h, uint32(end - offsets[i]))
    return out


@kernel("uint8[:](int64[:], int64[:], int64[:])")
def write_big_endian(low, high, offsets):  # type: ignore[no-untyped-def]
    """128-bit numbers as the fewest bytes of two's complement, the first the highest; `offsets` gets where each begins."""
    data = np.empty(16 * len(low), np.uint8)
    at = 0
    for i in range(len(low)):
        offsets[i] = at
        negative = high[i] < 0
        used = 1
        for b in range(16):
            word = high[i] if b >= 8 else low[i]
            byte = (word >> (8 * (b % 8))) & 0xFF
            if byte != (0xFF if negative else 0):
                used = b + 1 + (1 if (byte >= 0x80) != negative else 0)
        for b in range(used - 1, -1, -1):
            word = high[i] if b >= 8 else low[i]
            data[at] = (word >> (8 * (b % 8))) & 0xFF
            at += 1
    offsets[len(low)] = at
    return data[:at]
