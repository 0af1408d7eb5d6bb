"""How many units each side of a biclique gets: m and n follow the rates of the streams, and what their pairs cost.

    a unit of side 0 per batch     its share of the tuples of side 0, which it stores; all probes of side 1; its share of the pairs that these find
    ten times as many tuples of a  n = 1 of 8: every tuple of a visits one unit instead of four
    pairs cost more than tuples    m = n: then each side has half of the units for its half of the pairs

The number of units stays. Sides are resized as by scaling: units that are given up keep what they have, and units that are added have fresh numbers.

Invariant: a pure function of what was measured and remembered. Results do not depend on it: earlier routings are probed as long as their tuples live (`routing.epochs`).
Extends: Lin, Ooi, Wang, Yu (2015), section 3.2, where m and n are given, and equal in all experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from watersmeet.routing.biclique import TOUCHED, Biclique, Cells, Keys

FADE = 0.5
SEEN_AT_LEAST = 1000
"""Tuples and probes that must have been seen before sides are resized."""
GAIN = 0.2
"""Sides are resized if that takes this share off a batch."""
PAIR = 0.05
"""The work of looking at a pair; that of a tuple which is posted, sorted in and looked up is 1."""


@dataclass
class Flow:
    """What the units of both sides have had, fading; JSON goes into the manifest."""

    rows: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """By side, each tuple counted once."""
    pairs: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """By side, that its units have looked at."""
    fresh: int = 0
    """The number of the next unit; numbers are never used again."""

    def count(self, rows: Sequence[float], pairs: Sequence[float]) -> None:
        """Take a batch in.

        >>> flow = Flow()
        >>> flow.count([600, 10], [0, 7]); flow.count([600, 10], [0, 7])
        >>> flow.rows, flow.pairs
        ([900.0, 15.0], [0.0, 10.5])
        """
        self.rows = [round(old * FADE + new, 1) for old, new in zip(self.rows, rows, strict=True)]
        self.pairs = [round(old * FADE + new, 1) for old, new in zip(self.pairs, pairs, strict=True)]


def adapt_sizes(routing: Biclique, flow: Flow, cores: int) -> Biclique:
    """The routing with as many units as before, dealt to the sides as their work asks for. Changes the flow's next number.

    >>> from watersmeet.routing.biclique import biclique
    >>> adapt_sizes(biclique(4, 4), Flow([20_000, 1_000], [0, 5_000]), 2).sides
    (((0, 1, 2, 3, 8, 9, 10),), ((4,),))
    >>> adapt_sizes(biclique(4, 4), Flow([20_000, 10_000], [5_000, 5_000]), 2) == biclique(4, 4)
    True
    """
    m, n = (len(members) for members in routing.members)
    groups = [len(side) for side in routing.sides]
    if isinstance(routing.by, Keys) or sum(flow.rows) < SEEN_AT_LEAST or groups not in ([1, 1], [m, n]):
        return routing
    best = min(range(1, m + n), key=lambda size: (_measure(routing, flow, size, cores), abs(size - m)))
    if _measure(routing, flow, best, cores)[0] > (1 - GAIN) * _measure(routing, flow, m, cores)[0]:
        return routing
    flow.fresh = max(flow.fresh, routing.units)
    members = [_resize(routing.members[side], size, flow) for side, size in enumerate((best, m + n - best))]
    if groups == [1, 1]:
        return replace(routing, sides=((members[0],), (members[1],)))
    assert isinstance(routing.by, Cells)
    by = replace(routing.by, edges=((), ()))  # cells of equal depth are cut anew, see `routing.depth`
    return Biclique((tuple((u,) for u in members[0]), tuple((u,) for u in members[1])), by)


def _measure(routing: Biclique, flow: Flow, m: int, cores: int) -> tuple[float, float]:
    """How long a batch takes if side 0 has m units, and the work of the busiest one."""
    sizes = m, sum(len(members) for members in routing.members) - m
    by_range = isinstance(routing.by, Cells)
    work = []
    for side, size in enumerate(sizes):
        probed = min(1.0, TOUCHED / size) if by_range else 1.0
        pairs = flow.pairs[side] * PAIR / size
        work.append(flow.rows[side] / size + flow.rows[1 - side] * probed + pairs)
    whole = sum(size * each for size, each in zip(sizes, work, strict=True))
    return max(max(work), whole / cores), max(work)


def _resize(units: tuple[int, ...], size: int, flow: Flow) -> tuple[int, ...]:
    if size <= len(units):
        return units[:size]
    more = size - len(units)
    flow.fresh += more
    return (*units, *range(flow.fresh - more, flow.fresh))
