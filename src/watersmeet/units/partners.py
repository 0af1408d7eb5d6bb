"""The pre-filter by time: a driver's tuples that have no window partner in some other side are dropped before any index is
probed or any predicate looked at.

It pays where many tuples are dropped: looking a tuple's period up among sorted times costs a third of a probe, or less
where neighbours share a partner. So a sample of the driver's tuples is looked at first, and the rest only if at least
PAYS of the sample would go.

Invariant: no tuple is dropped that has a result: a result's members are in one another's windows.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.2: MW's mode 1, for every other kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.kernels.partners import mark
from watersmeet.query.window import WindowGraph
from watersmeet.units.segment import Segment
from watersmeet.units.side import Side

SAMPLE = 128
PAYS = 0.3
"""The share of a sample without partners from which on the filter is applied; measured, see docs/kernels.md."""


def with_partners(
    windows: WindowGraph, driver: Side, others: Sequence[tuple[Side, Sequence[Segment]]], rows: np.ndarray
) -> np.ndarray:
    """The rows of a driver that have a window partner in each of the other sides' segments, or all if few have none."""
    sample = np.ascontiguousarray(rows[:: max(1, len(rows) // SAMPLE)])
    if len(_kept(windows, driver, others, sample)) > (1 - PAYS) * len(sample):
        return rows
    return rows if len(sample) == 0 else _kept(windows, driver, others, rows)


def _kept(
    windows: WindowGraph, driver: Side, others: Sequence[tuple[Side, Sequence[Segment]]], rows: np.ndarray
) -> np.ndarray:
    ts, reference = driver.ts(), driver.spec.reference
    for side, segments in others:
        lo, hi = windows.lo(reference, side.spec.reference), windows.hi(reference, side.spec.reference)
        marked = np.zeros(len(ts), np.bool_)
        found = 0
        for segment in reversed(segments):
            if found < len(rows):
                found = mark(ts, rows, lo, hi, segment.times, marked)
        if found < len(rows):
            rows = rows[marked[rows]]
    return rows
