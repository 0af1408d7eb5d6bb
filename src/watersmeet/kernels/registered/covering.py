"""Which rewritten rows others make superfluous, among rows that differ in the times of their tuples alone.

What a row still waits for lies in a box: for every alias without a tuple, the times that its windows allow.

    one alias is missing       held      [-------]                two or more: one box has to lie within another
                               come         [-------]   dropped: lies within the two beside it
                               come             [-------]

Invariant: a tuple, or a set of tuples, that lies in the box of a row which is dropped lies in the box of one that stays. Rows that are held already always stay.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int64, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import FIRST, LAST, shift_instant
from watersmeet.kernels.registered.rewriting import ALIASES, AT_TS, BOUND, HI, INFO, TEMPLATE, Block, Catalogue

MOST = 64
"""With so many rows of its group a row is compared at most: those that stay unnecessarily cost time, never an answer."""


@kernel(void(Block, Catalogue, int64[::1], Block, Block, int64[::1]))
def span_boxes(rows, cat, lay, low, high, youngest):  # type: ignore[no-untyped-def]
    """The box of every row, all time for aliases that have their tuple; and the time of its youngest tuple."""
    first_ts, hi = lay[AT_TS], cat[HI]
    for r in range(len(rows)):
        t, bound = rows[r, TEMPLATE], rows[r, BOUND]
        aliases = cat[INFO][t, ALIASES]
        low[r], high[r], youngest[r] = int64(FIRST), int64(LAST), int64(FIRST)
        for b in range(aliases):
            if not (bound >> b) & 1:
                continue
            ts = rows[r, first_ts + b]
            youngest[r] = max(youngest[r], ts)
            for a in range(aliases):
                if not (bound >> a) & 1:
                    low[r, a] = max(low[r, a], shift_instant(ts, -hi[t, a * aliases + b]))
                    high[r, a] = min(high[r, a], shift_instant(ts, hi[t, b * aliases + a]))


@kernel(boolean(int64, int64, Block, Block))
def _lies_within(inner, outer, low, high):  # type: ignore[no-untyped-def]
    is_within = True
    for a in range(low.shape[1]):
        is_within &= low[inner, a] >= low[outer, a] and high[inner, a] <= high[outer, a]
    return is_within


@kernel(void(int64, int64, boolean[::1], Block, Block, boolean[::1]))
def _drop_boxes(first, end, held, low, high, dropped):  # type: ignore[no-untyped-def]
    """Drop rows whose box lies within that of one before them."""
    kept, n = np.empty(MOST, np.int64), 0
    for r in range(first, end):
        for k in range(0 if held[r] else min(n, MOST)):
            if _lies_within(r, kept[k], low, high):
                dropped[r] = True
                break
        if not dropped[r]:
            kept[n % MOST] = r
            n += 1


@kernel(void(int64, int64, int64, boolean[::1], Block, Block, boolean[::1]))
def _drop_intervals(first, end, a, held, low, high, dropped):  # type: ignore[no-untyped-def]
    """Drop rows that wait for one alias, in ascending order of when that begins, if others cover the time: a stack of those that stay, each ending later than
    the one below it."""
    stack, n = np.empty(end - first, np.int64), 0
    for r in range(first, end):
        if n and high[r, a] <= high[stack[n - 1], a]:
            dropped[r] = not held[r]
            continue
        while n > 1 and not held[stack[n - 1]] and high[stack[n - 2], a] >= low[r, a]:
            n -= 1
            dropped[stack[n]] = True
        stack[n] = r
        n += 1


@kernel(void(int64[::1], int64[::1], boolean[::1], Block, Block, boolean[::1]))
def find_covered(begin, missing, held, low, high, dropped):  # type: ignore[no-untyped-def]
    """Mark the rows that others of their group make superfluous. Group g is rows begin[g] to begin[g + 1]; missing[g] is the one alias without a tuple, or -1."""
    for g in range(len(begin) - 1):
        if missing[g] >= 0:
            _drop_intervals(begin[g], begin[g + 1], missing[g], held, low, high, dropped)
        else:
            _drop_boxes(begin[g], begin[g + 1], held, low, high, dropped)
