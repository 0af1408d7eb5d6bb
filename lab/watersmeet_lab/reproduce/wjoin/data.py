"""The streams of sections 4.2 and 5.3: exponential interarrival times, or stores with opening hours.

    exponential    gaps with a stream's own mean, whole numbers below `domain` as values
    alternating    a stream whose rate changes every 100 tuples (figure 9c)
    stores         sales of a store that opens at 7:30 and closes at 20:00, most in the afternoon; items by popularity

Invariant: a feed is a pure function of its arguments and the seed; each stream stands in time order, as the paper's do.
Departs from the paper: the Wal-Mart logs of section 4.2 are not public. `stores` has their opening hours, their rate and
their window; how popular items are is not in the paper: the n-th item sells as 1 / sqrt(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
OPENS, CLOSES = 7.5, 20.0
"""Hours of the day."""
RUN = 100
"""After so many tuples an alternating stream changes its rate."""


@dataclass(frozen=True)
class Feed:
    """Streams of times and values; `name` tells feeds apart."""

    name: str
    ts: tuple[np.ndarray, ...]
    keys: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        return sum(map(len, self.ts))

    @property
    def streams(self) -> int:
        return len(self.ts)

    def first(self, streams: int) -> Feed:
        """The feed with its first so many streams."""
        return Feed(f"{self.name}, {streams} streams", self.ts[:streams], self.keys[:streams])


def exponential(rates: Sequence[float], rows: int, domain: int, seed: int) -> Feed:
    """Streams of so many tuples per second each, and `rows` tuples.

    >>> feed = exponential([1000, 100], 50, 10, 1)
    >>> feed.rows, bool(feed.ts[1][-1] > 3 * feed.ts[0][-1])
    (100, True)
    """
    draw = np.random.default_rng(seed)
    ts = tuple(_times(draw, np.full(rows, SECOND / rate)) for rate in rates)
    keys = tuple(draw.integers(0, domain, rows) for _ in rates)
    return Feed(f"exponential {', '.join(f'{r:.0f}/s' for r in rates)}, values {domain}, seed {seed}", ts, keys)


def alternate_rate(feed: Feed, slow: float, fast: float, seed: int) -> Feed:
    """The same with a last stream whose rate changes every RUN tuples."""
    draw, rows = np.random.default_rng((seed, 9)), len(feed.ts[-1])
    gaps = np.where(np.arange(rows) // RUN % 2 == 0, SECOND / slow, SECOND / fast)
    ts = (*feed.ts[:-1], _times(draw, gaps))
    return Feed(f"{feed.name}, the last one alternating between {slow:g}/s and {fast:g}/s", ts, feed.keys)


def stores(count: int, per_hour: float, days: int, items: int, seed: int) -> Feed:
    """Stores that sell so much in an open hour, on average.

    >>> clock = stores(1, 50, 3, 10, 1).ts[0] % DAY / HOUR
    >>> bool(clock.min() >= OPENS), bool(clock.max() <= CLOSES)
    (True, True)
    """
    draw = np.random.default_rng(seed)
    weights = 1 / np.sqrt(np.arange(1, items + 1))
    popular = np.cumsum(weights / weights.sum())
    ts, keys = [], []
    for _ in range(count):
        sold = [draw.poisson(per_hour * (CLOSES - OPENS)) for _ in range(days)]
        # A flat day with an afternoon hill: two sales of three are spread evenly, one stands around 16:00.
        clock = [np.where(draw.random(n) < 2 / 3, draw.uniform(OPENS, CLOSES, n), np.clip(draw.normal(16, 1.5, n), OPENS, CLOSES)) for n in sold]  # fmt: skip
        ts.append(np.sort(np.concatenate([d * DAY + (c * HOUR) for d, c in enumerate(clock)])).astype(np.int64))
        keys.append(np.searchsorted(popular, draw.random(len(ts[-1]))))
    return Feed(f"stores selling {per_hour:g}/h for {days} days, seed {seed}", tuple(ts), tuple(keys))


def _times(draw: np.random.Generator, gaps: np.ndarray) -> np.ndarray:
    return np.asarray(np.cumsum(draw.exponential(gaps)).astype(np.int64))
