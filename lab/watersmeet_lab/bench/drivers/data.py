"""Data sets I to VI: keys with table 2's selectivities, and the arrival patterns of section 4.1.

Every selectivity of table 2 follows from 1,000 keys that all streams share, each 1, 5 and 1,000 times (I to IV) or 1, 10 and
100 times (V, VI), in a random order; all other tuples match nothing:

    I to IV   S1 1 x 5 S2 = 5,000 pairs   S1, S3 10^6   S2, S3 5 x 10^6   results 5 x 10^6
    V, VI     S1, S2 10^4                 S1, S3 10^5   S2, S3 10^6       results 10^6

It is the only way in which every pair is part of a result. Arrivals fill 10^7 time units, so the streams end together.

Departs from the paper: table 3 prints 10^9 for S2 of V and VI; table 2 holds with 10^5, which is used. A b-model splits a
stretch of time in two halves, again and again; which half gets the larger share is the name's for the first split (20-80: the
second half) and random after it, since figure 5 shows no more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TIME_UNITS = 10_000_000
SHARED = 1000
"""Keys that all streams have."""
CELLS = 12
"""A b-model is split so many times; inside a cell arrivals are uniform."""

Arrivals = Callable[[int, np.random.Generator], np.ndarray]
"""How many tuples, to shares of TIME_UNITS in [0, 1), ascending."""


@dataclass(frozen=True)
class Stream:
    """One stream: how many tuples, how often each shared key, and when they come."""

    size: int
    times: int
    arrivals: Arrivals
    dead: int = 0
    """Tuples whose keys the next stream has once too, and no other."""


@dataclass(frozen=True)
class Dataset:
    """Streams that are joined on a common attribute."""

    name: str
    streams: tuple[Stream, ...]
    batches: tuple[int, ...] = (100, 10)
    """Numbers of batches: 0.1M and 1M time units each."""

    def results(self, scale: int = 1) -> int:
        """How many results there are."""
        return SHARED // scale * int(np.prod([s.times for s in self.streams]))

    def _dead_before(self, number: int) -> int:
        return self.streams[number - 1].dead

    def generate(self, seed: int, scale: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Keys and times of every stream; one in `scale` of the tuples and of the shared keys, at the same times."""
        keys, times = [], []
        for number, stream in enumerate(self.streams):
            draw = np.random.default_rng((seed, number))
            size, shared = stream.size // scale, SHARED // scale
            own = SHARED + (number + 1) * 10**9 + np.arange(size)
            matching = shared * stream.times
            own[:matching] = np.tile(np.arange(shared), stream.times)
            for pair, many in ((number, stream.dead), ((number - 1) % len(self.streams), self._dead_before(number))):
                many = min(many // scale, size - matching)
                own[matching : matching + many] = (pair + 101) * 10**9 + np.arange(many)
                matching += many
            keys.append(draw.permutation(own).astype(np.int64))
            times.append(np.floor(stream.arrivals(size, draw) * TIME_UNITS).astype(np.int64))
        return keys, times


def uniform(size: int, draw: np.random.Generator) -> np.ndarray:
    """The same average rate all along."""
    return np.sort(draw.random(size))


def quarters(*gaps: float) -> Arrivals:
    """Another average gap between tuples in every quarter of them."""

    def arrivals(size: int, draw: np.random.Generator) -> np.ndarray:
        each = np.repeat(np.resize(gaps, 4), -(-size // 4))[:size]
        at = np.cumsum(draw.exponential(each))
        return at / (at[-1] * (1 + 1e-9))

    return arrivals


def sinusoidal(size: int, draw: np.random.Generator) -> np.ndarray:
    """Two periods of a rate between 1/15 and 1/5, as the other streams' extremes are."""
    grid = np.linspace(0, 1, 4097)
    rate = 2 / 15 + np.sin(4 * np.pi * grid) / 15
    reached = np.concatenate([[0], np.cumsum((rate[1:] + rate[:-1]) / 2)])
    return np.interp(np.sort(draw.random(size)), reached / reached[-1], grid) * (1 - 1e-9)


def b_model(first: float, second: float) -> Arrivals:
    """Bursts: half of every stretch gets one share, half the other."""

    def arrivals(size: int, draw: np.random.Generator) -> np.ndarray:
        shares = np.array([first, second])
        for _ in range(CELLS - 1):
            left = np.where(draw.random(len(shares)) < 0.5, first, second)
            shares = np.column_stack([shares * left, shares * (1 - left)]).ravel()
        reached = np.concatenate([[0], np.cumsum(shares)])
        return np.interp(np.sort(draw.random(size)), reached / reached[-1], np.linspace(0, 1, len(reached))) * (
            1 - 1e-9
        )

    return arrivals


FAST_FIRST, SLOW_FIRST = quarters(5, 15, 5, 15), quarters(15, 5, 15, 5)


def _equal(name: str, *arrivals: Arrivals) -> Dataset:
    return Dataset(name, tuple(Stream(10**6, t, a) for t, a in zip((1, 5, 1000), arrivals, strict=True)))


def _unequal(name: str, *arrivals: Arrivals) -> Dataset:
    sizes = (10**4, 10**5, 10**6)
    return Dataset(name, tuple(Stream(s, t, a) for s, t, a in zip(sizes, (1, 10, 100), arrivals, strict=True)))


DATASETS = (
    _equal("I", uniform, uniform, FAST_FIRST),
    _equal("II", uniform, SLOW_FIRST, FAST_FIRST),
    _equal("III", uniform, SLOW_FIRST, sinusoidal),
    _equal("IV", uniform, uniform, b_model(0.2, 0.8)),
    _unequal("V", uniform, uniform, b_model(0.8, 0.2)),
    _unequal("VI", uniform, uniform, b_model(0.2, 0.8)),
)


# ---------------------------------------------------------------- beyond the paper: 3 to 6 inputs


def beyond(inputs: int) -> tuple[Dataset, ...]:
    """Three kinds of data sets of so many inputs; positions are mixed, so that FROM's order is nobody's luck.

    even      streams of one size and unlike patterns; few tuples match, those of one stream all do
    uneven    sizes from 6,000 to 400,000, bursts in the largest
    dead ends a third of every stream matches the next stream and no other, so partial results die late
    """
    patterns = (uniform, SLOW_FIRST, sinusoidal, FAST_FIRST, b_model(0.8, 0.2), uniform)[:inputs]
    times = {3: (200, 1, 5), 4: (1, 200, 2, 5), 5: (2, 1, 200, 1, 5), 6: (1, 2, 1, 2, 200, 3)}[inputs]
    even = tuple(Stream(200_000, t, a) for t, a in zip(times, patterns, strict=True))
    sizes = np.geomspace(400_000, 6_000, inputs).astype(int).tolist()
    share = (50, 8, 3, 2, 1, 1) if inputs < 5 else (20, 6, 3, 2, 1, 1)
    uneven = tuple(
        Stream(n, min(t, n // SHARED), b_model(0.2, 0.8) if i == 0 else uniform)
        for i, (n, t) in enumerate(zip(sizes, share, strict=False))
    )
    ends = tuple(Stream(200_000, t, a, dead=66_000) for t, a in zip(times[::-1], patterns, strict=True))
    named = (("even", even), ("uneven", _mix(uneven)), ("dead ends", ends))
    return tuple(Dataset(f"{inputs} {name}", streams, (50, 5)) for name, streams in named)


def _mix(streams: tuple[Stream, ...]) -> tuple[Stream, ...]:
    """Every other one first."""
    return streams[1::2] + streams[::2]
