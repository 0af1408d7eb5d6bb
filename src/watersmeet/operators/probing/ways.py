"""Hints as ranges: where the partners by a condition can be that only the library evaluator can decide.

    abs(x - y) <= r           y in [x - r, x + r], and a bit more for what doubles round; where y brings r, by the largest r that is stored
    x = y                     y's code is x's
    way 1 OR way 2 OR ...     all of way 1; of way 2 what way 1 does not hold; ...

So no pair is found twice, and nothing has to be remembered of what was found before. The condition itself is tested on all of it.

Invariant: every pair that satisfies a hint's condition is in all ranges of one of its ways, and the union yields it once: a way yields what is in all its ranges,
and no earlier way has yielded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.kernels import sorted_window
from watersmeet.kernels.hashing import order_floats
from watersmeet.kernels.sorted_window import BOTTOM, TOP
from watersmeet.operators.probing import ranges
from watersmeet.operators.probing.ranges import Ranges, estimate_share, merge_columns
from watersmeet.operators.probing.side import Bound, Member, VisibleSide
from watersmeet.plan.model import Plan
from watersmeet.plan.residual import Clue, Compare, Difference, Hint, Near, Residual
from watersmeet.storage.segment import Segment

ROUNDED = 2.0**-50
"""What three roundings of doubles move a sum by, at most, as a share of its parts."""
MOST = 0.5
"""A union that holds a larger share of a sample than this is not worth its indexes."""


@dataclass(frozen=True)
class ByUnion:
    """Rows in the ranges of any of several ways."""

    ways: tuple[Ranges, ...]
    settled: tuple[Residual, ...] = ()
    equal: tuple[int, ...] = ()

    def find(
        self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Chunks of (position of the probe, row of the segment)."""
        for number, way in enumerate(self.ways):
            for probe_idx, row_idx in sorted_window.pairs(*way.inside(segment, since, until), limit):
                keep = np.ones(len(row_idx), np.bool_)
                for other in way.others:
                    keep &= _hold(other, segment, probe_idx, row_idx)
                for earlier in self.ways[:number]:
                    keep &= ~_hold_all(earlier, segment, probe_idx, row_idx)
                yield (probe_idx, row_idx) if keep.all() else (probe_idx[keep], row_idx[keep])


def _hold(ranges: Ranges, segment: Segment, probe_idx: np.ndarray, row_idx: np.ndarray) -> np.ndarray:
    """Which pairs are in ranges of one column."""
    codes = segment.codes(ranges.column, ranges.order)[row_idx]
    return np.asarray((codes >= ranges.lo[probe_idx]) & (codes <= ranges.hi[probe_idx]))


def _hold_all(way: Ranges, segment: Segment, probe_idx: np.ndarray, row_idx: np.ndarray) -> np.ndarray:
    """Which pairs are in the ranges of all columns of a way."""
    held = _hold(way, segment, probe_idx, row_idx)
    for other in way.others:
        held &= _hold(other, segment, probe_idx, row_idx)
    return held


def find_union(
    plan: Plan, members: Mapping[str, Member], bound: Bound, side: VisibleSide, with_new: bool
) -> ByUnion | None:
    """The hint that leaves least to be tested, as a look-up; None if none relates the side to what is bound, or none is worth it."""
    largest = max((s for _, s in side.visible(with_new)), key=lambda s: s.rows, default=None)
    if largest is None:
        return None
    shares: list[tuple[float, int, tuple[Ranges, ...]]] = []
    for hint in plan.hints:
        ways = find_ways(hint, members, bound, side, largest)
        if ways:
            found = [estimate_share(largest.codes(w.column, w.order), w.lo, w.hi) for w in ways]
            shares.append((sum(found), len(shares), ways))
    best = min(shares, default=None)
    return ByUnion(best[2]) if best is not None and best[0] <= MOST else None


