"""The right answer to a benchmark query, from DuckDB.

A time band join is slow in any engine that sees only the equality, so DuckDB is given a second equality: the bucket
number floor(ts / window); and a band of keys is three equalities in the same way. Two tuples within the window of each other lie in the same or in neighbouring buckets; each
tuple of one side is therefore probed under three bucket numbers, and the exact window decides.

The answer is a count and a checksum (the sum of the keys and of each side's time), which every system's results are
aggregated to as they pass: equal counts of wrong rows do not go unseen.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import duckdb

from watersmeet_lab.bench.data import ALIASES, START_US


@dataclass(frozen=True)
class Answer:
    """How many results, and the sum over them of key + every side's microseconds since the data's start."""

    count: int
    checksum: int


Condition = Literal["equal", "band"]
"""Keys are equal, or at most one apart."""


def answer(folder: Path, ways: int, window_us: int, condition: Condition = "equal") -> Answer:
    """DuckDB's answer for the first `ways` streams in `folder`; remembered next to the data."""
    kind = "" if condition == "equal" else f"-{condition}"
    memo = folder / f"answer-{ways}way-{window_us}us{kind}.json"
    if memo.exists():
        return Answer(**json.loads(memo.read_text()))
    with duckdb.connect() as con:
        con.execute("SET timezone = 'UTC'")
        row = con.execute(_query(folder, ways, window_us, condition)).fetchone()
    assert row is not None
    found = Answer(int(row[0]), int(row[1]))
    memo.write_text(json.dumps(asdict(found)))
    return found


def _query(folder: Path, ways: int, window_us: int, condition: Condition) -> str:
    first, *others = ALIASES[:ways]
    key = "key" if condition == "equal" else "unnest([-1, 0, 1]) + key AS key"
    sources = [f"{first} AS (SELECT key, {_since_start()} AS t FROM '{folder}/{first}/*.parquet')"]
    joins = []
    for number, alias in enumerate(others):
        sources.append(
            f"{alias} AS (SELECT {key}, t, bucket FROM (SELECT key, {_since_start()} AS t, unnest([-1, 0, 1]) + t // {window_us} AS bucket"
            f" FROM '{folder}/{alias}/*.parquet'))"
        )
        windows = [f"abs({alias}.t - {other}.t) <= {window_us}" for other in (first, *others[:number])]
        joins.append(
            f"JOIN {alias} ON {first}.key = {alias}.key AND {first}.t // {window_us} = {alias}.bucket AND {' AND '.join(windows)}"
        )
    total = " + ".join([f"{first}.key", *(f"{alias}.t" for alias in ALIASES[:ways])])
    return f"WITH {', '.join(sources)} SELECT count(*), coalesce(sum({total}), 0) FROM {first} {' '.join(joins)}"


def _since_start() -> str:
    return f"epoch_us(ts) - {START_US}"
