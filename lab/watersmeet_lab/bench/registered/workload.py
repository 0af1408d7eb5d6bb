"""The workload of Idreos, Liarou, Koubarakis (2008), section 8, with a window: relations, queries, and what DuckDB answers.

10 relations of 10 attributes with 100 values each, relations and values by a Zipf distribution of 0.9, queries
R.A = S.B AND S.C = J.F AND J.G = K.D over relations and attributes chosen at random.

Invariant: tuples and queries depend on the seed alone; file n of every relation holds its share of micro-batch n.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet_lab.bench.data import START, START_US

RELATIONS, ATTRIBUTES, VALUES, THETA, WAYS = 10, 10, 100, 0.9, 4
TUPLES_PER_SECOND = 1_000
_SCHEMA = ", ".join([*(f"a{n} INT" for n in range(ATTRIBUTES)), "ts TIMESTAMP"])


def write(folder: Path, batches: int, rows: int, seed: int) -> None:
    """The relations' files, one for every batch."""
    rng = np.random.default_rng(seed)
    for n in range(batches):
        of = _zipf(rng, RELATIONS, rows)
        ts = START_US + (n * rows + np.arange(rows)) * (1_000_000 // TUPLES_PER_SECOND)
        for relation in range(RELATIONS):
            mine = of == relation
            columns = {f"a{a}": _zipf(rng, VALUES, int(mine.sum())).astype(np.int32) for a in range(ATTRIBUTES)}
            path = folder / f"r{relation}" / f"{n:05d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({**columns, "ts": pa.array(ts[mine], pa.timestamp("us", tz="UTC"))}), path)
            os.utime(path, (START.timestamp() + n, START.timestamp() + n))


def _zipf(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    weights = 1 / np.arange(1, count + 1) ** THETA
    return rng.choice(count, size=size, p=weights / weights.sum())


def queries(count: int, window: int, seed: int) -> list[str]:
    """So many different queries."""
    rng, found = np.random.default_rng(seed + 1), dict[str, None]()
    while len(found) < count:
        r = [f"r{n}" for n in rng.permutation(RELATIONS)[:WAYS]]
        a = [f"a{n}" for n in rng.integers(0, ATTRIBUTES, 2 * WAYS)]
        joined = " AND ".join(f"{r[n]}.{a[2 * n]} = {r[n + 1]}.{a[2 * n + 1]}" for n in range(WAYS - 1))
        text = f"SELECT {r[0]}.{a[-2]} AS x, {r[-1]}.{a[-1]} AS y FROM {', '.join(r)} WHERE {joined} WINDOW = {window} MILLISECONDS"
        found[text] = None
    return list(found)


def frames(spark: Any, folder: Path, text: str = "") -> dict[str, Any]:
    """Streaming frames of the relations, or of those that a query reads; a micro-batch is one file of each."""
    reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    names = [f"r{n}" for n in range(RELATIONS) if not text or f"r{n}." in text]
    return {name: reader.parquet(str(folder / name)) for name in names}


def streams(spark: Any, folder: Path, text: str = "") -> dict[str, wm.Stream]:
    return {name: wm.Stream(frame, time="ts") for name, frame in frames(spark, folder, text).items()}


def ask_duckdb(folder: Path, window: int, text: str) -> tuple[int, int]:
    """DuckDB's count and sum; a second equality, the bucket of time, keeps it from meeting all tuples with all."""
    select, rest = text.removeprefix("SELECT ").split(" FROM ")
    names, rest = rest.split(" WHERE ")
    first, *others = names.split(", ")
    condition = rest.split(" WINDOW ")[0]
    us = window * 1000
    sources = [
        f"{first} AS (SELECT *, epoch_us(ts) AS t, epoch_us(ts) // {us} AS bucket FROM '{folder}/{first}/*.parquet')"
    ]
    for name in others:
        at = f"SELECT *, epoch_us(ts) AS t, unnest([-1, 0, 1]) + epoch_us(ts) // {us} AS bucket"
        sources.append(f"{name} AS ({at} FROM '{folder}/{name}/*.parquet')")
    near = [f"abs({x}.t - {y}.t) <= {us}" for n, x in enumerate((first, *others)) for y in (first, *others)[:n]]
    buckets = [f"{first}.bucket = {name}.bucket" for name in others]
    x, y = (item.split(" AS ")[0] for item in select.split(", "))
    where = " AND ".join([condition, *buckets, *near])
    return sums(f"WITH {', '.join(sources)} SELECT count(*), sum({x} + {y}) FROM {names} WHERE {where}")


def sums(sql: str) -> tuple[int, int]:
    """The count and the sum that DuckDB finds."""
    with duckdb.connect() as con:
        count, total = con.execute(sql).fetchall()[0]
    return int(count), int(total or 0)
