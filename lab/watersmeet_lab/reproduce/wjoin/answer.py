"""Whether a kernel's results are the right ones: a count and a checksum, against DuckDB over the same streams.

A combination's checksum is a polynomial of its row numbers modulo a prime, squared, so sums of wrong rows do not agree by
chance; it is computed here with NumPy and there with SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet_lab.reproduce.wjoin.data import Feed

PRIME, BASE = 2**31 - 1, 1_000_003


class Answer(NamedTuple):
    """How many results, and the sum of their checksums."""

    results: int
    checksum: int

    def __add__(self, other: object) -> Answer:
        assert isinstance(other, Answer)
        return Answer(self.results + other.results, self.checksum + other.checksum)


class WrongAnswerError(WatersmeetError):
    """A kernel's results are not DuckDB's."""


def digest(rows: np.ndarray) -> Answer:
    """The answer that combinations, row numbers by stream, are.

    >>> digest(np.array([[1, 2], [3, 4]]))
    Answer(results=2, checksum=2857553567)
    """
    number = np.zeros(rows.shape[1], np.int64)
    for row_idx in rows:
        number = (number * BASE + row_idx) % PRIME
    return Answer(rows.shape[1], int((number * number % PRIME).sum()))


def ask_duckdb(feed: Feed, alternatives: Sequence[np.ndarray]) -> Answer:
    """DuckDB's answer: equal values, and times within one of the matrices of largest differences `hi[x, y]`."""
    names = [f"s{n}" for n in range(feed.streams)]
    hull = np.maximum.reduce(list(alternatives))
    joins = " ".join(
        f"JOIN {y} ON s0.k = {y}.k AND {' AND '.join(_within(hull, x, n) for x in range(n))}"
        for n, y in enumerate(names[1:], start=1)
    )
    pairs = [(x, y) for y in range(feed.streams) for x in range(y)]
    either = " OR ".join(f"({' AND '.join(_within(hi, x, y) for x, y in pairs)})" for hi in alternatives)
    number = "0"
    for name in names:
        number = f"(({number} * {BASE} + {name}.i) % {PRIME})"
    with duckdb.connect() as con:
        for name, ts, keys in zip(names, feed.ts, feed.keys, strict=True):
            con.register(name, pa.table({"i": np.arange(len(ts)), "t": ts, "k": keys}))
        row = con.execute(
            f"SELECT count(*), coalesce(sum(c * c % {PRIME}), 0) FROM (SELECT {number} AS c FROM s0 {joins} WHERE {either})"
        ).fetchone()
    assert row is not None
    return Answer(int(row[0]), int(row[1]))


def _within(hi: np.ndarray, x: int, y: int) -> str:
    return f"s{y}.t - s{x}.t BETWEEN {-int(hi[y, x])} AND {int(hi[x, y])}"
