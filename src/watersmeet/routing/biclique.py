"""Join-biclique routing: a tuple is stored at one unit of its side and probes a subgroup of the other side's.

    side 0   R1  R2 | R3  R4        d = 2 subgroups          r: stored at one of {R1, R2}, probes {S1, S2}
    side 1   S1  S2 | S3  S4        e = 2 subgroups          s: stored at one of {S3, S4}, probes {R3, R4}

What decides the subgroup:

    nothing (random)   one subgroup per side: any condition at all; a probe visits the whole other side
    keys (contrand)    the hash of equal keys; with subgroups of one unit it is plain hash routing
    a band (range)     values are cut into cells twice as wide as the band, and cells are assigned to subgroups in turn;
                       a probe visits the subgroups of all cells that its band touches: one or two. Where the distribution
                       is known, a subgroup is the cell between two of its quantiles (`routing.depth`)

Inside a subgroup the hash of the row's content decides: "random" without chance, since a task may run twice.

Invariant: of two tuples that can match, each is stored once, and each probes exactly once the unit where the other is
stored; no delivery brings one row to one unit twice.
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.1 and 3.2.2, algorithm 1 (ContRand, ValueRangeOf).
Departs from the paper: value ranges are cells assigned in turn at first, so they need no knowledge of the distribution. Keys that
are known to be hot are spread over their whole side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from watersmeet.kernels.hash_window import group_rows
from watersmeet.routing.hypercube import Content, Delivery

Groups = tuple[tuple[int, ...], ...]
"""The units of every subgroup of a side."""
SAFETY = 2.0**-48
"""Relative width by which a band is widened before it is cut into cells: floating point may round either way."""
LARGEST_CELL = 2.0**60
NARROWEST_CELL = 2.0**-30
TOUCHED = 1.5
"""Cells that a band touches on average, cells being twice as wide as it."""


@dataclass(frozen=True)
class Keys:
    """Subgroups by the hash of keys; `hot` are the hashes of keys that are spread over the whole side."""

    classes: tuple[int, ...]
    hot: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cells:
    """Subgroups by cells of values: `reach[side]` is (lo, hi) of the other side's value minus one's own."""

    columns: tuple[str, str]
    reach: tuple[tuple[float, float], tuple[float, float]]
    width: float
    offset: float = 0.0
    """Where cells begin: between whole numbers, if values are whole, so that rounding brings no probe too many."""
    edges: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    """By side where one cell ends and the next begins, if they follow the distribution; else none."""
    ordered: bool = False
    """Whether NaN is the largest value, and what is not finite is near its like; else that is near nothing."""

    @classmethod
    def of_band(cls, columns: tuple[str, str], lo: float, hi: float, *, integers: bool, ordered: bool = False) -> Cells:
        """For lo <= value of side 0 - value of side 1 <= hi."""
        span = max(hi - lo, 0.0) + (1.0 if integers else 0.0)
        width, offset = max(2.0 * span, NARROWEST_CELL), 0.5 if integers else 0.0
        return cls(columns, ((-hi, -lo), (lo, hi)), width, offset, ordered=ordered)

    def cell(self, side: int, value: np.ndarray) -> np.ndarray:
        """The cell of a side in which a value lies; values beyond all cells share the outermost ones."""
        number = np.where(np.isnan(value), np.inf if self.ordered else 0.0, value)
        if self.edges[side]:
            return np.searchsorted(np.array(self.edges[side]), number, side="right")
        with np.errstate(over="ignore"):
            cell = np.floor((number + self.offset) / self.width)
        return np.clip(cell, -LARGEST_CELL, LARGEST_CELL).astype(np.int64)

    def near(self, side: int, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last cell of the other side that partners of a side's values can lie in; none if the last is before the first."""
        is_finite = np.isfinite(value)
        number = np.where(is_finite, value, 0.0)
        slack = SAFETY * (np.abs(number) + max(abs(b) for b in self.reach[side]))
        with np.errstate(over="ignore"):
            first = self.cell(1 - side, number + self.reach[side][0] - slack)
            last = self.cell(1 - side, number + self.reach[side][1] + slack)
        if not self.ordered:
            return first, np.where(is_finite, last, first - 1)
        alone = self.cell(1 - side, value)
        return np.where(is_finite, first, alone), np.where(is_finite, last, alone)


