"""How a unit finds the combinations of a turn, and the only place that chooses it.

    a sweep      a kernel takes all drivers at once, as one problem of arrays: `mw`, `lca`, and what other distributions add
    look-ups     a driver's tuples probe one side after another: by their keys, by ranges of values, or by time alone

`kernel="hw"` looks up by key where one is shared, else by range, else by time; `sorted` never by key, `nlw` by time alone. Where a range is known, too, and a
probe's key has more than MANY rows, as a sample says, it looks up the range among the rows of the key. Conditions without codes may have hints, such as an OR of ranges (`ways`). Where nobody has forced a kernel, event times decide:

    sample       SAMPLE of each driver's new tuples, looked up among the other sides' times
    share        how many of them have a partner in every other side; met: how many partners those have, per tuple
    cheap        to sweep old and new tuples together: see `sweep_ns`
    small share  drop the others before any index is built or any predicate looked at, then probe

Looking a tuple's period up among sorted times costs about half of a probe, so dropping pays only where most go. A sweep
finds out the same for less, since it goes through the times once, but it also goes through what is stored in the windows of new tuples, and tests
every pair inside them: so few may have partners, and not too many. Where a batch is small, what matters is that a sweep is one call for all drivers.

Invariant: a tactic changes the cost and never the combinations: what a look-up does not settle is tested on what it finds, and no tuple is dropped
that has a result, since a result's members are in one another's windows. So every step decides afresh.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.2: mode 1 of MW, for every other kernel; section 4.3: MW wins where
rates differ or a stream is often silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from watersmeet.columns.arrow import code_together
from watersmeet.kernels import catalogue, hash_window, nested_loop, sorted_window
from watersmeet.kernels.catalogue import Kernel
from watersmeet.kernels.hash_window import pairs
from watersmeet.kernels.instants import mark, shift
from watersmeet.kernels.merge_window import lca, mw
from watersmeet.operators.probing.nearby import Nearby, find_nearby
from watersmeet.operators.probing.ranges import Ranges, estimate_share, most_selective
from watersmeet.operators.probing.side import Bound, Member, VisibleSide
from watersmeet.operators.probing.ways import find_union, narrow_by_hints
from watersmeet.plan.model import Plan
from watersmeet.plan.residual import Residual
from watersmeet.query.window import WindowGraph
from watersmeet.storage.segment import KeyColumns, Segment, key_columns

SAMPLE, FEW = 64, 256
"""Tuples in a sample; so few new tuples of a step are not worth one."""
SURE = 2.0
"""A sweep that is so many times cheaper, if partners lie evenly in time, needs no sample: with many streams that costs more than their look-ups."""
MANY = 16
"""Rows of a probe's key in the largest segment, on average, from which on a range is looked up among them."""
PAYS = 0.15
"""Dropping pays up to this share for every other side that a tuple then need not probe."""
PROBE_NS, SWEEP_NS, ADMIT_NS, TEST_NS = 22.0, 8.0, 25.0, 4.0
"""A new tuple's probe of one other side; and of a sweep every tuple, every one that has partners, every pair in the window. As
measured by `watersmeet bench sweep`; only their ratios matter."""
LOOKUP_NS, TURN_NS = 110_000.0, 220_000.0
"""What every driver's look-ups take at least, however few tuples it has, and what a sweep takes: it is one call for all drivers. So small batches of many
streams are swept."""


