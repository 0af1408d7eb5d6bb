"""Hash and hypercube routing: every combination meets in exactly one unit.

Units are the cells of a grid with one dimension per equality class. A tuple has a fixed coordinate in the dimensions of
its own keys and is copied along the others:

    classes K = {a.k, b.k}, J = {b.j, c.j}; shares 4 x 2

             J=0   J=1
        K=0   .     .        a (k known): one row of the grid, 2 copies
        K=1   b     .        b (both known): one cell
        K=2   .     .        c (j known): one column, 4 copies
        K=3   .     .

A dimension may also be one alias' content: its tuples are spread along it at random, without chance, and those of the
others are copied. With one such dimension for each of two streams the grid is the join-matrix, which runs any condition.

Invariant: the cells of the members of a combination whose keys are equal have exactly one cell in common. With one
class that all aliases share the grid has one dimension and no copies: hash routing.
Shares depend on the query and on `units` alone, never on data: a restart must find tuples where they were put.
Implements: Stamos and Young's matrix as Lin, Ooi, Wang, Yu (2015) describe it in section 2, the baseline of `biclique`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np

from watersmeet.kernels.hash_window import group_rows
from watersmeet.kernels.placement import place_in_sql

Role = Literal["both", "store", "probe"]


class Content(Protocol):
    """What routing may ask of the rows of one side."""

    rows: int

    def key(self, classes: tuple[int, ...]) -> np.ndarray:
        """The placement hash of the row's keys in these classes."""

    def spread(self) -> np.ndarray:
        """The placement hash of the row's content."""

    def value(self, column: str) -> np.ndarray:
        """A column as doubles."""


@dataclass(frozen=True)
class Delivery:
    """Rows that go to each of some units; no `rows` means all of them."""

    role: Role
    units: tuple[int, ...]
    rows: np.ndarray | None = None


def spread_class(position: int) -> int:
    """The class that stands for an alias' content, in which it is alone."""
    return -1 - position


