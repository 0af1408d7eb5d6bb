"""Streams for the experiments: uniform values, regular arrival, as the paper's generator makes them; and skewed ones beside them.

The values of a stream of selectivity f are the first 1/f numbers, so those of two streams are nested, as table 4 assumes. Tuples arrive
at equal distances, each stream at a phase of its own. Payloads are sizes only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from watersmeet.sites.planning.model import SiteQuery
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet_lab.simulate.sites.samples import Sample, Streams

ATTRIBUTE_BYTES = 5
"""1,250 bytes are 250 attributes."""
TOPOLOGIES = ("star", "chain", "cycle", "full")
TUPLE_ATTRIBUTES = (10, 50, 100, 150, 200)
SELECTIVITIES = (0.02, 0.04, 0.06, 0.08, 0.1)
RATES = (10, 50, 100, 150, 200)
WINDOWS_MS = (400, 800, 1200, 1600, 2000)


@dataclass(frozen=True)
class Spec:
    """A stream of an experiment; the defaults are those of figure 7."""

    rate: float = 300
    selectivity: float = 0.1
    full_bytes: float = 1250
    window_ms: int = 3000
    hot: float = 0.0
    """The share of the tuples that have one value, besides those that have it by chance."""

    @property
    def distinct(self) -> int:
        return round(1 / self.selectivity)

    @property
    def statistics(self) -> StreamStatistics:
        return StreamStatistics(self.rate, self.full_bytes, {"k": self.distinct}, {"k": ATTRIBUTE_BYTES})


def query_of(specs: Mapping[str, Spec], topology: str = "chain") -> SiteQuery:
    """Streams a, b, ... at sites A, B, ..., all joined on k; the topology says which pairs may be joined directly.

    >>> [str(e) for e in query_of(dict.fromkeys("abc", Spec()), "star").edges]
    ['a.k = b.k', 'a.k = c.k']
    """
    names = list(specs)
    pairs = list(pairwise(names))
    if topology == "star":
        pairs = [(names[0], n) for n in names[1:]]
    elif topology == "cycle":
        pairs.append((names[-1], names[0]))
    elif topology == "full":
        pairs = [(x, y) for n, x in enumerate(names) for y in names[n + 1 :]]
    windows = {n: s.window_ms * 1000 for n, s in specs.items()}
    return SiteQuery.of({n: n.upper() for n in names}, [f"{x}.k = {y}.k" for x, y in pairs], window_us=windows)


def statistics_of(specs: Mapping[str, Spec]) -> Statistics:
    """What the generator knows."""
    return Statistics({name: spec.statistics for name, spec in specs.items()})


def random_specs(
    topology: str, number: int, streams: int = 4, windows_ms: Sequence[int] = WINDOWS_MS
) -> dict[str, Spec]:
    """A random query of table 2: every parameter of every stream picked by itself."""
    pick = random.Random(f"{topology} {number} {streams}").choice
    return {
        name: Spec(pick(RATES), pick(SELECTIVITIES), pick(TUPLE_ATTRIBUTES) * ATTRIBUTE_BYTES, pick(windows_ms))
        for name in "abcdefgh"[:streams]
    }


def skew(specs: Mapping[str, Spec]) -> dict[str, Spec]:
    """The same streams, of which the first and the last have a value that many tuples have: 0.6 and 0.3 of them.

    >>> [spec.hot for spec in skew(dict.fromkeys("abc", Spec())).values()]
    [0.6, 0.0, 0.3]
    """
    first, *_, last = specs
    hot = {first: 0.6, last: 0.3}
    return {name: replace(spec, hot=hot.get(name, 0.0)) for name, spec in specs.items()}


def streams_of(query: SiteQuery, specs: Mapping[str, Spec], seconds: float, seed: int = 0) -> Streams:
    """Their first seconds."""
    rng = np.random.default_rng(seed)
    samples = {}
    for name, spec in specs.items():
        ts = ((np.arange(int(spec.rate * seconds)) + rng.random()) * (1e6 / spec.rate)).astype(np.int64)
        codes = rng.integers(0, spec.distinct, len(ts))
        if spec.hot:
            codes[rng.random(len(ts)) < spec.hot] = 0
        samples[name] = Sample(ts, {"k": codes}, spec.full_bytes, {"k": float(ATTRIBUTE_BYTES)})
    return Streams(query, samples)


WORLD_CUP = {
    name: Spec(rate, selectivity, 142)
    for name, rate, selectivity in zip("abcd", (2370, 3670, 3500, 4200), (0.0024, 0.0017, 0.0015, 0.001), strict=True)
}
"""Days 30 to 33 of the World Cup's logs, by their rates, sizes and selectivities (figure 10)."""
