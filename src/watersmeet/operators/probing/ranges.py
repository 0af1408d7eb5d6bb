"""Bands and inequalities as ranges: what a probe asks a sorted index for.

    x < y             y in (x, top]                 over codes that keep order: exact
    lo <= x - y <= hi y in [x - hi, x - lo]         over whole numbers, dates, decimals: exact, and empty where it leaves 64 bits
                      the same, one step wider      over doubles, then tested: fl(x - y) <= hi does not mean y >= fl(x - hi)

All residuals of one column of y meet in one range, as all windows meet in one period. Of several columns the one
whose ranges hold the smallest share of a sample is probed, narrowed by those that rise with it (`x BETWEEN y - 1 AND
y + 1` is two columns of y); the other residuals are tested on what it finds. Ties: the order of the conditions.

Invariant: a range holds every value of y that the residual accepts; for `settled` residuals it holds no other.
Codes of doubles have NaN on top, as Spark does. x - y is NaN, and so on top, for a y that is NaN; a range of y without
an upper bound on x - y is therefore one of -y ("-float"), where such y are on top too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.kernels import key_range
from watersmeet.kernels.hashing import order_floats
from watersmeet.kernels.sorted_window import BOTTOM, TOP, Box, SortedIndex, narrow
from watersmeet.operators.probing.side import Member, VisibleSide
from watersmeet.plan.model import Plan
from watersmeet.plan.residual import Compare, Difference, Residual
from watersmeet.storage.segment import KeyColumns, Segment

PROBES, ROWS = 128, 1024
"""The sample on which columns are compared."""


@dataclass(frozen=True)
class Ranges:
    """For every probe a range of codes of one column; lo > hi is nothing."""

    column: str
    order: str
    """The kind of codes that the index is sorted by."""
    lo: np.ndarray
    hi: np.ndarray
    settled: tuple[Residual, ...] = ()
    others: tuple[Ranges, ...] = ()
    """Ranges of other columns."""

    def both(self, other: Ranges) -> Ranges:
        """The intersection with ranges of the same column."""
        lo, hi = np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi)
        return replace(self, lo=lo, hi=hi, settled=self.settled + other.settled)

    def inside(self, segment: Segment, since: np.ndarray, until: np.ndarray) -> tuple[SortedIndex, Box]:
        """A segment's index, and what to ask it for in these periods."""
        index, lo, hi = segment.sorted_index(self.column, self.order), self.lo, self.hi
        for other in self.others:
            second = segment.steps(self.column, self.order, other.column, other.order)
            if second is not None:
                least, most = narrow(index, second, other.lo, other.hi)
                lo, hi = np.maximum(lo, least), np.minimum(hi, most)
        return index, Box(lo, hi, since, until)

    def inside_keys(
        self, segment: Segment, columns: KeyColumns, codes: np.ndarray, since: np.ndarray, until: np.ndarray
    ) -> tuple[SortedIndex, Box]:
        """The same for rows with the probes' keys: an index of ranks, and which of them to ask for."""
        index = segment.key_range_index(columns, self.column, self.order)
        keys = key_range.find_keys(index, codes)
        lo, hi = key_range.find_ranks(index, keys, self.lo, self.hi)
        for other in self.others:
            second = segment.key_range_steps(columns, self.column, self.order, other.column, other.order)
            if second is not None:
                least, most = key_range.find_ranks(index, keys, other.lo, other.hi, second)
                lo, hi = np.maximum(lo, least), np.minimum(hi, most)
        return index.ranks, Box(lo, hi, since, until)


def most_selective(
    plan: Plan,
    members: Mapping[str, Member],
    bound: Mapping[str, np.ndarray],
    side: VisibleSide,
    with_new: bool,
    more: Sequence[Ranges] = (),
) -> Ranges | None:
    """The ranges to probe a side with, of residuals and some more; None if there are none."""
    found = merge_columns((*_all(plan, members, bound, side), *more))
    if len(found) < 2:
        return next(iter(found), None)
    largest = max((s for _, s in side.visible(with_new)), key=lambda s: s.rows, default=None)
    if largest is None:
        return None
    best = min(found, key=lambda r: estimate_share(largest.codes(r.column, r.order), r.lo, r.hi))
    return replace(best, others=tuple(r for r in found if r is not best))


def merge_columns(every: Iterable[Ranges]) -> list[Ranges]:
    """Ranges that all must hold, one for each column."""
    found: dict[tuple[str, str], Ranges] = {}
    for ranges in every:
        key = (ranges.column, ranges.order)
        found[key] = found[key].both(ranges) if key in found else ranges
    return list(found.values())


