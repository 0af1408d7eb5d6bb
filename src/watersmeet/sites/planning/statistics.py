"""What the optimizer knows of the streams: rates, windows, sizes, and how many values a join attribute has.

A column's selectivity f is the chance that two of its tuples are equal; 1/f is its number of values, if all are equally
frequent, and the number of equally frequent values that would join alike, if they are not. What two columns have in
common follows likewise from the chance that a tuple of each are equal.

Invariant: statistics measured from streams of uniform values tend to those values' number, also where a stream is too short
to have seen them all.
Implements: Tran and Lee (2010), table 4: r_i, w_i, f_i, f_ij, F, P.
Departs from the paper: the values of two streams need not be nested; f_ij is measured if the streams are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Column, SiteQuery, SiteStream


@dataclass(frozen=True)
class StreamStatistics:
    """One stream."""

    rate: float
    """Tuples per second."""
    full_bytes: float
    """F: the size of a tuple."""
    distinct: Mapping[str, float] = field(hash=False)
    """By join attribute, 1/f."""
    partial_bytes: Mapping[str, float] = field(hash=False)
    """P: by join attribute, its size."""


@dataclass(frozen=True)
class Statistics:
    """All streams of a query, by alias; `common` has the number of values that two columns share, where it is known."""

    streams: Mapping[str, StreamStatistics] = field(hash=False)
    common: Mapping[frozenset[Column], float] = field(default_factory=dict, hash=False)

    def check(self, query: SiteQuery) -> None:
        """Everything that the query needs is there."""
        for alias, column in sorted(set().union(*query.classes)):
            known = self.streams.get(alias)
            if known is None:
                raise OptionError(f"statistics: there are none of stream {alias}")
            if column not in known.distinct or column not in known.partial_bytes:
                raise OptionError(
                    f"statistics of stream {alias}: {column} is joined; give its distinct and partial_bytes"
                )
            if known.rate <= 0 or known.distinct[column] < 1:
                raise OptionError(f"statistics of stream {alias}: the rate must be above 0, and distinct 1 or more")

    def count_shared(self, x: Column, y: Column) -> float:
        """How many values two columns have in common; nested, if nothing is known."""
        least = min(self.streams[a].distinct[c] for a, c in (x, y))
        return min(self.common.get(frozenset({x, y}), least), least)

    def window_rows(self, stream: SiteStream) -> float:
        """w: tuples in the window."""
        if stream.window_us is None:
            assert stream.window_rows is not None
            return float(stream.window_rows)
        return self.streams[stream.alias].rate * stream.window_us / 1e6


@dataclass(frozen=True)
class Sample:
    """A piece of a stream: times, and join attributes as codes (equal values, equal codes, in all streams of a query)."""

    ts: np.ndarray
    codes: Mapping[str, np.ndarray]
    full_bytes: float
    partial_bytes: Mapping[str, float]


def measure(query: SiteQuery, samples: Mapping[str, Sample]) -> Statistics:
    """Statistics of streams that are there; NULL codes are negative and equal nothing."""
    streams = {}
    for alias, sample in samples.items():
        distinct = {column: _distinct(codes) for column, codes in sample.codes.items()}
        streams[alias] = StreamStatistics(_rate(sample.ts), sample.full_bytes, distinct, sample.partial_bytes)
    common = {}
    for members in query.classes:
        for x in members:
            for y in members:
                if x[0] < y[0]:
                    equal = _chance(samples[x[0]].codes[x[1]], samples[y[0]].codes[y[1]])
                    values = streams[x[0]].distinct[x[1]] * streams[y[0]].distinct[y[1]]
                    common[frozenset({x, y})] = equal * values
    return Statistics(streams, common)


def _rate(ts: np.ndarray) -> float:
    """Tuples per second; of a stream that has only one instant, as if that were a second.

    >>> _rate(np.array([0, 500_000, 1_000_000])), _rate(np.array([7, 7]))
    (2.0, 2.0)
    """
    if len(ts) < 2 or ts[-1] <= ts[0]:
        return max(float(len(ts)), 1.0)
    return (len(ts) - 1) * 1e6 / float(ts[-1] - ts[0])


def _distinct(codes: np.ndarray) -> float:
    """1 / the chance that two tuples are equal: unbiased, however short the sample.

    >>> _distinct(np.array([3, 3, 5, 5, 5])), _distinct(np.array([1, 2]))
    (2.5, 2.0)
    """
    n = len(codes)
    _, counts = np.unique(codes[codes >= 0], return_counts=True)
    pairs = float(np.sum(counts * (counts - 1.0)))
    return max(1.0, n * (n - 1.0) / max(pairs, 1.0))


def _chance(x: np.ndarray, y: np.ndarray) -> float:
    """That a tuple of each are equal."""
    if len(x) == 0 or len(y) == 0:
        return 0.0
    values_x, counts_x = np.unique(x[x >= 0], return_counts=True)
    values_y, counts_y = np.unique(y[y >= 0], return_counts=True)
    _, at_x, at_y = np.intersect1d(values_x, values_y, assume_unique=True, return_indices=True)
    return float(np.sum(counts_x[at_x].astype(float) * counts_y[at_y])) / (float(len(x)) * len(y))
