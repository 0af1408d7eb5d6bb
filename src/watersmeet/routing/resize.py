"""Grids that change their size while rows are stored: the units deal these out among themselves when a batch begins.

    shares 2        unit 0: keys 0 2 4 6     unit 1: keys 1 3 5 7
    shares 4        unit 0: 0 4    1: 1 5    2: 2 6    3: 3 7         unit 2 reads what unit 0 has stored, and keeps its half

A unit of the new grid takes, from the units of the old one, the rows that the new grid sends to it; a unit that is no longer there keeps none. Rows are files that
every unit can read, so nothing is sent. A share is doubled, or divided by its smallest factor: then a unit reads from the few that have its keys.

Of every stored row one copy counts: along dimensions that its side has no key for the one at coordinate 0, and of a hot key what its home has or, of its anchor, what any unit
has (`routing.spread`). What else lies about, copies from a time when a key was hot, is left behind.

Invariant: after the first batch under a new grid every row is stored where that grid would have sent it, once for every copy that it has there, under replay alike: so all that
holds of a grid holds again, and nothing of the old one is remembered. Results do not depend on it.
Beyond Lin, Ooi, Wang, Yu (2015), who scale bicliques only: a matrix or a hypercube is what they call hard to scale, because its tuples must be moved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from watersmeet.routing.hypercube import Content, Hypercube
from watersmeet.routing.spread import HotKey

LEAST_GAIN = 0.9
"""A share is doubled if that leaves a unit no more than this share of its load."""


@dataclass(frozen=True)
class Resized(Hypercube):
    """A grid in the batch in which it begins to have these shares."""

    was: tuple[int, ...] = ()
    """The shares under which rows are stored."""
    hot: tuple[HotKey, ...] = ()
    """The hot keys under which they are."""

    @property
    def before(self) -> Hypercube:
        """The grid under which rows are stored."""
        return Hypercube(self.dimensions, self.was, self.classes_of)

    def find_givers(self, position: int, unit: int) -> list[int]:
        """The units of the old grid that can have stored rows of a side for a unit; none for one that is no longer there.

        >>> grown = Resized(((0,),), (4,), (frozenset({0}), frozenset({0})), was=(2,))
        >>> grown.find_givers(0, 2), grown.find_givers(0, 3), grown.find_givers(0, 4)
        ([0], [1], [])
        """
        if unit >= self.units:
            return []
        old, choices = self.before, list[Sequence[int]]()
        for number, fixed in enumerate(self.find_fixed(position)):
            share, was, stride = self.shares[number], self.was[number], old.strides[number]
            spread = self.dimensions[number][0] < 0 or bool(self._find_anchored(number, position))
            near, at = 1 if spread else math.gcd(share, was), self._coordinate(unit, number)
            choices.append([c * stride for c in (range(at % near, was, near) if fixed else (0,))])
        return [sum(c) for c in itertools.product(*choices)]

    def find_taken(self, position: int, unit: int, giver: int, content: Content) -> np.ndarray:
        """Which of the rows of a side that a unit of the old grid has stored, a unit takes."""
        keep, old = np.ones(content.rows, bool), self.before
        for number, (dim, fixed) in enumerate(zip(self.dimensions, self.find_fixed(position), strict=True)):
            if not fixed:
                continue
            code = content.spread() if dim[0] < 0 else content.key(dim)
            keep &= code % self.shares[number] == self._coordinate(unit, number)
            if dim[0] >= 0:
                is_home = code % self.was[number] == giver // old.strides[number] % self.was[number]
                keep &= is_home | np.isin(code, self._find_anchored(number, position))
        return keep

    def _find_anchored(self, dimension: int, position: int) -> list[int]:
        """The hot keys whose tuples of a side are spread along a dimension."""
        return [h.key for h in self.hot if (h.dimension, h.anchor) == (dimension, position)]

    def _coordinate(self, unit: int, dimension: int) -> int:
        return unit // self.strides[dimension] % self.shares[dimension]


def fit_grid(grid: Hypercube, weights: Sequence[float], load: float, target: float, most: int) -> Hypercube:
    """The grid whose units have at most the target's load, if they have this one now, by what each side weighs; never more than `most` units.

    >>> hash_routed = Hypercube(((0,),), (2,), (frozenset({0}), frozenset({0})))
    >>> [fit_grid(hash_routed, [1.0, 1.0], load, 0.6, 64).shares for load in (0.9, 2.0, 0.6, 0.25)]
    [(4,), (8,), (2,), (1,)]
    >>> chain = Hypercube(((0,), (1,)), (2, 2), (frozenset({0}), frozenset({0, 1}), frozenset({1})))
    >>> fit_grid(chain, [9.0, 1.0, 1.0], 1.0, 0.6, 64).shares  # the heavy side has a key of the first dimension only
    (4, 2)
    """
    now = _weigh(grid, weights)

    def expect(other: Hypercube) -> float:
        return load * _weigh(other, weights) / now if now else load

    best = grid
    while expect(best) > target:
        grown = [_with_share(best, d, 2 * share) for d, share in enumerate(best.shares)]
        fitting = [g for g in grown if g.units <= most and expect(g) <= LEAST_GAIN * expect(best)]
        if not fitting:
            break
        best = min(fitting, key=lambda g: (expect(g), g.shares))
    if best is not grid or load > target:
        return best
    while True:
        less = [_with_share(best, d, s // _least_factor(s)) for d, s in enumerate(best.shares) if s > 1]
        fitting = [g for g in less if expect(g) <= target]
        if not fitting:
            return best
        best = min(fitting, key=lambda g: (g.units, expect(g), g.shares))


def _weigh(grid: Hypercube, weights: Sequence[float]) -> float:
    """What a unit has, of sides that weigh so much."""
    return sum(weight * grid.copies(n) / grid.units for n, weight in enumerate(weights))


def _with_share(grid: Hypercube, dimension: int, share: int) -> Hypercube:
    shares = (*grid.shares[:dimension], share, *grid.shares[dimension + 1 :])
    return Hypercube(grid.dimensions, shares, grid.classes_of)


def _least_factor(number: int) -> int:
    return next(f for f in range(2, number + 1) if number % f == 0)


def read_grids(raw: Iterable[Mapping[str, Any]], planned: Mapping[int, Hypercube]) -> dict[int, Hypercube]:
    """The grids of stages that have another size than planned, from a batch's routing as JSON."""
    out: dict[int, Hypercube] = {}
    for entry in raw:
        if "shares" not in entry or entry["stage"] not in planned:
            continue
        made = replace(planned[entry["stage"]], shares=tuple(entry["shares"]))
        if "was" in entry:
            hot = tuple(HotKey.from_json(key) for key in entry.get("hot", ()))
            made = Resized(made.dimensions, made.shares, made.classes_of, tuple(entry["was"]), hot)
        out[entry["stage"]] = made
    return out


def write_grid(stage: int, grid: Hypercube) -> dict[str, Any]:
    """A grid as an entry of a batch's routing.

    >>> entry = write_grid(1, Resized(((0,),), (4,), (frozenset({0}),), was=(2,)))
    >>> entry
    {'stage': 1, 'shares': [4], 'was': [2], 'hot': []}
    >>> read_grids([entry], {1: Hypercube(((0,),), (2,), (frozenset({0}),))})[1].units
    4
    """
    entry: dict[str, Any] = {"stage": stage, "shares": list(grid.shares)}
    if isinstance(grid, Resized):
        entry |= {"was": list(grid.was), "hot": [key.to_json() for key in grid.hot]}
    return entry
