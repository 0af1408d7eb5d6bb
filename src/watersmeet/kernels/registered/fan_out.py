"""From combinations to the queries that want them, over addresses of segments (see `probe_trie`).

Classes and entries are those of `registry.shared.query_index`: a class says which columns are compared, an entry with which values.

Invariant: `admit` compares values and ranges themselves; keys are hashes and only find candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hash_window import HashIndex
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.kernels.registered.probe_trie import int64s, uint8s

BLOCK = 4_096
"""So many combinations are looked up for a class before the next one."""


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


class Classes(NamedTuple):
    """By class what is asked of its combinations: alias and column of every value (-1: no more), and of the range, and its direction."""

    alias: np.ndarray
    column: np.ndarray
    range_alias: np.ndarray
    range_column: np.ndarray
    is_down: np.ndarray


class Hits(NamedTuple):
    """Where combinations find something: combination and class, the first of its entries and how many there are, and the value that their ranges are searched for."""

    combination: np.ndarray
    class_of: np.ndarray
    first: np.ndarray
    many: np.ndarray
    value: np.ndarray


def search(
    tuples: np.ndarray,
    first: np.ndarray,
    count: np.ndarray,
    classes: Classes,
    codes: np.ndarray,
    index: HashIndex,
    limit: int,
) -> Iterator[Hits]:
    """Chunks of what combinations find, of which each may want `count` classes from `first` on: entries with a key of class and values, and a lower end that is not above the value.

    All values of a block of combinations are looked up for one class after the other: the class' entries and one column of codes lie in the cache meanwhile.
    """
    control, most = np.array([0, -1, 0], np.int64), max(min(limit, int(count.sum())), 1)
    while control[0] < len(first):
        out = Hits(*(np.empty(most, np.int64) for _ in Hits._fields))
        found = _search(
            tuples,
            first,
            count,
            *classes,
            codes,
            index.slots,
            index.group_code,
            index.group_start,
            index.times,
            control,
            *out,
        )
        if found:
            yield Hits(*(array[:found] for array in out))


@kernel(
    "int64(int64[:,::1], int64[::1], int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], boolean[::1], int64[:,::1], "
    "int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _search(  # type: ignore[no-untyped-def]
    tuples, first, count, class_alias, class_column, range_alias, range_column, is_down, codes,
    slots, group_code, group_start, lower, control, out_combination, out_class, out_first, out_count, out_value,
):  # fmt: skip
    """Go on from the block, the class and the combination in `control` until the chunk is full or all is done."""
    begin, number, at, found = control[0], control[1], control[2], 0
    depth, mask = class_alias.shape[1], uint64(len(slots) - 1)
    while begin < len(first):
        # 1. A block: combinations beside each other with the same classes.
        end = begin + 1
        while end < len(first) and end - begin < BLOCK and first[end] == first[begin] and count[end] == count[begin]:
            end += 1
        if number < 0:
            number, at = first[begin], begin
        while number < first[begin] + count[begin]:
            ranged = range_alias[number] >= 0
            while at < end:
                # 2. The group of the class and the values.
                key = number
                for n in range(depth):
                    if class_alias[number, n] >= 0:
                        member = tuples[at, class_alias[number, n]]
                        code = int64s(codes[class_column[number, n], member >> 32])[member & 0xFFFFFFFF]
                        key = np.int64(mix(uint64(key) ^ mix(uint64(code))))
                place = mix(uint64(key)) & mask
                group = slots[place]
                while group != -1 and group_code[group] != key:
                    place = (place + uint64(1)) & mask
                    group = slots[place]
                if group != -1:
                    # 3. Its entries whose lower end is not above the value.
                    left, right, value = group_start[group], group_start[group + 1], np.int64(0)
                    start = left
                    if ranged:
                        member = tuples[at, range_alias[number]]
                        value = int64s(codes[range_column[number], member >> 32])[member & 0xFFFFFFFF]
                        value = ~value if is_down[number] else value
                    # Without branches: which way a step goes nobody can foresee.
                    many = right - left
                    while many > 1:
                        half = many >> 1
                        left += half * np.int64(lower[left + half - 1] <= value)
                        many -= half
                    left += np.int64(lower[left] <= value)
                    if left > start:
                        if found == len(out_class):
                            control[0], control[1], control[2] = begin, number, at
                            return found
                        out_combination[found], out_class[found], out_value[found] = at, number, value
                        out_first[found], out_count[found] = start, left - start
                        found += 1
                at += 1
            number, at = number + 1, begin
        begin, number = end, -1
    control[0], control[1] = begin, -1
    return found


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
