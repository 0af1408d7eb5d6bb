"""Columns that no condition and no SELECT needs are never read from files, on every way of running a query."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm

pytestmark = pytest.mark.spark
SQL = "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.k = b.k AND a.flag WINDOW = 10 SECONDS"
NEEDED = {"a": {"id", "k", "ts", "flag"}, "b": {"id", "k", "ts"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    times = pa.array([1_700_000_000_000_000 + n * 1_000_000 for n in range(20)], pa.timestamp("us", "UTC"))
    columns = {"id": range(20), "k": [n % 3 for n in range(20)], "ts": times, "flag": [True] * 20, "unused": ["x"] * 20}
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "part.parquet")
    return tmp_path


def streams(spark: Any, folder: Path, *, static: bool = False) -> dict[str, wm.Stream]:
    schema = spark.read.parquet(str(folder / "a")).schema
    reader = spark.read if static else spark.readStream
    return {name: wm.Stream(reader.schema(schema).parquet(str(folder / name)), time="ts") for name in "ab"}


def columns_read(plan: str) -> list[set[str]]:
    """By scan of a physical plan the columns that it reads."""
    return [set(re.findall(r"(\w+):", found)) for found in re.findall(r"ReadSchema: struct<([^>]*)>", plan)]


def assert_needed(plan: str) -> None:
    found = columns_read(plan)
    assert found, plan
    assert all(columns in NEEDED.values() for columns in found), found


def test_static(spark: Any, folder: Path) -> None:
    frame = wm.sql(SQL, **streams(spark, folder, static=True)).dataframe()
    assert_needed(frame._jdf.queryExecution().executedPlan().toString())


def test_dataframe(spark: Any, folder: Path, tmp_path: Path) -> None:
    frame = wm.sql(SQL, **streams(spark, folder)).dataframe()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck"))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    assert_needed(running._jsq.explainInternal(True))


def test_start(spark: Any, folder: Path, tmp_path: Path) -> None:
    query = wm.sql(SQL, **streams(spark, folder))
    handle = query.start(sink="noop", checkpoint=str(tmp_path / "ck"), trigger="availableNow")
    handle.await_termination()
    assert_needed(handle.query._jsq.explainInternal(True))
