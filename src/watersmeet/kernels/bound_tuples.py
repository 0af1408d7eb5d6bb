"""Which tuples rewritten rows have bound: rows name them by id, a key table leads from the id to the tuple.

Invariant: every id that a bound alias of a row has is in the table.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint8, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.key_table import find
from watersmeet.kernels.rewriting import AT_NUMBERS, BOUND, Block


@kernel(void(Block, int64, int64[::1], int64[::1], Block, uint8[::1]))
def mark(rows, aliases, lay, slots, entries, marks):  # type: ignore[no-untyped-def]
    """Mark the entries of the tuples that rows have bound."""
    for r in range(len(rows)):
        for alias in range(aliases):
            if (rows[r, BOUND] >> alias) & 1:
                marks[find(slots, entries, rows[r, lay[AT_NUMBERS] + alias])] = 1


@kernel(Block(Block, int64, int64[::1], int64[::1], Block, int64[::1]))
def places(rows, aliases, lay, slots, entries, place):  # type: ignore[no-untyped-def]
    """By row and alias the place of the tuple that it has bound, -1 without one."""
    out = np.full((len(rows), aliases), -1, np.int64)
    for r in range(len(rows)):
        for alias in range(aliases):
            if (rows[r, BOUND] >> alias) & 1:
                out[r, alias] = place[find(slots, entries, rows[r, lay[AT_NUMBERS] + alias])]
    return out
