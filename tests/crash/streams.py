"""What the killed drivers read, and what they must have written in the end.

Invariant: times are unique within a stream, so ROWS numbers tuples in one way only; the last file's only row is far in
the future and has no key, so everything before it lies behind the watermark when it has been read.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

ROWS_PER_FILE, KEYS = 50, 80
START_US = 1_767_225_600_000_000  # 2026-01-01
SPACING_US = 20_000
DISORDER = 45
"""Neighbours a tuple may overtake; times SPACING_US, less than the lateness of one second."""
FUTURE_US = 3_600_000_000

Bag = Counter[tuple[Any, ...]]

EXPECTED = """
    SELECT a.id, b.id, c.id, a.k FROM a, b, c
    WHERE a.k = b.k AND b.k = c.k
      AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 2000000 AND epoch_us(c.ts) - epoch_us(b.ts) BETWEEN 0 AND 3000000
"""
EXPECTED_ROWS = f"""
    {EXPECTED}
    AND (SELECT count(*) FROM a AS newer WHERE newer.ts > a.ts AND newer.ts <= greatest(a.ts, b.ts, c.ts)) < 60
"""

EXPECTED_BAND = """
    SELECT a.id, b.id FROM a, b WHERE abs(a.k - b.k) <= 1 AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 700000
"""
EXPECTED_OUTER = """
    SELECT a.id, b.id, a.k
    FROM a LEFT JOIN b ON a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 1000000
    WHERE NOT EXISTS (SELECT 1 FROM c WHERE a.k = c.k AND abs(epoch_us(a.ts) - epoch_us(c.ts)) <= 200000)
"""
EXPECTED_OF = {
    "rows": EXPECTED_ROWS,
    "theta": EXPECTED_BAND,
    "scaling": EXPECTED_BAND,
    "outer": EXPECTED_OUTER,
    "settled": EXPECTED_OUTER,
}


def write_streams(folder: Path, files: int, seed: int) -> None:
    """Three streams, in disorder within their lateness of one second, some keys NULL, one file per micro-batch."""
    rng = np.random.default_rng(seed)
    count = (files - 1) * ROWS_PER_FILE
    for name in "abc":
        ids = np.arange(count + 1)
        ts = START_US + (ids + rng.integers(0, DISORDER, count + 1)) * SPACING_US + ids % SPACING_US
        ts[count] += FUTURE_US
        keys = pa.array(rng.integers(0, KEYS, count + 1), mask=(rng.random(count + 1) < 0.02) | (ids == count))
        table = pa.table({"id": ids, "k": keys, "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})
        (folder / name).mkdir(parents=True)
        for n in range(files):
            path = folder / name / f"part-{n:03d}.parquet"
            pq.write_table(table.slice(n * ROWS_PER_FILE, ROWS_PER_FILE), path)
            os.utime(path, (1_767_225_600 + n, 1_767_225_600 + n))


LATE_RUNS = ("marked", "late")
"""Those whose lateness is less than the disorder. Every file is a batch of theirs."""
ON_TIME = f"""
    ts >= coalesce((SELECT max(e.ts) FROM {{0}}_all AS e WHERE e.id // {ROWS_PER_FILE} < r.id // {ROWS_PER_FILE}) - INTERVAL 100 MILLISECONDS, ts)
"""


def expected(folder: Path, run: str) -> Bag:
    """The results of a driver's run, by DuckDB."""
    with duckdb.connect() as con:
        for name in "abc":
            con.execute(f"CREATE VIEW {name}_all AS SELECT * FROM '{folder}/{name}/*.parquet'")
            on_time = ON_TIME.format(name) if run in LATE_RUNS else "true"
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_all AS r WHERE {on_time}")
        return Counter(con.execute(EXPECTED_OF.get(run, EXPECTED)).fetchall())


def expected_late(folder: Path) -> Bag:
    """(stream, batch, reason, id) of the rows that a driver drops, by DuckDB; without a key a row is no loss."""
    with duckdb.connect() as con:
        found: Bag = Counter()
        for name in "abc":
            con.execute(f"CREATE TABLE {name}_all AS SELECT * FROM '{folder}/{name}/*.parquet'")
            text = f"SELECT '{name}', id // {ROWS_PER_FILE}, 'late', id FROM {name}_all AS r WHERE k IS NOT NULL"
            found.update(con.execute(f"{text} AND NOT ({ON_TIME.format(name)})").fetchall())
        return found


def written(spark: Any, out: Path) -> Bag:
    """The results that a sink has committed: Spark reads its log, or delta-rs."""
    table = DeltaTable(out) if (out / "_delta_log").exists() else None
    rows = spark.read.parquet(*([str(out)] if table is None else table.file_uris()))
    rows = rows.where("_late IS NULL").drop("_late") if "_late" in rows.columns else rows
    return Counter(tuple(row) for row in rows.collect())


def written_late(spark: Any, work: Path, run: str) -> Bag:
    """The dropped rows that a sink has committed, as `expected_late` has them."""
    rows = spark.read.parquet(str(work / ("out" if run == "marked" else "out-late")))
    rows = rows.where("_late IS NOT NULL").select("_late.*") if run == "marked" else rows
    shown = rows.selectExpr("stream", "batch", "reason", "CAST(get_json_object(row, '$.id') AS bigint) AS id")
    return Counter(tuple(row) for row in shown.collect())


def assert_same(got: Bag, want: Bag) -> None:
    assert want, "nothing was expected: nothing was tested"
    assert got - want == Counter(), "rows that should not be there, or are there twice"
    assert want - got == Counter(), "rows lost"
