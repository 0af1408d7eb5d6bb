"""What ring nodes know of keys: the rates at which tuples arrive, and the candidate table of what a node was told of other nodes' keys.

An entry of a key table has three columns more: the tuples of this and the last period. The candidate table has entries of (node, key) that lie
in the slots themselves.

Invariant: never more than two thirds of the table's places are taken; callers make room before they insert.
Implements: Idreos, Liarou, Koubarakis (2008), section 7, the candidate table.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.registered.key_table import KEY_WIDTH, find

PERIOD, NOW, BEFORE = range(KEY_WIDTH, KEY_WIDTH + 3)
"""Columns of a key's entry: the period, the tuples of it, and of the one before."""
RATED_WIDTH = KEY_WIDTH + 3
NODE, CANDIDATE, RATE, LEARNED, ADDRESS = range(5)
"""Columns of the candidate table; NODE is -1 where nothing is."""
CANDIDATE_WIDTH = 5


@kernel("void(int64[:, ::1], int64[::1], int64[::1], int64, int64)")
def count_arrivals(entries, slots, keys, now, period):  # type: ignore[no-untyped-def]
    """Count tuples that have arrived at keys."""
    this = now // period
    for i in range(len(keys)):
        e = find(slots, entries, keys[i])
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
