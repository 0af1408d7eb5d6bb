"""The shapes of queries and data on which `watersmeet bench choice` asks whether `auto` is right.

Invariant: a shape says everything that its run depends on, but for the choice; its tables follow from it and a seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet_lab.bench.data import START_US

ROWS = 8_000
RATE = 1_000.0


@dataclass(frozen=True)
class Shape:
    """Streams with their rates, conditions over them, and how keys `k` and `j` and values `v` (whole) and `d` (double) are drawn."""

    name: str
    condition: str
    window: str
    rates: tuple[float, ...] = (RATE, RATE)
    keys: int = 1000
    theta: float = 0.0
    """Zipf's exponent of `k`."""
    hot: float = 0.0
    """The share of tuples with one key."""
    values: int = 10_000
    burst: int = 1
    """So many tuples come at once."""
    rows: int = ROWS
    """Of the fastest stream."""
    batch_rows: int = 2_000
    units: int = 1
    """With several, routings are forced; else kernels."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("abcdef"[: len(self.rates)])

    def sql(self) -> str:
        times = ", ".join(f"{name}.ts AS t{n}" for n, name in enumerate(self.names))
        if not self.condition:
            return f"SELECT {times} FROM {' CROSS JOIN '.join(self.names)} WINDOW = {self.window}"
        return f"SELECT {times} FROM {', '.join(self.names)} WHERE {self.condition} WINDOW = {self.window}"

    def tables(self, seed: int) -> dict[str, pa.Table]:
        seconds = self.rows / max(self.rates)
        return {name: self._table(seed + n, rate, seconds) for n, (name, rate) in enumerate(zip(self.names, self.rates, strict=True))}  # fmt: skip

    def _table(self, seed: int, rate: float, seconds: float) -> pa.Table:
        draw, rows = np.random.default_rng(seed), max(1, int(rate * seconds))
        gaps = draw.exponential(1e6 / rate * self.burst, rows)
        gaps[np.arange(rows) % self.burst != 0] = 0
        ts = START_US + np.cumsum(gaps).astype(np.int64)
        weights = 1 / np.arange(1, self.keys + 1) ** self.theta
        k = draw.choice(self.keys, rows, p=weights / weights.sum())
        k = np.where(draw.random(rows) < self.hot, 0, k)
        return pa.table(
            {
                "k": k,
                "j": draw.integers(0, self.keys, rows),
                "v": draw.integers(0, self.values, rows),
                "d": draw.random(rows) * self.values,
                "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
            }
        )


def list_shapes() -> list[Shape]:
    """All of them."""
    return [*_keys(), *_ranges(), *_both(), *_rates(), *_many(), *_batches(), *_units()]


def _keys() -> Iterator[Shape]:
    for keys in (30, 1000, 100_000):
        for window in ("1 MILLISECOND", "100 MILLISECONDS", "1 SECOND"):
            yield Shape(f"{keys} keys, {window.lower()}", "a.k = b.k", window, keys=keys)
    for theta in (0.5, 1.0):
        yield Shape(f"zipf {theta}, 100 ms", "a.k = b.k", "100 MILLISECONDS", theta=theta)
    yield Shape("half on one key, 50 ms", "a.k = b.k", "50 MILLISECONDS", hot=0.5)


def _ranges() -> Iterator[Shape]:
    for width in (0, 5, 500):
        for window in ("100 MILLISECONDS", "1 SECOND"):
            yield Shape(f"band of {width}, {window.lower()}", f"abs(a.v - b.v) <= {width}", window)
    for window in ("100 MILLISECONDS", "1 SECOND"):
        yield Shape(f"band of doubles, {window.lower()}", "abs(a.d - b.d) < 2.5", window)
        yield Shape(f"between, {window.lower()}", "a.v BETWEEN b.v - 3 AND b.v + 3", window)
    for window in ("5 MILLISECONDS", "30 MILLISECONDS"):
        yield Shape(f"less, {window.lower()}", "a.v < b.v", window)
        yield Shape(f"less twice, {window.lower()}", "a.v < b.v AND a.d > b.d", window)
    yield Shape("a key or a band, 1 s", "a.k = b.k OR abs(a.v - b.v) <= 2", "1 SECOND")
    yield Shape("a band as wide as a column, 1 s", "abs(a.v - b.v) < a.k", "1 SECOND", keys=20)
    for window in ("1 MILLISECOND", "10 MILLISECONDS"):
        yield Shape(f"no condition, {window.lower()}", "", window)


def _both() -> Iterator[Shape]:
    for keys in (2, 100, 10_000):
        for width in (1, 1000):
            condition = f"a.k = b.k AND abs(a.v - b.v) <= {width}"
            yield Shape(f"{keys} keys and a band of {width}, 1 s", condition, "1 SECOND", keys=keys)
    yield Shape("two keys at once, 1 s", "a.k = b.k AND a.j = b.j", "1 SECOND", keys=50)


def _rates() -> Iterator[Shape]:
    for slow in (1.0, 20.0):
        for window in ("10 MILLISECONDS", "1 SECOND"):
            yield Shape(f"1,000/s and {slow:g}/s, {window.lower()}", "a.k = b.k", window, rates=(RATE, slow))
    yield Shape("bursts of 50, 10 ms", "a.k = b.k", "10 MILLISECONDS", burst=50)
    yield Shape("bursts of 50, a band, 10 ms", "abs(a.v - b.v) <= 5", "10 MILLISECONDS", burst=50)


def _many() -> Iterator[Shape]:
    three = "a.k = b.k AND b.k = c.k"
    for keys in (1000, 10_000):
        for window in ("10 MILLISECONDS", "500 MILLISECONDS"):
            yield Shape(f"three, {keys} keys, {window.lower()}", three, window, rates=(RATE,) * 3, keys=keys)
    for slow in (1.0, 10.0, 100.0):
        yield Shape(f"three, one of {slow:g}/s, 10 ms", three, "10 MILLISECONDS", rates=(RATE, RATE, slow))
    for window in ("10 MILLISECONDS", "200 MILLISECONDS"):
        yield Shape(f"a chain of three, {window.lower()}", "a.k = b.k AND b.j = c.j", window, rates=(RATE,) * 3)
    yield Shape("three, a key and a band, 200 ms", "a.k = b.k AND abs(b.v - c.v) <= 5", "200 MILLISECONDS", rates=(RATE,) * 3)  # fmt: skip
    for number in (4, 5, 6):
        condition = " AND ".join(f"a.k = {name}.k" for name in "bcdef"[: number - 1])
        for window in ("20 MILLISECONDS", "500 MILLISECONDS"):
            yield Shape(f"{number} streams, {window.lower()}", condition, window, rates=(RATE,) * number, keys=10_000, rows=4000)  # fmt: skip


def _batches() -> Iterator[Shape]:
    for rows in (250, 8_000):
        yield Shape(f"batches of {rows}, a key, 1 s", "a.k = b.k", "1 SECOND", batch_rows=rows)
        yield Shape(f"batches of {rows}, a band, 1 s", "abs(a.v - b.v) <= 5", "1 SECOND", batch_rows=rows)
        yield Shape(f"batches of {rows}, a key, 1 ms", "a.k = b.k", "1 MILLISECOND", batch_rows=rows)


def _units() -> Iterator[Shape]:
    """A unit's part of a batch is as large as that of the shapes with one unit."""
    size = {"units": 4, "rows": 4 * ROWS, "batch_rows": 8_000}
    plain = Shape("4 units, a key, 100 ms", "a.k = b.k", "100 MILLISECONDS", **size)  # type: ignore[arg-type]
    yield plain
    yield replace(plain, name="4 units, zipf 1, 100 ms", theta=1.0)
    yield replace(plain, name="4 units, a third on one key, 100 ms", hot=0.3, keys=100_000)
    yield replace(plain, name="4 units, a narrow band, 1 s", condition="abs(a.v - b.v) <= 5", window="1 SECOND")
    yield replace(plain, name="4 units, a wide band, 20 ms", condition="abs(a.v - b.v) <= 5000", window="20 MILLISECONDS")  # fmt: skip
    yield replace(plain, name="4 units, less, 10 ms", condition="a.v < b.v", window="10 MILLISECONDS")
    yield Shape("4 units, a chain of three, 50 ms", "a.k = b.k AND b.j = c.j", "50 MILLISECONDS", rates=(RATE,) * 3, **size)  # type: ignore[arg-type]  # fmt: skip