@dataclass(frozen=True)
class Hypercube:
    """A grid of `shares`, one per dimension; a dimension is a set of classes hashed together."""

    dimensions: tuple[tuple[int, ...], ...]
    shares: tuple[int, ...]
    classes_of: tuple[frozenset[int], ...]
    """For every alias, by position, the classes it has a key in."""
    stores_all: ClassVar[bool] = True
    """A unit stores every tuple that it gets, and all of them probe."""

    @property
    def kind(self) -> str:
        if all(self.copies(i) == 1 for i in range(len(self.classes_of))):
            return "hash"
        return "matrix" if self.dimensions == ((spread_class(0),), (spread_class(1),)) else "hypercube"

    @property
    def units(self) -> int:
        return int(math.prod(self.shares))

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension are numbered."""
        return tuple(int(math.prod(self.shares[d + 1 :])) for d in range(len(self.shares)))

    def find_fixed(self, position: int) -> list[bool]:
        """For every dimension whether an alias' own keys give the coordinate."""
        return [set(dim) <= self.classes_of[position] for dim in self.dimensions]

    def copies(self, position: int) -> int:
        """How many units an alias' tuple is sent to."""
        known = self.find_fixed(position)
        return int(math.prod(s for s, f in zip(self.shares, known, strict=True) if not f))

    def units_in_sql(self, position: int) -> list[str]:
        """The units of an alias' tuple as SQL over key columns k0, k1, ...: one expression per copy. No SQL where a dimension is an alias' content.

        >>> grid((frozenset({0}), frozenset({0, 1}), frozenset({1})), 4).units_in_sql(0)
        ['pmod(hash(k0), 2) * 2 + 0', 'pmod(hash(k0), 2) * 2 + 1']
        """
        if any(c < 0 for dim in self.dimensions for c in dim):
            return []
        base, free = [], []
        for dim, share, stride, fixed in zip(
            self.dimensions, self.shares, self.strides, self.find_fixed(position), strict=True
        ):
            if fixed and share > 1:
                base.append(f"{place_in_sql([f'k{c}' for c in dim], share)} * {stride}")
            elif not fixed:
                free.append([c * stride for c in range(share)])
        shared = " + ".join(base)
        return [f"{shared} + {sum(o)}" if shared else f"{sum(o)}" for o in itertools.product(*free)]

    homes = copies
    """How many units store an alias' tuple."""

    def is_primary(self, position: int, unit: int) -> bool:
        """Whether the unit holds the first of an alias' copies: the one that counts."""
        coordinates = [unit // stride % share for stride, share in zip(self.strides, self.shares, strict=True)]
        return all(f or c == 0 for f, c in zip(self.find_fixed(position), coordinates, strict=True))

    def deliveries(self, position: int, content: Content) -> Iterator[Delivery]:
        """Where rows go: to every unit of the grid that agrees with what is fixed of them."""
        base, free = np.zeros(content.rows, np.int64), []
        for dim, share, stride, fixed in zip(
            self.dimensions, self.shares, self.strides, self.find_fixed(position), strict=True
        ):
            if not fixed:
                free.append([c * stride for c in range(share)])
            elif share > 1:
                code = content.spread() if dim[0] < 0 else content.key(dim)
                base = base + code % share * stride
        offsets = [sum(o) for o in itertools.product(*free)]
        for cell, rows in group_rows(base):
            yield Delivery("both", tuple(cell + o for o in offsets), rows)


def grid(classes_of: tuple[frozenset[int], ...], units: int, spread: Collection[int] = ()) -> Hypercube:
    """The grid for these classes with at most `units` cells; aliases in `spread` get a dimension of their own, too.

    Classes that all aliases share make one dimension and need no copies. Otherwise every class is a dimension, and the
    shares are those with the least tuples per cell if all streams were equally fast; ties go to fewer copies, then to
    the earlier class.

    >>> grid((frozenset({0}), frozenset({0, 1}), frozenset({1})), 8).shares
    (4, 2)
    >>> grid((frozenset({0}), frozenset({0})), 8).kind
    'hash'
    >>> grid((frozenset(), frozenset()), 16, spread=(0, 1)).shares
    (4, 4)
    """
    everywhere = frozenset.intersection(*classes_of) if classes_of else frozenset()
    if everywhere and not spread:
        return Hypercube((tuple(sorted(everywhere)),), (units,), classes_of)
    if spread:
        classes_of = tuple(own | {spread_class(p)} if p in spread else own for p, own in enumerate(classes_of))
    classes = sorted(frozenset().union(*classes_of), key=lambda c: (c < 0, abs(c)))

    def cost(shares: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        fixed = [[s for c, s in zip(classes, shares, strict=True) if c in own] for own in classes_of]
        load = sum(1 / np.prod(f, dtype=float) for f in fixed)
        copies = sum(np.prod(shares, dtype=float) / np.prod(f, dtype=float) for f in fixed)
        return round(load, 12), copies, tuple(-s for s in shares)

    best = _best_shares(len(classes), units, cost)
    return Hypercube(tuple((c,) for c in classes), best, classes_of)


EXHAUSTIVE = 200_000
"""The most ways to share that are all looked at; beyond that shares grow one by one."""


def _best_shares(
    dimensions: int, units: int, cost: Callable[[tuple[int, ...]], tuple[float, float, tuple[int, ...]]]
) -> tuple[int, ...]:
    if units**dimensions <= EXHAUSTIVE or dimensions <= 2:
        return min(_shares(dimensions, units), key=cost)
    best = (1,) * dimensions
    while True:
        grown = [(*best[:d], best[d] + 1, *best[d + 1 :]) for d in range(dimensions)]
        fitting = [g for g in grown if np.prod(g, dtype=np.int64) <= units and cost(g) < cost(best)]
        if not fitting:
            return best
        best = min(fitting, key=cost)


def _shares(dimensions: int, units: int) -> list[tuple[int, ...]]:
    """All ways to give each dimension a share with at most `units` cells in total."""
    if dimensions == 0:
        return [()]
    return [(s, *rest) for s in range(1, units + 1) for rest in _shares(dimensions - 1, units // s)]