class PartnerTimes:
    """The times of a step's sides."""

    def __init__(self, windows: WindowGraph, sides: Sequence[VisibleSide]) -> None:
        self.windows, self.sides = windows, sides
        self._drivers = [s for s in sides if len(s.new_idx)]
        self._new = sum(len(s.new_idx) for s in self._drivers)
        self._samples: dict[str, tuple[int, np.ndarray]] = {}

    def share(self, driver: VisibleSide) -> float:
        """The share of a driver's new tuples with a window partner in every other side, by a sample."""
        size, having = self._sample(driver)
        return len(having) / size

    @property
    def sweep_pays(self) -> bool:
        """Whether a sweep is estimated to be cheaper than probing."""
        return self._new > 0 and self.sweep_ns < self._probe_ns

    @property
    def _probe_ns(self) -> float:
        return PROBE_NS * (len(self.sides) - 1) + LOOKUP_NS * len(self._drivers) / self._new

    @property
    def sweep_ns(self) -> float:
        """What a sweep is estimated to cost per new tuple; once that is too much, no more is found out."""
        near, most = find_nearby(self.windows, self.sides), self._probe_ns
        cost = (TURN_NS + SWEEP_NS * sum(one.size for one in near)) / self._new
        weights = [(s, len(s.new_idx) / self._new) for s in self._drivers]
        guess = cost + ADMIT_NS + TEST_NS * sum(weight * self._spread_evenly(s, near) for s, weight in weights)
        if self._new < FEW or SURE * guess < most:
            return guess
        for driver, weight in weights:
            if cost < most:
                cost += weight * ADMIT_NS * self.share(driver)
        for driver, weight in weights:
            if cost < most and self.share(driver):
                cost += weight * TEST_NS * self._count_met(driver, most / (weight * TEST_NS))
        return cost

    def _spread_evenly(self, driver: VisibleSide, near: Sequence[Nearby]) -> float:
        """How many window partners a new tuple has on average, if those that any of them can meet lie evenly in time."""
        assert driver.new is not None
        met, span = 0.0, driver.new.max_ts - driver.new.min_ts
        for one in near:
            if one.side is not driver:
                lo, hi = self.windows.spans[driver.spec.reference, one.side.spec.reference]
                met += one.size * (hi - lo + 1) / (hi - lo + 1 + span)
        return met

    def worth_probing(self, driver: VisibleSide) -> np.ndarray:
        """A driver's new tuples, less those without a partner if many have none."""
        rows = driver.new_idx
        pays = self._new >= FEW and len(rows) > 0 and self.share(driver) <= PAYS * (len(self.sides) - 1)
        return self._keep_partnered(driver, rows) if pays else rows

    def _count_met(self, driver: VisibleSide, most: float) -> float:
        """How many window partners a new tuple has on average, if it has one in every other side; a bit above `most` at most."""
        (size, rows), found = self._sample(driver), 0
        ts, x = driver.ts()[rows], driver.spec.reference
        for side in self.sides:
            if side is not driver and len(rows):
                lo, hi = (shift(ts, span) for span in self.windows.spans[x, side.spec.reference])
                for _, segment in reversed(side.visible(True)):
                    if found <= most * size:
                        ends = np.searchsorted(segment.times, hi, side="right")
                        found += int(np.sum(ends - np.searchsorted(segment.times, lo, side="left")))
        return found / size

    def _sample(self, driver: VisibleSide) -> tuple[int, np.ndarray]:
        """How many of a driver's new tuples were looked at, and those with a partner in every other side."""
        if driver.spec.name not in self._samples:
            rows = driver.new_idx
            sample = np.ascontiguousarray(rows[:: max(1, len(rows) // SAMPLE)])
            self._samples[driver.spec.name] = len(sample), self._keep_partnered(driver, sample)
        return self._samples[driver.spec.name]

    def _keep_partnered(self, driver: VisibleSide, rows: np.ndarray) -> np.ndarray:
        ts, x = driver.ts(), driver.spec.reference
        for side in self.sides:
            if side is not driver and len(rows):
                (low, high), found = self.windows.spans[x, side.spec.reference], 0
                marked = np.zeros(len(ts), np.bool_)
                for _, segment in reversed(side.visible(True)):
                    if found < len(rows):
                        found = mark(ts, rows, low, high, segment.times, marked)
                rows = rows if found == len(rows) else rows[marked[rows]]
        return rows


Found = Iterator[tuple[np.ndarray, np.ndarray]]
"""Chunks of (position of the probe, row of the segment)."""
SWEEPS: Mapping[str, Kernel] = {"mw": partial(mw, refine="early"), "lca": partial(lca, refine="early")}
"""Sweeps as units run them: pairs' own windows are cut out of the buffers at once."""
_BY_KEY, _BY_RANGE = ("hw",), ("hw", "sorted")
_LOOKS_UP = ("hw", "sorted", "nlw")
"""Kernels that look up; all others sweep."""


class Lookup(Protocol):
    """One probe of one side."""

    @property
    def settled(self) -> tuple[Residual, ...]:
        """Conditions that hold for all that it finds."""

    @property
    def equal(self) -> tuple[int, ...]:
        """Key classes whose codes are equal in all that it finds."""

    def find(self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int) -> Found:
        """The segment's rows within the probes' periods that may match."""


@dataclass(frozen=True)
class ByKey:
    """Rows with the same code of keys."""

    columns: KeyColumns
    classes: tuple[int, ...]
    codes: np.ndarray
    settled: tuple[Residual, ...] = ()

    @property
    def equal(self) -> tuple[int, ...]:
        return self.classes if len(self.classes) == 1 else ()  # codes of several may collide

    def find(self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int) -> Found:
        index = segment.index(self.columns)
        yield from pairs(*hash_window.probe(index, self.codes, since, until), index.rows, limit)


@dataclass(frozen=True)
class ByKeyAndRange(ByKey):
    """Rows with the same code of keys, in a range of values."""

    ranges: Ranges = field(kw_only=True)

    def find(self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int) -> Found:
        asked = self.ranges.inside_keys(segment, self.columns, self.codes, since, until)
        yield from sorted_window.pairs(*asked, limit)


@dataclass(frozen=True)
class ByRange:
    """Rows in a range of values."""

    ranges: Ranges
    equal: tuple[int, ...] = ()

    @property
    def settled(self) -> tuple[Residual, ...]:
        return self.ranges.settled

    def find(self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int) -> Found:
        yield from sorted_window.pairs(*self.ranges.inside(segment, since, until), limit)


@dataclass(frozen=True)
class ByTime:
    """All rows of the period."""

    settled: tuple[Residual, ...] = ()
    equal: tuple[int, ...] = ()

    def find(self, segment: Segment, since: np.ndarray, until: np.ndarray, limit: int) -> Found:
        index = segment.time_index()
        yield from pairs(*nested_loop.probe(index, since, until), index.rows, limit)


@dataclass(frozen=True)
class Tactics:
    """The choices of one plan."""

    plan: Plan

    @property
    def needs_all(self) -> bool:
        """Whether the choice of a tactic, or the tactic, needs all new tuples at once."""
        return self.plan.may_sweep or self.plan.kernel not in _LOOKS_UP

    def sweep(self, times: PartnerTimes) -> str | None:
        """The kernel that sweeps this turn, if one does; all sides must have their new tuples by now."""
        if self.plan.may_sweep and times.sweep_pays:
            return "lca"
        return None if self.plan.kernel in _LOOKS_UP else self.plan.kernel

    def name(self, sweep: str | None) -> str:
        """What a turn has run, as `kernel=` spells it."""
        kernel = sweep or self.plan.kernel
        return f"gca({kernel})" if self.plan.gca else kernel

    def lookup(
        self, members: Mapping[str, Member], bound: Bound, side: VisibleSide, shared: tuple[int, ...], *, sees_new: bool
    ) -> Lookup:
        """How combinations find their partners in a side, with which they share keys of some classes."""
        if shared and self.plan.kernel in _BY_KEY:
            codes = code_together([_codes(self.plan, members, bound, c) for c in shared])
            by_key = ByKey(key_columns(self.plan, side.spec.keys, shared), shared, codes)
            narrows = self.plan.residuals or self.plan.hints
            if not narrows or not _finds_many(by_key, side, sees_new=sees_new):
                return by_key
            ranges = self._find_ranges(members, bound, side, sees_new=sees_new)
            if ranges is None:
                return by_key
            return ByKeyAndRange(by_key.columns, shared, codes, ranges.settled, ranges=ranges)
        if self.plan.kernel not in _BY_RANGE:
            return ByTime()
        ranges = self._find_ranges(members, bound, side, sees_new=sees_new)
        if ranges is not None:
            return ByRange(ranges)
        return (find_union(self.plan, members, bound, side, sees_new) if self.plan.hints else None) or ByTime()

    def _find_ranges(
        self, members: Mapping[str, Member], bound: Bound, side: VisibleSide, *, sees_new: bool
    ) -> Ranges | None:
        """The ranges of residuals, and of hints that have one way."""
        more = narrow_by_hints(self.plan, members, bound, side, sees_new) if self.plan.hints else ()
        return most_selective(self.plan, members, bound, side, sees_new, more)


def _finds_many(by_key: ByKey, side: VisibleSide, *, sees_new: bool) -> bool:
    """Whether a key has many rows, by a sample of the largest segment."""
    largest = max((s for _, s in side.visible(sees_new)), key=lambda s: s.rows, default=None)
    if largest is None or largest.rows <= MANY:
        return False
    return estimate_share(largest.key(by_key.columns), by_key.codes, by_key.codes) * largest.rows > MANY


def kernel_of(name: str) -> tuple[Kernel, bool]:
    """A kernel that sweeps by its name, and whether it needs to know the order in which tuples arrive."""
    return (SWEEPS[name], False) if name in SWEEPS else (catalogue.find_kernel(name), True)


def _codes(plan: Plan, members: Mapping[str, Member], bound: Bound, c: int) -> np.ndarray:
    x = next(x for x in bound if c in members[x].keys)
    return members[x].codes(members[x].keys[c], plan.classes[c].kind)[bound[x]]
