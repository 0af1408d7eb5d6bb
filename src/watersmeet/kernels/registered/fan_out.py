"""From combinations to the queries that want them, over addresses of segments (see `probe_trie`).

Invariant: `admit` compares values and ranges themselves; keys are hashes and only find candidates.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.kernels.registered.probe_trie import int64s, uint8s


@kernel("Tuple((int64[::1], int64[::1]))(int64[:,::1], int64[::1], int64[::1])")
def span(tuples, ts, batch):  # type: ignore[no-untyped-def]
    """Of every combination the youngest member's time and the oldest arrival batch."""
    youngest, oldest = np.empty(len(tuples), np.int64), np.empty(len(tuples), np.int64)
    for i in range(len(tuples)):
        high, low = np.int64(FIRST), np.int64(LAST)
        for x in range(tuples.shape[1]):
            if tuples[i, x] >= 0:
                segment, row = tuples[i, x] >> 32, tuples[i, x] & 0xFFFFFFFF
                high = max(high, int64s(ts[segment])[row])
                low = min(low, int64s(batch[segment])[row])
        youngest[i], oldest[i] = high, low
    return youngest, oldest


@kernel(
    "Tuple((int64[::1], int64[::1]))(int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], boolean[::1], "
    "int64[:,::1])",
)
def keys(  # type: ignore[no-untyped-def]
    tuples, combination, class_of, class_alias, class_column, range_alias, range_column, is_down, codes
):
    """Of every pair of a combination and a class: a hash of the class and of the values in its columns, and the value that its range is searched for."""
    out, values = np.empty(len(combination), np.int64), np.zeros(len(combination), np.int64)
    for i in range(len(combination)):
        number = class_of[i]
        key = number
        for n in range(class_alias.shape[1]):
            if class_alias[number, n] >= 0:
                member = tuples[combination[i], class_alias[number, n]]
                code = int64s(codes[class_column[number, n], member >> 32])[member & 0xFFFFFFFF]
                key = np.int64(mix(uint64(key) ^ mix(uint64(code))))
        out[i] = key
        if range_alias[number] >= 0:
            member = tuples[combination[i], range_alias[number]]
            code = int64s(codes[range_column[number], member >> 32])[member & 0xFFFFFFFF]
            values[i] = ~code if is_down[number] else code
    return out, values


@kernel(
    "boolean[::1](int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], "
    "int64[:,::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def admit(  # type: ignore[no-untyped-def]
    tuples, combination, class_of, entry, query_of, class_alias, class_column, codes, valid, constants, oldest, effect, active,
    test_start, test_alias, test_column, test_low, test_high,
):  # fmt: skip
    """Which pairs of a combination and an entry hold: values equal, ranges kept, query alive, all members new enough for it."""
    out = np.empty(len(entry), np.bool_)
    for i in range(len(entry)):
        e, number, c = entry[i], class_of[i], combination[i]
        q = query_of[e]
        fits = active[q] != 0 and oldest[c] >= effect[q]
        for n in range(class_alias.shape[1]):
            if fits and class_alias[number, n] >= 0:
                member = tuples[c, class_alias[number, n]]
                column, segment, row = class_column[number, n], member >> 32, member & 0xFFFFFFFF
                known = valid[column, segment] == 0 or uint8s(valid[column, segment])[row] != 0
                fits = known and int64s(codes[column, segment])[row] == constants[e, n]
        for n in range(test_start[q], test_start[q + 1]):
            if fits:
                member = tuples[c, test_alias[n]]
                column, segment, row = test_column[n], member >> 32, member & 0xFFFFFFFF
                known = valid[column, segment] == 0 or uint8s(valid[column, segment])[row] != 0
                code = int64s(codes[column, segment])[row]
                fits = known and test_low[n] <= code and code <= test_high[n]
        out[i] = fits
    return out
