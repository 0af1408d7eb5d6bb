"""Arrivals at a simulated ring, one by one: rows walk the chain of their key's tuples, and rows and tuples expire.

Where tuples come all the time, sorting them by key for every row that arrives (`watersmeet.kernels.registered.rewriting`) would not pay.

Invariant: as for `rewriting`. At attribute level a tuple is met for delta after it has arrived.
Implements: Idreos, Liarou, Koubarakis (2008), procedure 3, section 4 (ALTT).
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.registered.key_table import FIRST_TUPLE
from watersmeet.kernels.registered.rewriting import (
    ARRIVED,
    ENTRIES,
    LEVEL,
    NEXT,
    ROWS,
    TUPLE_NEXT,
    TUPLES,
    VALUE_LEVEL,
    Block,
    Blocks,
    Catalogue,
    in_time,
    longer,
    put,
    rewrite,
)


@kernel(Block(Block, Blocks, int64[::1], int64[::1], Catalogue, int64[::1], int64, int64, int64[::1]))
def walk_rows(inbox, blocks, slots, counts, cat, lay, now, delta, marks):  # type: ignore[no-untyped-def]
    """Procedure 3, for posed queries too: rows meet the tuples of their keys, those at attribute level for delta after
    they arrived, and are stored if a tuple of the watermarks or later can match. NEXT of a new row is the position in
    the inbox."""
    rows, tuples, entries = blocks[ROWS], blocks[TUPLES], blocks[ENTRIES]
    out, n = np.empty((1024, rows.shape[1]), np.int64), 0
    for i in range(len(inbox)):
        r = counts[ROWS]
        e = entries[put(inbox, i, blocks, slots, counts, cat, lay, marks), FIRST_TUPLE]
        while e != -1:
            if tuples[e, LEVEL] == VALUE_LEVEL or now - tuples[e, ARRIVED] <= delta:
                if n == len(out):
                    out = longer(out)
                if rewrite(out, n, rows, r, tuples, e, lay, cat):
                    out[n, NEXT] = i
                    n += 1
            e = tuples[e, TUPLE_NEXT]
    return out[:n]


@kernel(boolean[::1](Block, Catalogue, int64[::1], int64[::1]))
def may_match(rows, cat, lay, marks):  # type: ignore[no-untyped-def]
    """Which rows a tuple of its stream's watermark or later can still match."""
    out = np.empty(len(rows), np.bool_)
    for r in range(len(rows)):
        out[r] = in_time(rows, r, cat, lay, marks)
    return out
