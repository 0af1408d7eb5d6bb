"""Hot keys in a grid: the tuples of a frequent key are spread over several units, and what joins them is copied there.

    share 8, key 17 is hot, its home is coordinate 2; side a is its anchor

                       0   1  [2]  3   4   5   6   7
    a, key 17                  x   x           x            each tuple at one of `spread`
    b, key 17                  x   x           x   x        each tuple at all of `copied`; 7 still holds tuples of a
    all other keys             where their hash says

A coordinate that begins to hold a hot key *adopts* it: it takes what its home has stored of the other sides (`operators.adopt`). One that is given up
gets no more tuples of the anchor, but copies as long as tuples of the anchor live there.

Invariant: a combination with a hot key is found where its tuple of the anchor is, and that is stored once. Whatever can match it is at all of `copied`,
the home always among them. So results do not depend on when a key becomes hot, how far it is spread, and when it cools down.
Beyond Lin, Ooi, Wang, Yu (2015), who spread subgroups of two streams: any number of sides, and any dimension of a hypercube.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from watersmeet.kernels.hash_window import group_rows
from watersmeet.routing.hypercube import Content, Delivery, Hypercube


@dataclass(frozen=True)
class HotKey:
    """One key of one dimension of a stage's grid."""

    stage: int
    dimension: int
    key: int
    """Its placement hash."""
    anchor: int
    """The side whose tuples are spread."""
    spread: tuple[int, ...]
    """The coordinates that new tuples of the anchor go to; the first one is the key's home."""
    copied: tuple[int, ...]
    """Those that all other tuples of the key go to."""
    adopting: tuple[int, ...] = ()
    """Those that begin with this batch."""
    left: Mapping[int, int] = field(default_factory=dict, hash=False)
    """Those that the anchor has left, and its highest event time then."""
    cool: int = 0
    """For how many batches in a row the key has been too rare for so many units."""

    @property
    def home(self) -> int:
        return self.spread[0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> HotKey:
        """
        >>> hot = HotKey(0, 0, 17, 1, (2, 3), (2, 3, 7), (3,), {7: 1000})
        >>> import json
        >>> HotKey.from_json(json.loads(json.dumps(hot.to_json()))) == hot
        True
        """
        lists = {name: tuple(raw[name]) for name in ("spread", "copied", "adopting")}
        return cls(**{**raw, **lists, "left": {int(at): ts for at, ts in raw["left"].items()}})


@dataclass(frozen=True)
class Spread:
    """A grid of which some keys are hot."""

    grid: Hypercube
    hot: tuple[HotKey, ...]
    stores_all: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return self.grid.kind

    @property
    def units(self) -> int:
        return self.grid.units

    def units_in_sql(self, position: int) -> list[str]:
        """No SQL: source tasks route."""
        return []

    def copies(self, position: int) -> int:
        """How many units a tuple is sent to, hot keys aside."""
        return self.grid.copies(position)

    homes = copies

    def is_primary(self, position: int, unit: int) -> bool:
        """Whether the unit counts tuples, hot keys aside: of these see `find_copies`."""
        return self.grid.is_primary(position, unit)

    def coordinate(self, unit: int, dimension: int) -> int:
        """Where a unit lies along a dimension."""
        return unit // self.grid.strides[dimension] % self.grid.shares[dimension]

    def find_adopted(self, unit: int) -> Iterator[tuple[HotKey, int]]:
        """The keys that a unit begins to hold with this batch, and the units that have what it needs of them."""
        for hot in self.hot:
            at = self.coordinate(unit, hot.dimension)
            if at in hot.adopting:
                yield hot, unit + (hot.home - at) * self.grid.strides[hot.dimension]

    def find_copies(self, position: int, unit: int, content: Content) -> np.ndarray:
        """Which of the rows of a side at a unit are copies that hot keys have there: another unit counts them."""
        out = np.zeros(content.rows, bool)
        fixed = self.grid.find_fixed(position)
        for hot in self.hot:
            is_here = hot.anchor == position or hot.home == self.coordinate(unit, hot.dimension)
            if fixed[hot.dimension] and not is_here:
                out |= content.key(self.grid.dimensions[hot.dimension]) == hot.key
        return out

    def deliveries(self, position: int, content: Content) -> Iterator[Delivery]:
        """Where rows go: as in the grid, but for hot keys."""
        grid, fixed = self.grid, self.grid.find_fixed(position)
        base, free = np.zeros(content.rows, np.int64), list[Sequence[int]]()
        parts: list[tuple[np.ndarray, list[Sequence[int]]]] = [(np.arange(content.rows), [])]
        for number, (dim, share, stride) in enumerate(zip(grid.dimensions, grid.shares, grid.strides, strict=True)):
            if not fixed[number]:
                free.append([c * stride for c in range(share)])
            elif share > 1:
                code = content.spread() if dim[0] < 0 else content.key(dim)
                at = code % share
                for hot in (h for h in self.hot if h.dimension == number):
                    mine = code == hot.key
                    if hot.anchor == position and mine.any():
                        at = np.where(mine, np.array(hot.spread)[content.spread() % len(hot.spread)], at)
                    elif mine.any():
                        at = np.where(mine, 0, at)
                        parts = _split(parts, mine, [c * stride for c in hot.copied])
                base = base + at * stride
        for rows, copied in parts:
            offsets = [sum(o) for o in itertools.product(*free, *copied)]
            for cell, mine_idx in group_rows(base[rows]):
                yield Delivery("both", tuple(cell + o for o in offsets), rows if mine_idx is None else rows[mine_idx])


def _split(
    parts: list[tuple[np.ndarray, list[Sequence[int]]]], mask: np.ndarray, offsets: Sequence[int]
) -> list[tuple[np.ndarray, list[Sequence[int]]]]:
    """Parts of rows, of which those of a mask are copied along some offsets more."""
    out = []
    for rows, copied in parts:
        inside = mask[rows]
        halves = ((rows[~inside], copied), (rows[inside], [*copied, offsets]))
        out += [(part, along) for part, along in halves if len(part)]
    return out