@dataclass(frozen=True)
class Biclique:
    """m + n units; `by` decides the subgroup."""

    sides: tuple[Groups, Groups]
    by: Keys | Cells | None = None
    stores_all: ClassVar[bool] = False
    """A unit stores the tuples of one side; copies of the other's come to probe."""

    @property
    def by_keys(self) -> bool:
        """Whether equal keys decide the subgroup."""
        return isinstance(self.by, Keys)

    def units_in_sql(self, side: int) -> list[str]:
        """No SQL: source tasks route, who need not copy rows for that."""
        return []

    @property
    def kind(self) -> str:
        if isinstance(self.by, Cells):
            return "range"
        if self.by is None:
            return "random"
        return "hash" if all(len(g) == 1 for side in self.sides for g in side) else "contrand"

    @cached_property
    def members(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """All units of each side."""
        return _flat(self.sides[0]), _flat(self.sides[1])

    @property
    def units(self) -> int:
        """One more than the highest unit."""
        return 1 + max(*self.members[0], *self.members[1])

    def copies(self, side: int) -> float:
        """How often a tuple of a side travels on average: once to be stored, and to every unit that it probes."""
        other = self.sides[1 - side]
        visited = TOUCHED if isinstance(self.by, Cells) and len(other) > 1 else 1.0
        return 1 + visited * sum(len(g) for g in other) / len(other)

    def is_primary(self, side: int, unit: int) -> bool:
        """Whether a unit counts a tuple that it stores: there are no copies."""
        return True

    def homes(self, side: int) -> float:
        """How many units store a tuple of a side."""
        return 1.0

    def deliveries(self, side: int, content: Content) -> list[Delivery]:
        """Where the rows of a side go."""
        return [*self.store(side, content), *self.probe(side, content)]

    def store(self, side: int, content: Content) -> Iterator[Delivery]:
        """The one unit of every row's own side."""
        groups = self.sides[side]
        sizes = np.array([len(g) for g in groups])
        table = np.zeros((len(groups), int(sizes.max())), np.int64)
        for n, group in enumerate(groups):
            table[n, : len(group)] = group
        at = self._group(side, content, len(groups))
        spread = content.spread() % 2**31 if table.size > 1 else np.zeros(content.rows, np.int64)
        unit = table[at, spread % sizes[at]]
        hot = self._hot(content)
        if hot is not None:
            everyone = np.array(self.members[side], np.int64)
            unit = np.where(hot, everyone[spread % len(everyone)], unit)
        yield from (Delivery("store", (number,), rows) for number, rows in group_rows(unit))

    def probe(self, side: int, content: Content) -> Iterator[Delivery]:
        """The subgroups of the other side in which a row's partners can be."""
        groups = self.sides[1 - side]
        if len(groups) == 1:
            yield Delivery("probe", groups[0])
            return
        for group, rows in self._visits(side, content, len(groups)):
            if len(rows):
                yield Delivery("probe", groups[group], None if len(rows) == content.rows else rows)
        hot = self._hot(content)
        if hot is not None and hot.any():
            yield Delivery("probe", self.members[1 - side], np.flatnonzero(hot))

    def _group(self, side: int, content: Content, groups: int) -> np.ndarray:
        if groups == 1:
            return np.zeros(content.rows, np.int64)
        if isinstance(self.by, Keys):
            return content.key(self.by.classes) % groups
        assert isinstance(self.by, Cells)
        return self.by.cell(side, content.value(self.by.columns[side])) % groups

    def _hot(self, content: Content) -> np.ndarray | None:
        if not isinstance(self.by, Keys) or not self.by.hot:
            return None
        return np.isin(content.key(self.by.classes), np.array(self.by.hot, np.int64))

    def _visits(self, side: int, content: Content, groups: int) -> Iterator[tuple[int, np.ndarray]]:
        """For every subgroup of the other side the rows that probe it, keys that are hot aside."""
        if isinstance(self.by, Keys):
            group, hot = content.key(self.by.classes) % groups, self._hot(content)
            if hot is not None:
                group = np.where(hot, -1, group)
            yield from ((n, np.flatnonzero(group == n)) for n in range(groups))
            return
        assert isinstance(self.by, Cells)
        first, last = self.by.near(side, content.value(self.by.columns[side]))
        visited = np.zeros((groups, content.rows), bool)
        rows = np.arange(content.rows)
        most = int(np.max(last - first, initial=-1)) + 1
        for step in range(min(most, groups)):  # so many cells in a row touch every subgroup
            within = rows[first + step <= last]
            visited[(first[within] + step) % groups, within] = True
        yield from ((n, np.flatnonzero(visited[n])) for n in range(groups))

    def with_hot(self, codes: Iterable[int]) -> Biclique:
        """The same routing with these keys spread over their whole side."""
        assert isinstance(self.by, Keys)
        return replace(self, by=replace(self.by, hot=tuple(sorted(codes))))

    def to_json(self) -> dict[str, Any]:
        by: Any = None
        if isinstance(self.by, Keys):
            by = {"classes": list(self.by.classes), "hot": list(self.by.hot)}
        elif isinstance(self.by, Cells):
            reach = [list(r) for r in self.by.reach]
            by = {"columns": list(self.by.columns), "reach": reach, "width": self.by.width, "offset": self.by.offset}
            by |= {"edges": [list(edges) for edges in self.by.edges]} if any(self.by.edges) else {}
            by |= {"ordered": True} if self.by.ordered else {}
        return {"sides": [[list(g) for g in side] for side in self.sides], "by": by}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Biclique:
        """
        >>> plain = biclique(4, 3, Keys((0,)), 2, 1)
        >>> Biclique.from_json(plain.to_json()) == plain
        True
        """
        left, right = (tuple(tuple(g) for g in side) for side in raw["sides"])
        by: Keys | Cells | None = None
        if raw["by"] is not None and "classes" in raw["by"]:
            by = Keys(tuple(raw["by"]["classes"]), tuple(raw["by"]["hot"]))
        elif raw["by"] is not None:
            near, far = (tuple(r) for r in raw["by"]["reach"])
            first, second = (tuple(e) for e in raw["by"].get("edges", ((), ())))
            of = raw["by"]
            edges, ordered = (first, second), of.get("ordered", False)
            by = Cells(tuple(of["columns"]), (near, far), of["width"], of["offset"], edges, ordered)
        return cls((left, right), by)


def biclique(m: int, n: int, by: Keys | Cells | None = None, d: int = 1, e: int = 1) -> Biclique:
    """m units in d subgroups and n units in e subgroups, numbered from 0.

    >>> biclique(4, 4, Keys((0,)), 2, 2).sides
    (((0, 1), (2, 3)), ((4, 5), (6, 7)))
    >>> biclique(1, 2).kind
    'random'
    """
    assert 1 <= d <= m
    assert 1 <= e <= n
    return Biclique((_deal(range(m), d), _deal(range(m, m + n), e)), by)


def _deal(units: range, groups: int) -> Groups:
    """Units cut into groups of about equal size."""
    cuts = [units.start + len(units) * g // groups for g in range(groups + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(cuts))


def _flat(groups: Groups) -> tuple[int, ...]:
    return tuple(u for g in groups for u in g)