def find_ways(
    hint: Hint, members: Mapping[str, Member], bound: Bound, side: VisibleSide, largest: Segment
) -> tuple[Ranges, ...]:
    """By way the ranges of the column that holds the smallest share of a sample, and the others; none if a way says nothing of the side."""
    ways = []
    for way in hint.ways:
        found = merge_columns(r for clue in way for r in _find_clued(clue, members, bound, side))
        if not found:
            return ()
        best = min(found, key=lambda r: estimate_share(largest.codes(r.column, r.order), r.lo, r.hi))
        ways.append(replace(best, others=tuple(r for r in found if r is not best)))
    return tuple(ways)


def _find_clued(clue: Clue, members: Mapping[str, Member], bound: Bound, side: VisibleSide) -> Iterator[Ranges]:
    """The ranges of a side's column that a clue leaves; none if it relates other sides."""
    for (y, column), x in ((clue.left, clue.right), (clue.right, clue.left)):
        if y not in side.spec.aliases or x[0] not in bound:
            continue
        column = side.spec.column(y, column)
        if isinstance(clue, Near):
            yield Ranges(column, "float", *_find_near(clue, x, members, bound, side))
        elif isinstance(clue, Compare | Difference):
            codes = members[x[0]].codes(x[1], clue.kind)[bound[x[0]]]
            yield replace(ranges.of(clue, y, codes), column=column, settled=())
        else:
            codes = members[x[0]].codes(x[1], clue.kind)[bound[x[0]]]
            yield Ranges(column, clue.kind, codes, codes)


def _find_near(
    clue: Near, x: tuple[str, str], members: Mapping[str, Member], bound: Bound, side: VisibleSide
) -> tuple[np.ndarray, np.ndarray]:
    """From x - r to x + r as codes. A NaN is greater than all numbers: nothing is within a number of it, and all is within it."""
    values = members[x[0]].codes(x[1], "double")[bound[x[0]]]
    alias, name = clue.radius
    if alias in bound:
        radius = members[alias].codes(name, "double")[bound[alias]]
    else:
        stored = [s.codes(side.spec.column(alias, name), "double").max() for s in side.segments if s.rows]
        radius = np.full(len(values), np.max(stored) if stored else np.nan)  # NaN if there is one, or a NULL
    return spread_around(values, radius)


def spread_around(values: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the first and the last double within radius of values.

    >>> lo, hi = spread_around(np.array([1.0, np.nan, 5.0]), np.array([0.5, 1.0, np.nan]))
    >>> (lo <= hi).tolist(), bool(lo[0] <= order_floats(np.array([0.5]))[0]), bool(lo[2] == BOTTOM)
    ([True, False, True], True, True)
    """
    with np.errstate(invalid="ignore", over="ignore"):
        wider = radius + ROUNDED * (np.abs(values) + np.abs(radius))
        low, high = np.nextafter(values - wider, -np.inf), np.nextafter(values + wider, np.inf)
    lo, hi = order_floats(low), order_floats(high)
    nowhere = np.isnan(values)
    lo[nowhere], hi[nowhere] = TOP, BOTTOM
    everywhere = np.isnan(radius) | (~nowhere & (np.isnan(low) | np.isnan(high)))
    lo[everywhere], hi[everywhere] = BOTTOM, TOP
    return lo, hi


def narrow_by_hints(
    plan: Plan, members: Mapping[str, Member], bound: Bound, side: VisibleSide, with_new: bool
) -> Sequence[Ranges]:
    """Ranges of hints with one way only, which hold beside all other conditions."""
    largest = max((s for _, s in side.visible(with_new)), key=lambda s: s.rows, default=None)
    if largest is None:
        return ()
    alone = [hint for hint in plan.hints if len(hint.ways) == 1]
    found = [way for hint in alone for way in find_ways(hint, members, bound, side, largest)]
    return [ranges for way in found for ranges in (replace(way, others=()), *way.others)]
