"""Source tasks that read Parquet files themselves: the same results as by Spark, from the files that Spark's own writer leaves, too, and Spark's reading where Arrow's might be another."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.streams import table, write
from watersmeet.columns.arrow import enlarge, mark_utc
from watersmeet.operators.enter import JoinEntry
from watersmeet.runtime.rounds import running
from watersmeet.runtime.rounds.entering import Entrance
from watersmeet.runtime.spark.parquet_source import find_folder

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"


def folder(spark: Any, path: str, **options: Any) -> Any:
    reader = spark.readStream.schema("k BIGINT, v DOUBLE, ts TIMESTAMP").options(**options)
    return reader.option("maxFilesPerTrigger", 1).parquet(path)


def rows(count: int, first: int = 0) -> pa.Table:
    return table([(n % 7, float(n), n / 1000) for n in range(first, first + count)])


def expected(*batches: pa.Table) -> Counter[Any]:
    whole = pa.concat_tables([b.select(["k", "v", "ts"]).cast(rows(1).schema) for b in batches])
    found = wm.local.run(PAIR, {"s": whole, "t": whole}).to_pydict()
    return Counter(zip(found["x"], found["y"], strict=True))


def finish(query: Any, checkpoint: Path) -> tuple[Counter[Any], Any]:
    handle = query.start(sink="memory", checkpoint=checkpoint, trigger="availableNow")
    handle.await_termination()
    found = handle.table()
    pairs = [] if found is None else zip(*(found.column(c).to_pylist() for c in "xy"), strict=True)
    return Counter(pairs), handle


@contextmanager
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is said of micro-batches that Spark reads after all."""
    out: list[str] = []
    with caplog.at_level(logging.INFO, logger=running.__name__):
        caplog.clear()
        yield out
        out += [r.getMessage().partition(": ")[2] for r in caplog.records if "Spark reads" in r.getMessage()]


def pair(spark: Any, tmp_path: Path, **options: Any) -> Any:
    return wm.sql(PAIR, **{n: wm.Stream(folder(spark, str(tmp_path / n), **options), time="ts") for n in "st"})


