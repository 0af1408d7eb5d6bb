"""What time alone says of a step: which of a driver's new tuples have a window partner in every other side.

    sample      SAMPLE of each driver's new tuples, looked up among the other sides' times
    share       how many of them have a partner in every other side; met: how many partners those have, per tuple
    cheap       to sweep old and new tuples together, if nobody has forced a kernel: see `sweep_ns`
    small share drop the others before any index is built or any predicate looked at, then probe

Looking a tuple's period up among sorted times costs about half of a probe, so dropping pays only where most go. A sweep
finds out the same for less, since it goes through the times once, but it also goes through all that is stored, and tests
every pair inside the window: so few may have partners, and not too many.

Invariant: no tuple is dropped that has a result: a result's members are in one another's windows. All of this moves
nothing and changes no result, so every step decides afresh.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.2: mode 1 of MW, for every other kernel; section 4.3: MW wins where
rates differ or a stream is often silent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.kernels.instants import shift
from watersmeet.kernels.partners import mark
from watersmeet.query.window import WindowGraph
from watersmeet.units.side import Side

SAMPLE, FEW = 64, 256
"""Tuples in a sample; so few new tuples of a step are not worth one."""
PAYS = 0.15
"""Dropping pays up to this share for every other side that a tuple then need not probe."""
PROBE_NS, SWEEP_NS, ADMIT_NS, TEST_NS = 22.0, 8.0, 25.0, 4.0
"""A new tuple's probe of one other side; and of a sweep every tuple, every one that has partners, every pair in the window. As
measured by `watersmeet bench choice`; only their ratios matter."""


class Partners:
    """The times of a step's sides."""

    def __init__(self, windows: WindowGraph, sides: Sequence[Side]) -> None:
        self.windows, self.sides = windows, sides
        self._new = sum(len(s.new_idx) for s in sides)
        self._samples: dict[str, tuple[int, np.ndarray]] = {}

    def share(self, driver: Side) -> float:
        """The share of a driver's new tuples with a window partner in every other side, by a sample."""
        size, having = self._sample(driver)
        return len(having) / size

    @property
    def sweep_pays(self) -> bool:
        """Whether a sweep is estimated to be cheaper than probing."""
        return self._new >= FEW and self.sweep_ns < self._probe_ns

    @property
    def _probe_ns(self) -> float:
        return PROBE_NS * (len(self.sides) - 1)

    @property
    def sweep_ns(self) -> float:
        """What a sweep is estimated to cost per new tuple; once that is too much, no more is found out."""
        cost = SWEEP_NS * sum(int(s.offsets[-1]) for s in self.sides) / self._new
        drivers = [(s, len(s.new_idx) / self._new) for s in self.sides if len(s.new_idx)]
        for driver, weight in drivers:
            if cost < self._probe_ns:
                cost += weight * ADMIT_NS * self.share(driver)
        for driver, weight in drivers:
            if cost < self._probe_ns and self.share(driver):
                cost += weight * TEST_NS * self._met(driver, self._probe_ns / (weight * TEST_NS))
        return cost

    def worth_probing(self, driver: Side) -> np.ndarray:
        """A driver's new tuples, less those without a partner if many have none."""
        rows = driver.new_idx
        pays = self._new >= FEW and len(rows) > 0 and self.share(driver) <= PAYS * (len(self.sides) - 1)
        return self._having(driver, rows) if pays else rows

    def _met(self, driver: Side, most: float) -> float:
        """How many window partners a new tuple has on average, if it has one in every other side; a bit above `most` at most."""
        (size, rows), found = self._sample(driver), 0
        ts, x = driver.ts()[rows], driver.spec.reference
        for side in self.sides:
            if side is not driver and len(rows):
                lo, hi = (shift(ts, bound(x, side.spec.reference)) for bound in (self.windows.lo, self.windows.hi))
                for _, segment in reversed(side.visible(True)):
                    if found <= most * size:
                        ends = np.searchsorted(segment.times, hi, side="right")
                        found += int(np.sum(ends - np.searchsorted(segment.times, lo, side="left")))
        return found / size

    def _sample(self, driver: Side) -> tuple[int, np.ndarray]:
        """How many of a driver's new tuples were looked at, and those with a partner in every other side."""
        if driver.spec.name not in self._samples:
            rows = driver.new_idx
            sample = np.ascontiguousarray(rows[:: max(1, len(rows) // SAMPLE)])
            self._samples[driver.spec.name] = len(sample), self._having(driver, sample)
        return self._samples[driver.spec.name]

    def _having(self, driver: Side, rows: np.ndarray) -> np.ndarray:
        ts, x = driver.ts(), driver.spec.reference
        for side in self.sides:
            if side is not driver and len(rows):
                y, found = side.spec.reference, 0
                marked = np.zeros(len(ts), np.bool_)
                for _, segment in reversed(side.visible(True)):
                    if found < len(rows):
                        found = mark(ts, rows, self.windows.lo(x, y), self.windows.hi(x, y), segment.times, marked)
                rows = rows if found == len(rows) else rows[marked[rows]]
        return rows
