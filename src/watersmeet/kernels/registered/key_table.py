"""Open addressing over 64-bit keys, in arrays that a caller owns and grows.

    slots   [-1, 2, -1, 0, 1, ...]     where a key's hash leads: the number of an entry, or -1
    entries [KEY, ...]                 one line per key, in order of first use

Invariant: `slots` has a power of two of places, never more than two thirds of them taken; callers make room before they insert.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix

KEY, FIRST_ROW, FIRST_TUPLE = range(3)
"""Columns of a key's entry: the heads of its chains of rows and of tuples. Those that follow are the caller's, and begin as zeros."""
KEY_WIDTH = 3
_ATTRIBUTE, _VALUE = uint64(0x41545452), uint64(0x56414C55)


@kernel("int64(int64, int64)")
def attribute_key(stream, column):  # type: ignore[no-untyped-def]
    """The key of relation + attribute."""
    return np.int64(mix(mix(_ATTRIBUTE ^ mix(uint64(stream))) ^ uint64(column)))


@kernel("int64(int64, int64, int64)")
def value_key(stream, column, value):  # type: ignore[no-untyped-def]
    """The key of relation + attribute + value."""
    return np.int64(mix(mix(mix(_VALUE ^ mix(uint64(stream))) ^ uint64(column)) ^ uint64(value)))


@kernel("int64(int64[::1], int64[:, ::1], int64)")
def find(slots, entries, key):  # type: ignore[no-untyped-def]
    """The entry of a key, or -1."""
    mask = uint64(len(slots) - 1)
    at = mix(uint64(key)) & mask
    while True:
        e = slots[at]
        if e == -1 or entries[e, KEY] == key:
            return e
        at = (at + uint64(1)) & mask


@kernel("int64(int64[::1], int64[:, ::1], int64[::1], int64)")
def enter(slots, entries, count, key):  # type: ignore[no-untyped-def]
    """The entry of a key, made if there is none."""
    mask = uint64(len(slots) - 1)
    at = mix(uint64(key)) & mask
    while True:
        e = slots[at]
        if e == -1:
            e = count[0]
            count[0] += 1
            slots[at] = e
            entries[e, KEY] = key
            entries[e, FIRST_ROW] = -1
            entries[e, FIRST_TUPLE] = -1
            entries[e, KEY_WIDTH:] = 0
            return e
        if entries[e, KEY] == key:
            return e
        at = (at + uint64(1)) & mask


@kernel("void(int64[::1], int64[:, ::1], int64)")
def rehash(slots, entries, count):  # type: ignore[no-untyped-def]
    """Fill empty slots with all entries."""
    mask = uint64(len(slots) - 1)
    for e in range(count):
        at = mix(uint64(entries[e, KEY])) & mask
        while slots[at] != -1:
            at = (at + uint64(1)) & mask
        slots[at] = e