def _all(
    plan: Plan, members: Mapping[str, Member], bound: Mapping[str, np.ndarray], side: VisibleSide
) -> Iterator[Ranges]:
    for residual in plan.residuals:
        for y, x in ((residual.left[0], residual.right), (residual.right[0], residual.left)):
            if y in side.spec.aliases and x[0] in bound:
                ranges = of(residual, y, members[x[0]].codes(x[1], residual.kind)[bound[x[0]]])
                yield replace(ranges, column=side.spec.column(y, ranges.column))


def of(residual: Residual, y: str, x_codes: np.ndarray) -> Ranges:
    """The ranges of y's column, given the other side's codes, or doubles for a band over doubles."""
    y_is_left = residual.left[0] == y
    column = residual.left[1] if y_is_left else residual.right[1]
    if isinstance(residual, Compare):
        lo, hi = _beyond(x_codes, y_is_left, residual.op == "<")
        return Ranges(column, residual.kind, lo, hi, (residual,))
    if residual.is_exact:
        low, high = (residual.lo, residual.hi) if y_is_left else _mirror(residual)
        return Ranges(column, residual.kind, *_around_integers(x_codes, low, high), (residual,))
    if y_is_left:
        return Ranges(column, "float", *_around_floats(-x_codes, residual.lo, residual.hi))
    if residual.hi is None:
        return Ranges(column, "-float", *_around_floats(x_codes, residual.lo, None))
    return Ranges(column, "float", *_around_floats(-x_codes, *_mirror(residual)))


def _mirror(band: Difference) -> tuple[float | None, float | None]:
    """The bounds of right - left."""
    return None if band.hi is None else -band.hi, None if band.lo is None else -band.lo


def _beyond(x: np.ndarray, below: bool, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """y < x, y <= x, or y > x, y >= x."""
    if below:
        return np.where(strict & (x == BOTTOM), TOP, BOTTOM), np.where(x == BOTTOM, x, x - strict)
    return np.where(x == TOP, x, x + strict), np.where(strict & (x == TOP), BOTTOM, TOP)


def _around_integers(x: np.ndarray, low: float | None, high: float | None) -> tuple[np.ndarray, np.ndarray]:
    """x + low <= y <= x + high in whole numbers of any size, as far as y has 64 bits."""
    lo, under, over = _shift(x, low, BOTTOM)
    hi, under_hi, over_hi = _shift(x, high, TOP)
    lo[under], hi[over_hi] = BOTTOM, TOP
    none = over | under_hi
    lo[none], hi[none] = TOP, BOTTOM
    return lo, hi


def _shift(x: np.ndarray, by: float | None, unbounded: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x + by, and where that is below and above all of 64 bits."""
    if by is None:
        return np.full(len(x), unbounded), np.zeros(len(x), np.bool_), np.zeros(len(x), np.bool_)
    shift = int(by)
    wrapped = (shift - BOTTOM) % 2**64 + BOTTOM
    return x + np.int64(wrapped), x < BOTTOM - shift, x > TOP - shift


def _around_floats(w: np.ndarray, low: float | None, high: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Codes of z with low <= fl(z + w) <= high, and a few more.

    fl is monotone: if fl(z + w) <= high, then z + w <= next(high), and z, being a double, is <= fl(next(high) - w).
    """
    lo, hi = np.full(len(w), BOTTOM), np.full(len(w), TOP)
    with np.errstate(invalid="ignore", over="ignore"):
        if low is not None and np.nextafter(low, -np.inf) > -np.inf:
            lo = order_floats(np.nextafter(low, -np.inf) - w)
        if high is not None and np.nextafter(high, np.inf) < np.inf:
            hi = order_floats(np.nextafter(high, np.inf) - w)
    nan = np.isnan(w)
    lo[nan], hi[nan] = (BOTTOM, TOP) if high is None else (TOP, BOTTOM)
    return lo, hi


def estimate_share(values: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> float:
    """The share of a sample's pairs that ranges of values hold."""
    sample = np.sort(values[:: max(1, len(values) // ROWS)])
    some = slice(None, None, max(1, len(lo) // PROBES))
    first = np.searchsorted(sample, lo[some], side="left")
    end = np.searchsorted(sample, hi[some], side="right")
    return float(np.mean(np.maximum(end - first, 0)) / max(len(sample), 1))