def test_workers_read_the_files_and_spark_counts_them(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [rows(60, 60 * n) for n in range(3)]
    for name in "st":
        write(tmp_path, name, batches)
    with told(caplog) as said:
        found, handle = finish(pair(spark, tmp_path), tmp_path / "ck")
    assert found == expected(*batches)
    assert not said
    assert "read the Parquet files" in str(handle.explain("full"))
    assert [p["numInputRows"] for p in handle.query.recentProgress] == [120, 120, 120]
    assert [p.input_rows for p in handle.history()] == [120, 120, 120]


def test_files_of_sparks_own_writer(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batch = rows(50)
    for name in "st":
        write(tmp_path, f"made {name}", [batch])
        spark.read.parquet(str(tmp_path / f"made {name}")).coalesce(1).write.parquet(str(tmp_path / name))
    with told(caplog) as said:
        found, _ = finish(pair(spark, tmp_path), tmp_path / "ck")
    assert found == expected(batch)
    assert not said


def test_a_file_with_another_type_is_read_by_spark_and_so_are_those_after_it(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [rows(40, 40 * n) for n in range(4)]
    batches[1] = batches[1].set_column(0, "k", batches[1].column("k").cast(pa.int32()))
    for name in "st":
        write(tmp_path, name, batches[:3])
    with told(caplog) as said:
        found, handle = finish(pair(spark, tmp_path), tmp_path / "ck")
    assert found == expected(*batches[:3])
    assert said == ["its column k is int32, not int64", "Spark reads"]
    assert [p.input_rows for p in handle.history()] == [80, 80, 80]
    assert {f"{mark:%X.%f}" for mark in handle.progress().watermarks.values()} == {"00:00:00.119000"}
    for name in "st":
        write(tmp_path, name, batches[3:], 3)
    again, _ = finish(pair(spark, tmp_path), tmp_path / "ck")
    assert found + again == expected(*batches), "after a restart workers read, and find what Spark's rows have left"


@pytest.mark.parametrize(("size", "parts"), [(5000, 3), (100, 8)])
def test_a_file_that_spark_splits_is_read_in_parts(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, parts: int
) -> None:
    name, before = "spark.sql.files.maxPartitionBytes", spark.conf.get("spark.sql.files.maxPartitionBytes")
    batch = table([(n % 4999, float(n), n / 1000) for n in range(15_000)])
    for stream in "st":
        (tmp_path / stream).mkdir()
        pq.write_table(batch, tmp_path / stream / "0.parquet", row_group_size=size)
    try:
        spark.conf.set(name, str(os.path.getsize(tmp_path / "s" / "0.parquet") // parts + 1))
        with told(caplog) as said:
            found, _ = finish(pair(spark, tmp_path), tmp_path / "ck")
    finally:
        spark.conf.set(name, before)
    assert found == expected(batch)
    assert bool(said) == (parts == 8), "no row that names it is in each of eight parts"


@pytest.mark.parametrize("name", ["a b", "50%", "x%20y", "c#d", "ü+;", "k=1"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()])
def test_names_of_folders_and_files(spark: Any, tmp_path: Path, name: str, kind: pa.DataType) -> None:
    batch = rows(20)
    odd = batch.set_column(0, "k", batch.column("k").cast(kind))
    for stream in "st":
        write(tmp_path / name, stream, [odd])
        (tmp_path / name / stream / "00000.parquet").rename(tmp_path / name / stream / f"[1] {{a,b}} {name}.parquet")
    found, _ = finish(pair(spark, tmp_path / name), tmp_path / "ck")
    assert found == expected(batch)


def test_rows_without_a_key_or_a_time_and_late_ones(spark: Any, tmp_path: Path) -> None:
    odd = table([(None, 1.0, 5), (1, 2.0, None), (1, 3.0, 30), (1, 4.0, 31)])
    late = table([(1, 5.0, 0), (1, 6.0, 32)])
    for stream in "st":
        write(tmp_path, stream, [odd, late])
    found, handle = finish(pair(spark, tmp_path), tmp_path / "ck")
    assert found == Counter((x, y) for x in (3.0, 4.0, 6.0) for y in (3.0, 4.0, 6.0))
    assert [p.late for p in handle.history()] == [{"s": 1, "t": 1}, {"s": 1, "t": 1}]


def test_which_frames_are_folders(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "s", [rows(3)])
    whole = folder(spark, path)
    assert find_folder(whole) is not None
    assert find_folder(whole.select("ts", "k")).schema.names == ["ts", "k"]  # type: ignore[union-attr]
    assert find_folder(folder(spark, f"file://{path}", recursiveFileLookup="true")) is not None
    for other in (
        whole.where("k > 1"),
        whole.withColumn("k", F.col("k") + 1),
        whole.select(F.col("k").alias("q"), "ts"),
        whole.withWatermark("ts", "1 minute"),
        whole.union(whole),
        folder(spark, path, mergeSchema="true"),
        folder(spark, path, datetimeRebaseMode="LEGACY"),
        spark.readStream.schema("k BIGINT, v ARRAY<INT>, ts TIMESTAMP").parquet(path),
        spark.readStream.schema("k BIGINT, `v.w` INT, ts TIMESTAMP").parquet(path),
        spark.readStream.schema("k BIGINT, ts TIMESTAMP").json(path),
        spark.readStream.format("rate").load(),
    ):
        assert find_folder(other) is None, other
    (tmp_path / "parts" / "day=1").mkdir(parents=True)
    pq.write_table(rows(3), tmp_path / "parts" / "day=1" / "0.parquet")
    assert find_folder(folder(spark, str(tmp_path / "parts"))) is None, "Spark makes a column of the folder's name"
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        assert find_folder(whole) is None
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_a_damaged_file_is_sparks_error(spark: Any, tmp_path: Path) -> None:
    for stream in "st":
        write(tmp_path, stream, [rows(5)])
    (tmp_path / "s" / "00000.parquet").write_bytes(b"PAR1 no more than that PAR1")
    handle = pair(spark, tmp_path).start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow")
    with pytest.raises(Exception, match=r"00000\.parquet"):
        handle.await_termination()


KEYS: dict[str, pa.Array] = {
    "BIGINT": pa.array([*range(-20, 20), 2**63 - 1, -(2**63)]),
    "INT": pa.array([*range(-20, 20), 2**31 - 1], pa.int32()),
    "STRING": pa.array(["", "a", "straße", "\x00", *map(str, range(30))]),
    "BINARY": pa.array([b"", b"\xff", *(bytes([n, 0]) for n in range(30))]),
    "BOOLEAN": pa.array([True, False]),
    "DOUBLE": pa.array([0.0, -0.0, float("nan"), float("inf"), *(n / 3 for n in range(-20, 20))]),
    "FLOAT": pa.array([0.0, -0.0, float("nan"), *(n / 3 for n in range(-20, 20))], pa.float32()),
    "DATE": pa.array(range(-30, 30), pa.int32()).cast(pa.date32()),
    "TIMESTAMP": pa.array(range(-30, 30)).cast(pa.timestamp("us", "UTC")),
    "TIMESTAMP_NTZ": pa.array(range(-30, 30)).cast(pa.timestamp("us")),
    "DECIMAL(10,2)": pa.array(range(-30, 30)).cast(pa.decimal128(38, 2)).cast(pa.decimal128(10, 2)),
    "DECIMAL(38,4)": pa.array(range(-30, 30)).cast(pa.decimal128(38, 4)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_tasks_send_rows_to_the_units_that_sql_sends_them_to(spark: Any, tmp_path: Path, kind: str) -> None:
    rows_of = pa.table({"k": KEYS[kind], "ts": pa.array([0] * len(KEYS[kind]), pa.timestamp("us", "UTC"))})
    write(tmp_path, "s", [rows_of])
    frame = spark.readStream.schema(f"k {kind}, ts TIMESTAMP").parquet(str(tmp_path / "s"))
    streams = {n: wm.Stream(frame, time="ts") for n in "st"}
    plan = wm.sql("SELECT a.k FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", units=8, **streams).plan
    entrance = Entrance.of(plan)
    for position, source in enumerate(plan.inputs):
        static = spark.read.schema(frame.schema).parquet(str(tmp_path / "s")).selectExpr("k AS k0", "k", "ts")
        asked = static.selectExpr("k", f"explode(array({', '.join(entrance.units[position])})) AS unit").toArrow()
        keys, units = (mark_utc(asked).column(name).to_pylist() for name in ("k", "unit"))
        taken = {c.name: c.expr.columns[0].column for c in source.columns}
        wire = pa.table([rows_of.column(name) for name in taken.values()], list(taken))
        key = next(name for name, column in taken.items() if column == "k")
        sent = JoinEntry(plan, source.alias, 0).read(mark_utc(enlarge(wire)))[1]
        found = [(repr(k), m.to) for m in sent for k in m.table.column(key).to_pylist()]
        assert Counter(found) == Counter(zip(map(repr, keys), units, strict=True))
