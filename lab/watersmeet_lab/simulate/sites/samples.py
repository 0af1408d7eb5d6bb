"""Streams of an experiment: times, join attributes as codes, and the sizes that the paper gives tuples; and the statistics of them.

Payloads are sizes only: what an experiment ships is counted in rows, and a row has the bytes that the paper's generator gives it.

Invariant: equal values have equal codes in all streams of a query; a NULL has a negative code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.errors import StreamError
from watersmeet.sites.planning.model import SiteQuery
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics


@dataclass(frozen=True)
class Sample:
    """A piece of a stream: times, and join attributes as codes (equal values, equal codes, in all streams of a query)."""

    ts: np.ndarray
    codes: Mapping[str, np.ndarray]
    full_bytes: float
    partial_bytes: Mapping[str, float]

    def before(self, end_us: int) -> Sample:
        """The tuples before a time."""
        rows = int(np.searchsorted(self.ts, end_us))
        codes = {column: values[:rows] for column, values in self.codes.items()}
        return Sample(self.ts[:rows], codes, self.full_bytes, self.partial_bytes)

    @cached_property
    def table(self) -> pa.Table:
        """As `local.run` takes it, with a number for every tuple."""
        codes = {c: pa.array(v, pa.int64(), mask=np.asarray(v) < 0) for c, v in self.codes.items()}
        stamps = pa.array(np.asarray(self.ts, np.int64), pa.timestamp("us", tz="UTC"))
        return pa.table({"id": np.arange(len(self.ts)), **codes, "ts": stamps})


@dataclass(frozen=True, eq=False)
class Streams:
    """A query with the samples of its streams, times ascending."""

    query: SiteQuery
    samples: Mapping[str, Sample]

    def __post_init__(self) -> None:
        for alias in self.query.aliases:
            if alias not in self.samples:
                raise StreamError(f"stream {alias}: there is no data")
            ts = self.samples[alias].ts
            if len(ts) and np.any(ts[1:] < ts[:-1]):
                raise StreamError(f"stream {alias}: tuples must come in the order of their times; sort them")

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """The first and the last time of all streams."""
        times = [s.ts for s in self.samples.values() if len(s.ts)]
        return (min(int(t[0]) for t in times), max(int(t[-1]) for t in times)) if times else (0, -1)


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
