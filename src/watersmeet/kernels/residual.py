"""Comparisons and bands on candidate pairs, over codes.

Invariant: comparisons see codes that keep order (see `hashing.order_floats`), so one integer loop serves every type;
bands of reals follow Spark's order of floats, in which NaN is greater than any number.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiled import kernel

LESS, LESS_EQUAL, EQUAL, BAND, REAL_BAND = 0, 1, 2, 3, 4

_TOP, _BOTTOM = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x8000000000000000)


@kernel("boolean(int64, int64, int64)", inline="always")
def compares(x, y, op):  # type: ignore[no-untyped-def]
    """x < y, x <= y or x = y."""
    return x < y if op == LESS else (x <= y if op == LESS_EQUAL else x == y)


@kernel("boolean(int64, int64, int64, int64)", inline="always")
def in_band(x, y, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= x - y <= hi; the extremes of 64 bits are no bound, and an overflowing difference is beyond all."""
    if y < 0 and x > _TOP + y:
        d = _TOP
    elif y > 0 and x < _BOTTOM + y:
        d = _BOTTOM
    else:
        d = x - y
    return d >= lo and d <= hi


@kernel("boolean(float64, float64, float64, float64)", inline="always")
def in_real_band(x, y, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= x - y <= hi; an infinite bound is no bound."""
    d = x - y
    return (lo == -np.inf or not d < lo) and (hi == np.inf or d <= hi)


@kernel("boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64)")
def compare(left, left_idx, right, right_idx, op):  # type: ignore[no-untyped-def]
    """left < right, left <= right or left = right, pair by pair."""
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        out[i] = compares(left[left_idx[i]], right[right_idx[i]], op)
    return out


@kernel("boolean[::1](float64[::1], int64[::1], float64[::1], int64[::1], float64, float64)")
def band_floats(left, left_idx, right, right_idx, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= left - right <= hi, pair by pair."""
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        out[i] = in_real_band(left[left_idx[i]], right[right_idx[i]], lo, hi)
    return out


@kernel("boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64, int64)")
def band_integers(left, left_idx, right, right_idx, lo, hi):  # type: ignore[no-untyped-def]
    """lo <= left - right <= hi, pair by pair."""
    out = np.empty(len(left_idx), np.bool_)
    for i in range(len(left_idx)):
        out[i] = in_band(left[left_idx[i]], right[right_idx[i]], lo, hi)
    return out
