"""Chord's routing in compiled code: which node a key belongs to, and over which nodes a message reaches it.

    circle   0 ----- a ----- b ----- c ----- 2^64        a key belongs to the first node at or after it, clockwise
    fingers  of b: the nodes that own b + 1, b + 2, b + 4, ..., b + 2^63

A message goes to the finger that comes closest to the key without passing it, until the key lies between a node and its
successor; the successor owns it. Each such step at least halves the distance that is left, so there are O(log N).

Invariant: `ids` ascend; all arrays speak of positions on the circle, and distances are differences modulo 2^64.
Implements: Stoica et al. (2001) as Idreos, Liarou, Koubarakis (2008), section 2, use it: lookup, send.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel

BITS = 64


@kernel("int64(uint64[::1], uint64)")
def successor(ids, key):  # type: ignore[no-untyped-def]
    """The position of the node that a key belongs to."""
    low, high = 0, len(ids)
    while low < high:
        mid = (low + high) >> 1
        if ids[mid] < key:
            low = mid + 1
        else:
            high = mid
    return low if low < len(ids) else 0


@kernel("int64[::1](uint64[::1], int64[::1])")
def successors(ids, keys):  # type: ignore[no-untyped-def]
    """`successor` of every key; keys are codes, taken as unsigned."""
    out = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        out[i] = successor(ids, uint64(keys[i]))
    return out


@kernel("int32[:, ::1](uint64[::1])")
def finger_table(ids):  # type: ignore[no-untyped-def]
    """fingers[n, i]: the position of the node that owns ids[n] + 2^i."""
    out = np.empty((len(ids), BITS), np.int32)
    for n in range(len(ids)):
        for i in range(BITS):
            out[n, i] = np.int32(successor(ids, uint64(ids[n] + (uint64(1) << uint64(i)))))
    return out


@kernel("int64(uint64[::1], int32[:, ::1], int64[::1], int64, uint64, int64[::1])")
def route(ids, fingers, nodes, start, key, sent):  # type: ignore[no-untyped-def]
    """The hops from a position to the owner of a key; `sent` counts a message for every node that passes it on."""
    at, goal, hops = start, successor(ids, key), 0
    while at != goal:
        following = at + 1 if at + 1 < len(ids) else 0
        left = uint64(key - ids[at])
        step = following
        if left > uint64(ids[following] - ids[at]):
            i = BITS - 1
            while i > 0 and (uint64(1) << uint64(i)) >= left:
                i -= 1
            while i >= 0:  # the closest finger before the key
                ahead = uint64(ids[fingers[at, i]] - ids[at])
                if uint64(0) < ahead < left:
                    step = np.int64(fingers[at, i])
                    break
                i -= 1
        sent[nodes[at]] += 1
        hops += 1
        at = step
    return hops


@kernel("int64[::1](uint64[::1], int32[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def routes(ids, fingers, nodes, starts, keys, sent):  # type: ignore[no-untyped-def]
    """`route` for many messages."""
    out = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        out[i] = route(ids, fingers, nodes, starts[i], uint64(keys[i]), sent)
    return out
