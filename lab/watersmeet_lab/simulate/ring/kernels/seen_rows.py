"""DISTINCT without a window: a rewritten query that has been made before with the same values is not made again.

A node remembers what every row was rewritten to; rows are the same if template, bound aliases and all slots are, and they
were made at the same key. One that is the same but begins later or ends earlier is let through: queries that took effect
after the older row's first tuple, or went before its last, get their answers from it.

Invariant: every query that a row left out would have answered is answered by the same row that was let through.
Implements: Idreos, Liarou, Koubarakis (2008), section 4, duplicate elimination by projections.
Departs from the paper: a projection is what it binds, so equal rows of different tuples count as one.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int64, uint64, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.registered.rewriting import (
    AT_SLOTS,
    AT_TS,
    BOUND,
    KEY,
    NEWEST,
    OLDEST,
    TEMPLATE,
    Block,
)

CODE, SEEN_TEMPLATE, SEEN_BOUND, SEEN_KEY, SEEN_OLDEST, SEEN_NEWEST = range(6)
SEEN_HEAD = 6


@kernel(boolean(Block, int64, Block, int64, int64, int64))
def _same(seen, s, rows, r, first, last):  # type: ignore[no-untyped-def]
    same = (
        seen[s, SEEN_TEMPLATE] == rows[r, TEMPLATE]
        and seen[s, SEEN_BOUND] == rows[r, BOUND]
        and seen[s, SEEN_KEY] == rows[r, KEY]
    )
    for c in range(first, last):  # slots that are not bound are zero in both
        same = same and seen[s, SEEN_HEAD + c - first] == rows[r, c]
    return same


@kernel(boolean[::1](Block, boolean[::1], int64[::1], Block, int64[::1], int64[::1]))
def first_time(rows, once, lay, seen, slots, count):  # type: ignore[no-untyped-def]
    """Which new rows to keep, of templates that keep a row `once`; KEY is still where they were made."""
    out = np.ones(len(rows), np.bool_)
    mask, first, last = uint64(len(slots) - 1), AT_SLOTS, lay[AT_TS]
    for r in range(len(rows)):
        if not once[rows[r, TEMPLATE]]:
            continue
        code = mix(uint64(rows[r, KEY]) ^ mix(uint64(rows[r, TEMPLATE]) ^ mix(uint64(rows[r, BOUND]))))
        for c in range(first, last):
            code = mix(code ^ uint64(rows[r, c]))
        at = code & mask
        while slots[at] != -1 and not (
            seen[slots[at], CODE] == np.int64(code) and _same(seen, slots[at], rows, r, first, last)
        ):
            at = (at + uint64(1)) & mask
        s = slots[at]
        if s != -1 and seen[s, SEEN_OLDEST] >= rows[r, OLDEST] and seen[s, SEEN_NEWEST] <= rows[r, NEWEST]:
            out[r] = False
            continue
        if s == -1:
            s = count[0]
            count[0] += 1
            slots[at] = s
            seen[s, CODE] = np.int64(code)
            seen[s, SEEN_TEMPLATE] = rows[r, TEMPLATE]
            seen[s, SEEN_BOUND] = rows[r, BOUND]
            seen[s, SEEN_KEY] = rows[r, KEY]
            for c in range(first, last):
                seen[s, SEEN_HEAD + c - first] = rows[r, c]
        seen[s, SEEN_OLDEST] = rows[r, OLDEST]
        seen[s, SEEN_NEWEST] = rows[r, NEWEST]
    return out


@kernel(void(Block, int64, int64[::1]))
def refill(seen, count, slots):  # type: ignore[no-untyped-def]
    """Fill empty slots with all that was seen."""
    mask = uint64(len(slots) - 1)
    for s in range(count):
        at = uint64(seen[s, CODE]) & mask
        while slots[at] != -1:
            at = (at + uint64(1)) & mask
        slots[at] = s
