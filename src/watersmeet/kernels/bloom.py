"""Bloom filters of codes.

Invariant: every value that was put in passes; filters of the same values are the same bytes, in every process.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix


def build(codes: np.ndarray, size: int, hashes: int) -> np.ndarray:
    """The filter of codes, in so many bytes; an empty one passes nothing.

    >>> bits = build(np.array([3, 5]), 4, 11)
    >>> find_passing(bits, np.array([3, 4, 5]), 11).tolist()
    [True, False, True]
    """
    return _build(np.ascontiguousarray(codes, np.int64), size, hashes)


def find_passing(bits: np.ndarray, codes: np.ndarray, hashes: int) -> np.ndarray:
    """Which codes pass."""
    return _find_passing(bits, np.ascontiguousarray(codes, np.int64), hashes)


@kernel("uint8[::1](int64[::1], int64, int64)")
def _build(codes, size, hashes):  # type: ignore[no-untyped-def]
    bits = np.zeros(size, np.uint8)
    for i in range(len(codes)):
        h = mix(uint64(codes[i]))
        step = mix(h) | uint64(1)
        for _ in range(hashes):
            at = h % uint64(size * 8)
            bits[at >> uint64(3)] |= np.uint8(1) << np.uint8(at & uint64(7))
            h = uint64(h + step)
    return bits


@kernel("boolean[::1](uint8[::1], int64[::1], int64)")
def _find_passing(bits, codes, hashes):  # type: ignore[no-untyped-def]
    out = np.zeros(len(codes), np.bool_)
    size = uint64(len(bits) * 8)
    if size == uint64(0):
        return out
    for i in range(len(codes)):
        h = mix(uint64(codes[i]))
        step = mix(h) | uint64(1)
        passes = True
        for _ in range(hashes):
            at = h % size
            if not (bits[at >> uint64(3)] >> np.uint8(at & uint64(7))) & np.uint8(1):
                passes = False
                break
            h = uint64(h + step)
        out[i] = passes
    return out
