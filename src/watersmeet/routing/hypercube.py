"""Hash and hypercube routing: every combination meets in exactly one unit.

Units are the cells of a grid with one dimension per equality class. A tuple has a fixed coordinate in the dimensions of
its own keys and is copied along the others:

    classes K = {a.k, b.k}, J = {b.j, c.j}; shares 4 x 2

             J=0   J=1
        K=0   .     .        a (k known): one row of the grid, 2 copies
        K=1   b     .        b (both known): one cell
        K=2   .     .        c (j known): one column, 4 copies
        K=3   .     .

Invariant: the cells of the members of a combination whose keys are equal have exactly one cell in common. With one
class that all aliases share the grid has one dimension and no copies: hash routing.
Shares depend on the query and on `units` alone, never on data: a restart must find tuples where they were put.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from watersmeet.kernels.hashing import combine, remainder


@dataclass(frozen=True)
class Hypercube:
    """A grid of `shares`, one per dimension; a dimension is a set of classes hashed together."""

    dimensions: tuple[tuple[int, ...], ...]
    shares: tuple[int, ...]
    classes_of: tuple[frozenset[int], ...]
    """For every alias, by position, the classes it has a key in."""

    @property
    def kind(self) -> str:
        return "hash" if all(self.copies(i) == 1 for i in range(len(self.classes_of))) else "hypercube"

    @property
    def units(self) -> int:
        return int(np.prod(self.shares, dtype=np.int64)) if self.shares else 1

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension are numbered."""
        return tuple(int(np.prod(self.shares[d + 1 :], dtype=np.int64)) for d in range(len(self.shares)))

    def fixed(self, position: int) -> list[bool]:
        """For every dimension whether an alias' own keys give the coordinate."""
        return [set(dim) <= self.classes_of[position] for dim in self.dimensions]

    def copies(self, position: int) -> int:
        """How many units an alias' tuple is sent to."""
        known = self.fixed(position)
        return int(np.prod([s for s, f in zip(self.shares, known, strict=True) if not f], dtype=np.int64))

    def is_primary(self, position: int, unit: int) -> bool:
        """Whether the unit holds the first of an alias' copies: the one that counts."""
        coordinates = [unit // stride % share for stride, share in zip(self.strides, self.shares, strict=True)]
        return all(f or c == 0 for f, c in zip(self.fixed(position), coordinates, strict=True))

    def route(self, position: int, codes: Mapping[int, np.ndarray], rows: int) -> list[np.ndarray]:
        """The unit of every row, one array per copy; `codes` by class."""
        base, free = np.zeros(rows, np.int64), []
        for dim, share, stride, fixed in zip(
            self.dimensions, self.shares, self.strides, self.fixed(position), strict=True
        ):
            if not fixed:
                free.append([c * stride for c in range(share)])
            elif share > 1:
                base = base + remainder(dimension_code(dim, codes), share) * stride
        return [base + sum(offsets) for offsets in itertools.product(*free)]


def dimension_code(classes: tuple[int, ...], codes: Mapping[int, np.ndarray]) -> np.ndarray:
    """One code for several keys taken together."""
    out = codes[classes[0]]
    for c in classes[1:]:
        out = combine(out, codes[c])
    return out


def grid(classes_of: tuple[frozenset[int], ...], units: int) -> Hypercube:
    """The grid for these classes with at most `units` cells.

    Classes that all aliases share make one dimension and need no copies. Otherwise every class is a dimension, and the
    shares are those with the least tuples per cell if all streams were equally fast; ties go to fewer copies, then to
    the earlier class.

    >>> grid((frozenset({0}), frozenset({0, 1}), frozenset({1})), 8).shares
    (4, 2)
    >>> grid((frozenset({0}), frozenset({0})), 8).kind
    'hash'
    """
    everywhere = frozenset.intersection(*classes_of) if classes_of else frozenset()
    if everywhere:
        return Hypercube((tuple(sorted(everywhere)),), (units,), classes_of)
    classes = sorted(frozenset().union(*classes_of))
    dimensions = tuple((c,) for c in classes)

    def cost(shares: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        fixed = [[s for c, s in zip(classes, shares, strict=True) if c in own] for own in classes_of]
        load = sum(1 / np.prod(f, dtype=float) for f in fixed)
        copies = sum(np.prod(shares, dtype=float) / np.prod(f, dtype=float) for f in fixed)
        return round(load, 12), copies, tuple(-s for s in shares)

    best = min(_shares(len(classes), units), key=cost)
    return Hypercube(dimensions, best, classes_of)


def _shares(dimensions: int, units: int) -> list[tuple[int, ...]]:
    """All ways to give each dimension a share with at most `units` cells in total."""
    if dimensions == 0:
        return [()]
    return [(s, *rest) for s in range(1, units + 1) for rest in _shares(dimensions - 1, units // s)]
