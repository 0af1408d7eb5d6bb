"""Open addressing over 64-bit keys, in arrays that a caller owns and grows.

    slots   [-1, 2, -1, 0, 1, ...]     where a key's hash leads: the number of an entry, or -1
    entries [KEY, ...]                 one line per key, in order of first use

Beside it the candidate table: entries of (node, key) that lie in the slots themselves.

Invariant: `slots` has a power of two of places, never more than two thirds of them taken; callers make room before they insert.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix

KEY, FIRST_ROW, FIRST_TUPLE, PERIOD, NOW, BEFORE = range(6)
"""Columns of a key's entry: the heads of its chains of rows and of tuples, and the tuples of this and the last period."""
KEY_WIDTH = 6
NODE, CANDIDATE, RATE, LEARNED, ADDRESS = range(5)
"""Columns of the candidate table; NODE is -1 where nothing is."""
CANDIDATE_WIDTH = 5
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
            entries[e, PERIOD] = -2
            entries[e, NOW] = 0
            entries[e, BEFORE] = 0
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


@kernel("void(int64[:, ::1], int64, int64, int64)")
def count_arrival(entries, e, now, period):  # type: ignore[no-untyped-def]
    """Count a tuple that arrives at a key."""
    this = now // period
    if entries[e, PERIOD] != this:
        entries[e, BEFORE] = entries[e, NOW] if entries[e, PERIOD] == this - 1 else 0
        entries[e, PERIOD] = this
        entries[e, NOW] = 0
    entries[e, NOW] += 1


@kernel("int64(int64[:, ::1], int64, int64, int64)")
def rate(entries, e, now, period):  # type: ignore[no-untyped-def]
    """Thousandths of tuples over the last period: this one's, and of the last one's the share that still lies in it."""
    if e == -1:
        return 0
    this = now // period
    left = period - 1 - now % period
    if entries[e, PERIOD] == this:
        return 1000 * entries[e, NOW] + 1000 * entries[e, BEFORE] * left // period
    if entries[e, PERIOD] == this - 1:
        return 1000 * entries[e, NOW] * left // period
    return 0


@kernel("int64(int64[:, ::1], int64, int64)")
def find_candidate(table, node, key):  # type: ignore[no-untyped-def]
    """Where a node keeps what it knows of a key, or would keep it."""
    mask = uint64(len(table) - 1)
    at = mix(uint64(key) ^ mix(uint64(node))) & mask
    while table[at, NODE] != -1 and (table[at, NODE] != node or table[at, CANDIDATE] != key):
        at = (at + uint64(1)) & mask
    return np.int64(at)


@kernel("void(int64[:, ::1], int64[::1], int64, int64, int64, int64, int64)")
def learn(table, count, node, key, rate, learned, address):  # type: ignore[no-untyped-def]
    """Keep the most recent of what a node hears of a key."""
    at = find_candidate(table, node, key)
    if table[at, NODE] == -1:
        count[0] += 1
        table[at, NODE] = node
        table[at, CANDIDATE] = key
        table[at, LEARNED] = -1
    if learned >= table[at, LEARNED]:
        table[at, RATE] = rate
        table[at, LEARNED] = learned
        table[at, ADDRESS] = address


@kernel("void(int64[:, ::1], int64[:, ::1])")
def move_candidates(old, new):  # type: ignore[no-untyped-def]
    """Copy a candidate table into a larger one."""
    for i in range(len(old)):
        if old[i, NODE] != -1:
            at = find_candidate(new, old[i, NODE], old[i, CANDIDATE])
            for c in range(CANDIDATE_WIDTH):
                new[at, c] = old[i, c]
