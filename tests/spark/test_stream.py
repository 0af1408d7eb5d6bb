"""What is the stream runtime's own: its state store, bad queries, placement of units. The rest is in test_runtimes."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import watersmeet as wm
from tests.spark.streams import run, stream, table, write
from watersmeet.runtime.stream import dataframe as spark_stream

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"


def test_a_damaged_checkpoint_is_an_error(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    query = wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s))
    run(query, tmp_path / "ck")
    write(tmp_path, "s", [table([(1, 2, 2)])], first=1)
    for part in (tmp_path / "ck" / "state" / "0").iterdir():
        if part.name.isdigit():
            shutil.rmtree(part)
    with pytest.raises(StreamingQueryException):
        run(query, tmp_path / "ck")


def test_another_state_store_is_refused(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    chosen = spark.conf.get(spark_stream.PROVIDER)
    spark.conf.set(spark_stream.PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(wm.WatersmeetError, match="RocksDB"):
            wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s)).dataframe()
    finally:
        spark.conf.set(spark_stream.PROVIDER, chosen if "RocksDB" in chosen else spark_stream.ROCKSDB)


def test_bad_queries_fail_in_the_driver_and_name_the_piece(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    live, still = stream(spark, s), wm.Stream(spark.read.parquet(s), time="ts")
    with pytest.raises(wm.WatersmeetError, match=r"b is static"):
        wm.sql(PAIR, s=live, t=still)
    with pytest.raises(wm.WatersmeetError, match=r"(?i)nonsense"):
        wm.sql("SELECT nonsense(a.v) AS x FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", s=live, t=live).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"(?i)nonsense"):
        wm.sql(
            "SELECT a.v FROM s a, t b WHERE a.k = b.k AND nonsense(a.v) WINDOW = 1 SECOND", s=live, t=live
        ).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"wm\.Stream"):
        wm.sql(PAIR, s=live.source, t=live)


def test_the_fluent_form_is_the_same_query(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(k, k, k) for k in range(5)])])
    built = wm.join(a=wm.Stream(spark.read.parquet(s), time="ts"), b=wm.Stream(spark.read.parquet(s), time="ts"))
    frame = built.on("a.k = b.k").window("a", "b", "10s").select("a.v AS x", "b.v AS y").dataframe()
    assert Counter(map(tuple, frame.collect())) == Counter({(k, k): 1 for k in range(5)})


def test_units_are_spread_evenly_over_partitions(spark: Any) -> None:
    from watersmeet.routing.labels import labels

    ids = spark.createDataFrame([(label,) for label in labels(16)], "id bigint")
    for partitions in (2, 3, 5, 8):
        found = [r[0] for r in ids.repartition(partitions, "id").selectExpr("spark_partition_id()").collect()]
        assert max(Counter(found).values()) - min(Counter(found).values()) <= 1
        assert len(set(found)) == partitions


def test_workers_run_this_interpreter(spark: Any) -> None:
    versions = spark.range(1).mapInArrow(
        lambda it: (pa.RecordBatch.from_pydict({"v": [sys.version] * b.num_rows}) for b in it), "v string"
    )
    assert versions.collect()[0].v == sys.version


def test_without_ansi_mode_spark_evaluates_arithmetic_itself(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 2**31 - 1, 1), (1, 1, 2)])])
    frame = spark.read.parquet(s).selectExpr("k", "CAST(v AS int) AS v", "ts")
    streams = {"s": wm.Stream(frame, time="ts"), "t": wm.Stream(frame, time="ts")}
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k AND a.v + b.v < 0 AND a.v - b.v > -5 WINDOW = 10 SECONDS"
    assert "(DuckDB in the unit)" in wm.sql(text, **streams).explain("full")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        query = wm.sql(text, **streams)
        assert "in the unit)" not in query.explain("full")
        assert Counter(map(tuple, query.dataframe().collect())) == Counter(
            {(2**31 - 1, 1): 1, (2**31 - 1, 2**31 - 1): 1}
        )
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_a_watermark_on_an_input_is_noticed(spark: Any) -> None:
    marked = spark.readStream.format("rate").load().withWatermark("timestamp", "10 seconds")
    streams = {name: wm.Stream(marked, time="timestamp") for name in ("s", "t")}
    with pytest.warns(UserWarning, match=r"stream s: withWatermark\('timestamp', '10 seconds'\)"):
        wm.sql("SELECT a.value FROM s a, t b WHERE a.value = b.value WINDOW = 10 SECONDS", **streams)
