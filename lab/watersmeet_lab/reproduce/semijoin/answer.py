"""DuckDB's answer to a query across sites: count and checksum of its results.

Invariant: nothing is counted or timed of a run whose answer is not DuckDB's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import WatersmeetError
from watersmeet_lab.simulate.sites.samples import Streams

_PRIME = 1_000_003


class WrongAnswerError(WatersmeetError):
    """A run's results are not DuckDB's."""


class Answer(NamedTuple):
    """How many results, and a sum over their tuples' numbers."""

    results: int
    checksum: int


def answer_of(parts: Iterable[pa.Table]) -> Answer:
    """Of results that were found: a column of tuples' numbers for every alias, in the order of the query."""
    count, total = 0, 0
    for table in (t for t in parts if t.num_rows):
        count += table.num_rows
        total += sum(pc.sum(column).as_py() * _PRIME**n for n, column in enumerate(table.columns))
    return Answer(count, total)


def ask_duckdb(streams: Streams, head: str | None = None) -> Answer:
    """Of all results; with a head, of those in which its tuple is the youngest: a one-way join or a sequence."""
    query = streams.query
    m = len(query.aliases)
    with duckdb.connect(":memory:", config={"threads": 1}) as db:
        for n, alias in enumerate(query.aliases):
            sample = streams.samples[alias]
            columns = {"id": np.arange(len(sample.ts)), "ts": sample.ts, "at": sample.ts * m + n, **sample.codes}
            db.register(f"s_{alias}", pa.table(columns))
        where = [f"{a}.{x} = {b}.{y} AND {a}.{x} >= 0" for (a, x), (b, y) in ((e.left, e.right) for e in query.edges)]
        for x in query.streams:
            assert x.window_us is not None
            others = [y.alias for y in query.streams if y is not x]
            where += [f"{y}.ts - {x.alias}.ts <= {x.window_us}" for y in others]
            if x.alias == head:
                where += [f"{y}.at < {x.alias}.at" for y in others]
        sums = ", ".join(f"coalesce(sum({a}.id), 0)" for a in query.aliases)
        tables = ", ".join(f"s_{a} {a}" for a in query.aliases)
        row = db.execute(f"SELECT count(*), {sums} FROM {tables} WHERE {' AND '.join(where)}").fetchone()
    assert row is not None
    return Answer(row[0], sum(int(s) * _PRIME**n for n, s in enumerate(row[1:])))


def verify(what: str, found: Answer, right: Answer) -> Answer:
    """The answer, if it is right."""
    if found != right:
        raise WrongAnswerError(
            f"{what}: {found.results:,} results with checksum {found.checksum}; DuckDB has {right.results:,} with"
            f" {right.checksum}; this is a defect of watersmeet, please report it"
        )
    return right
