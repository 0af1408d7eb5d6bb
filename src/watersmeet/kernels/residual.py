"""Comparisons and bands on candidate pairs, over codes.

Invariant: `compare` sees codes that keep order (see `hashing.order_floats`), so one integer loop serves every type;
`band_*` follow Spark's order of floats, in which NaN is greater than any number.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LESS, LESS_EQUAL, EQUAL = 0, 1, 2


@njit("boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64)", cache=True)
def compare(left, left_idx, right, right_idx, op):  # type: ignore[no-untyped-def]
    """left < right, left <= right or left = right, pair by pair."""
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        x, y = left[left_idx[i]], right[right_idx[i]]
        out[i] = x < y if op == LESS else (x <= y if op == LESS_EQUAL else x == y)
    return out


@njit("boolean[::1](float64[::1], int64[::1], float64[::1], int64[::1], float64, float64)", cache=True)
def band_floats(left, left_idx, right, right_idx, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= left - right <= hi; an infinite bound is no bound."""
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        d = left[left_idx[i]] - right[right_idx[i]]
        out[i] = (lo == -np.inf or not d < lo) and (hi == np.inf or d <= hi)
    return out


@njit("boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)", cache=True)
def band_integers(left, left_idx, right, right_idx, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= left - right <= hi; the extremes of 64 bits are no bound, and an overflowing difference is beyond all."""
    top, bottom = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x8000000000000000)
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        x, y = left[left_idx[i]], right[right_idx[i]]
        if y < 0 and x > top + y:
            d = top
        elif y > 0 and x < bottom + y:
            d = bottom
        else:
            d = x - y
        out[i] = d >= lo and d <= hi
    return out
