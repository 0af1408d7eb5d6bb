"""Which of many ranges a value lies in: ranges of one group in the order of their lower ends, and a tree of the highest upper ends.

    lower   1  3  4  9        a probe's run: the ranges of its group whose lower end is not above the value (`hash_window.probe`)
    upper   5  3  8 12        of these, those whose upper end is not below it
    tree        12
              5    12         a node has the highest upper end below it: a subtree that ends too early is skipped
             5 3  8 12

Invariant: the chunks of one call of `stab`, laid end to end, hold every pair of a probe and a range of its run that ends at or after the probe's value
exactly once, in order, and no chunk holds more than `limit` pairs. A probe that finds k of n ranges takes O(k log n) steps.
Implements: stabbing queries as by a priority search tree (McCreight 1985), with a tree of maxima in an array.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import FIRST


@kernel("int64[::1](int64[::1])")
def build_tree(upper):  # type: ignore[no-untyped-def]
    """The tree over upper ends, in the order of the positions; the leaves are its second half."""
    size = 1
    while size < len(upper):
        size *= 2
    tree = np.full(2 * size, FIRST, np.int64)
    for i in range(len(upper)):
        tree[size + i] = upper[i]
    for i in range(size - 1, 0, -1):
        tree[i] = max(tree[2 * i], tree[2 * i + 1])
    return tree


def stab(
    tree: np.ndarray, rows: np.ndarray, first: np.ndarray, count: np.ndarray, values: np.ndarray, limit: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of (probe, row) for the ranges at positions `first` to `first + count` that end at or after the probe's value.

    >>> tree = build_tree(np.array([5, 3, 8, 12]))
    >>> one = np.array([0]), np.array([3]), np.array([4])
    >>> [(p.tolist(), r.tolist()) for p, r in stab(tree, np.array([7, 8, 9, 10]), *one, 10)]
    [([0, 0], [7, 9])]
    """
    control = np.zeros(2, np.int64)
    while control[0] < len(first):
        probe, row = np.empty(limit, np.int64), np.empty(limit, np.int64)
        found = _stab(tree, rows, first, count, values, control, probe, row)
        if found:
            yield probe[:found], row[:found]


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
)
def _stab(tree, rows, first, count, values, control, out_probe, out_row):  # type: ignore[no-untyped-def]
    """Go on from the probe and the offset in `control` until the chunk is full or all is done."""
    size = len(tree) // 2
    probe, offset, found = control[0], control[1], 0
    while probe < len(first):
        at, end, value = first[probe] + offset, first[probe] + count[probe], values[probe]
        while at < end:
            at = _next_reaching(tree, size, at, value)
            if at >= end:
                break
            if found == len(out_probe):
                control[0], control[1] = probe, at - first[probe]
                return found
            out_probe[found], out_row[found] = probe, rows[at]
            found += 1
            at += 1
        probe, offset = probe + 1, 0
    control[0], control[1] = probe, 0
    return found


@kernel("int64(int64[::1], int64, int64, int64)")
def _next_reaching(tree, size, at, value):  # type: ignore[no-untyped-def]
    """The first position from `at` on whose upper end is not below a value; `size` if there is none."""
    node = at + size
    while tree[node] < value:
        while node & 1:  # a right child: what comes next is beside its parent
            node >>= 1
        if node == 0:
            return size
        node += 1
    while node < size:
        node *= 2
        if tree[node] < value:
            node += 1
    return node - size
