"""Ranges that follow the data: cells of equal depth, by fading samples of the values that each side stores.

    planned      |      1      |      2      |      3      |      cells of one width: here nearly all values lie in one
    values                 ...::::::...
    equal depth  |       1       | 2 | 3 |       4         |      as many values in each

A routing is changed only where the busiest subgroup has UNEVEN times its share, and the new one would be better. Where a few values are so frequent that no
cells are even, tuples are routed at random.

Invariant: a pure function of what was sampled and remembered. Results do not depend on it: earlier routings are probed as long as their tuples live (`routing.epochs`).
Implements: Lin, Ooi, Wang, Yu (2015), section 3.2.2 (ValueRangeOf).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from watersmeet.routing.biclique import Biclique, Cells

UNEVEN, EVEN = 1.5, 1.3
"""A routing is changed from so much of its share on, to one with at most so much; else to one at random."""
SEEN_AT_LEAST = 200
MOST_SAMPLED = 256
FADE = 0.5
Sample = list[list[float]]
"""Values in order, each with the number of rows it stands for."""


def sample_values(values: np.ndarray, most: int = 64) -> Sample:
    """Some values, each with the number of rows it stands for; what is not finite is in no band.

    >>> sample_values(np.array([3.0, 1.0, np.nan, 2.0]), 2)
    [[1.0, 1.5], [2.0, 1.5]]
    """
    finite = np.sort(values[np.isfinite(values)])
    if not len(finite):
        return []
    at = np.arange(min(most, len(finite))) * len(finite) // min(most, len(finite))
    return [[float(v), len(finite) / len(at)] for v in finite[at]]


def merge_samples(before: Sample, batches: Sequence[Sample]) -> Sample:
    """What was remembered, faded, with what a batch has brought; thinned out where there is too much."""
    new = [point for sample in batches for point in sample]
    merged = sorted([[v, round(w * FADE, 2)] for v, w in before if w * FADE >= 0.05] + new) if new else before
    step = -(-len(merged) // MOST_SAMPLED)
    return (
        [[merged[n][0], sum(w for _, w in merged[n : n + step])] for n in range(0, len(merged), step)] if merged else []
    )


def adapt_cells(routing: Biclique, samples: Sequence[Sample]) -> Biclique:
    """The routing that suits the values of the two sides.

    >>> from watersmeet.routing.biclique import biclique
    >>> cells = Cells.of_band(("v", "v"), -50.0, 50.0, integers=True)
    >>> ages = [[float(age), 10.0] for age in range(100)]
    >>> adapt_cells(biclique(4, 4, cells, 4, 4), [ages, ages]).by.edges[0]
    (25.0, 50.0, 75.0)
    >>> adapt_cells(biclique(4, 4, cells, 4, 4), [[[7.0, 1000.0]], ages]).kind
    'random'
    """
    if not isinstance(routing.by, Cells) or min(sum(w for _, w in s) for s in samples) < SEEN_AT_LEAST:
        return routing
    if max(_unevenness(routing, side, samples[side]) for side in (0, 1)) < UNEVEN:
        return routing
    edges = [_cut(samples[side], len(routing.sides[side])) for side in (0, 1)]
    even = replace(routing, by=replace(routing.by, edges=(edges[0], edges[1])))
    if max(_unevenness(even, side, samples[side]) for side in (0, 1)) <= EVEN:
        return even
    return Biclique(((routing.members[0],), (routing.members[1],)))


def _unevenness(routing: Biclique, side: int, sample: Sample) -> float:
    """The rows of the busiest subgroup over the mean."""
    assert isinstance(routing.by, Cells)
    groups = len(routing.sides[side])
    values, weights = (np.array(column) for column in zip(*sample, strict=True))
    found = np.bincount(routing.by.cell(side, values) % groups, weights, groups)
    return float(found.max() * groups / found.sum())


def _cut(sample: Sample, groups: int) -> tuple[float, ...]:
    """The values that cut a sample into groups of equal weight."""
    values, weights = (np.array(column) for column in zip(*sample, strict=True))
    before = np.cumsum(weights) - weights
    wanted = np.arange(1, groups) * weights.sum() / groups
    at = np.minimum(np.searchsorted(before, wanted - 1e-9), len(values) - 1)
    return tuple(float(v) for v in values[at])
