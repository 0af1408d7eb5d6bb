"""spark_stream on real checkpoints: types, lateness, restarts, refusals."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import watersmeet as wm
from tests.spark.streams import run, stream, table, write
from watersmeet.runtime import spark_stream

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"


def test_every_type_comes_out_as_it_went_in(spark: Any, tmp_path: Path) -> None:
    exotic = spark.sql(
        """SELECT id AS k, timestamp_seconds(1767225600 + id) AS ts, timestamp_ntz'2026-03-29 02:30:00.123456' AS ntz,
        date'2026-01-01' AS d, CAST(id + 0.25 AS decimal(10,2)) AS m, CAST(id AS decimal(38,3)) AS wide, id % 2 = 0 AS flag,
        X'00FF' AS bin, CAST(id AS tinyint) AS tiny, CAST(1.5 AS float) AS f, array(id, NULL) AS xs,
        named_struct('p', id, 'q', 'é') AS st, map('a', id) AS mp, if(id = 1, NULL, 'text') AS txt,
        INTERVAL '1 02:03:04' DAY TO SECOND AS span FROM range(3)"""
    )
    exotic.coalesce(1).write.parquet(str(tmp_path / "s"))
    text = "SELECT a.*, b.d AS e, a.ntz + INTERVAL 1 HOUR AS later FROM s a JOIN t b ON a.k = b.k WITHIN 1 SECOND"
    streams = {"s": stream(spark, str(tmp_path / "s")), "t": stream(spark, str(tmp_path / "s"))}
    frame = wm.sql(text, **streams).dataframe()
    collected: list[Any] = []
    query = frame.writeStream.option("checkpointLocation", str(tmp_path / "ck")).foreachBatch(
        lambda b, _: collected.extend(b.collect())
    )
    query.trigger(availableNow=True).start().awaitTermination()
    static = {name: wm.Stream(exotic, time="ts") for name in "st"}
    expected = exotic.selectExpr("*", "d AS e", "ntz + INTERVAL 1 HOUR AS later").collect()
    assert sorted(collected, key=lambda r: r.k) == expected
    assert sorted(wm.sql(text, **static).dataframe().collect(), key=lambda r: r.k) == expected


def test_late_rows_and_null_times_are_dropped_and_counted_once(spark: Any, tmp_path: Path) -> None:
    s = write(
        tmp_path, "s", [table([(1, 1, 100)]), table([(1, 2, 80), (1, 3, 95), (1, 4, None), (None, 5, 1), (1, -1, 2)])]
    )
    t = write(tmp_path, "t", [table([(1, 10, 99)]), table([(1, 20, 94)])])
    text = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, s c WHERE a.k = b.k AND b.k = c.k AND a.v > 0 AND c.v > 0 WINDOW = 10 SECONDS"
    out, progress = run(
        wm.sql(text, s=stream(spark, s, lateness="10 seconds"), t=stream(spark, t, lateness="1 minute")).dataframe(),
        tmp_path / "ck",
    )
    assert out == Counter({(x, y, z): 1 for x in (1, 3) for y in (10, 20) for z in (1, 3)})
    assert sum(p.late.get("s", 0) for p in progress) == 2, (
        "one older than the watermark, one without a time; filtered and keyless rows are no loss"
    )
    assert progress[-1].watermarks["s"] == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_state_is_bounded_and_an_idle_stream_lets_it_go(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(n, n, 100 * b + n) for n in range(50)]) for b in range(4)])
    t = write(tmp_path, "t", [table([(1, 1, 0)])])
    frame = wm.sql(PAIR, s=stream(spark, s), t=stream(spark, t)).dataframe()
    _, waiting = run(frame, tmp_path / "ck1")
    assert waiting[-1].state_rows["a"] == 200, "t is silent: its tuples may still come"
    frame = wm.sql(PAIR, s=stream(spark, s), t=stream(spark, t, idle="20 seconds")).dataframe()
    _, moving = run(frame, tmp_path / "ck2")
    assert moving[-1].state_rows["a"] <= 34


def test_rows_window_waits_for_the_watermark_and_equals_local(spark: Any, tmp_path: Path) -> None:
    s = [table([(n % 2, n, n + 0.5 * (n % 3)) for n in range(b * 8, b * 8 + 8)]) for b in range(4)]
    t = [table([(n % 2, 100 + n, 2 * n) for n in range(b * 5, b * 5 + 5)]) for b in range(4)]
    ahead = table([(9, 0, 1000)])
    text = "SELECT a.v AS x, b.v AS y FROM s a [ROWS 3], t b [ROWS 2] WHERE a.k = b.k AND a.v > 3"
    local = wm.local.run(text, {"s": pa.concat_tables(s), "t": pa.concat_tables(t)}, batch_rows=7)
    expected = Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))
    assert sum(expected.values()) > 10
    streams = {"s": write(tmp_path, "s", [*s, ahead]), "t": write(tmp_path, "t", [*t, ahead])}
    out, _ = run(
        wm.sql(text, **{n: stream(spark, p, lateness="5 seconds") for n, p in streams.items()}).dataframe(),
        tmp_path / "ck",
    )
    assert out == expected
    static = {n: wm.Stream(spark.read.parquet(p), time="ts") for n, p in streams.items()}
    assert Counter(map(tuple, wm.sql(text, **static).dataframe().collect())) == expected


def test_a_condition_that_only_spark_can_evaluate(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, "kitten", 1), (1, "mitten", 2)])])
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k AND levenshtein(a.v, b.v) = 1 WINDOW = 10 SECONDS"
    query = wm.sql(text, s=stream(spark, s), t=stream(spark, s))
    assert "(Spark, after the join)" in query.explain()
    out, _ = run(query.dataframe(), tmp_path / "ck")
    assert out == Counter({("kitten", "mitten"): 1, ("mitten", "kitten"): 1})


def test_restart_goes_on_where_it_stopped(spark: Any, tmp_path: Path) -> None:
    batches = [table([(k, 10 * b + k, 5 * b + k) for k in range(3)]) for b in range(6)]
    local = wm.local.run(PAIR, {"s": pa.concat_tables(batches), "t": pa.concat_tables(batches)})
    for n in range(6):
        s = write(tmp_path, "s", [batches[n]], first=n)
        t = write(tmp_path, "t", [batches[n]], first=n)
        frame = wm.sql(
            PAIR, s=stream(spark, s, lateness="1 minute"), t=stream(spark, t, lateness="1 minute")
        ).dataframe()
        out, _ = run(frame, tmp_path / "ck", tmp_path / "out")
    assert out == Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))


def _ended(frame: Any, checkpoint: Path) -> str:
    with pytest.raises(StreamingQueryException) as error:
        run(frame, checkpoint)
    return str(error.value)


def test_a_checkpoint_of_another_query_or_placement_is_refused(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    run(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s)).dataframe(), tmp_path / "ck")
    write(tmp_path, "s", [table([(1, 2, 2)])], first=1)
    wider = PAIR.replace("10 SECONDS", "20 SECONDS")
    said = _ended(wm.sql(wider, s=stream(spark, s), t=stream(spark, s)).dataframe(), tmp_path / "ck")
    assert "another query or placement" in said
    assert "10 SECONDS" in said
    assert "20 SECONDS" in said
    said = _ended(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s), units=3).dataframe(), tmp_path / "ck")
    assert "another query or placement" in said


def test_a_damaged_checkpoint_is_an_error(spark: Any, tmp_path: Path) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    run(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s)).dataframe(), tmp_path / "ck")
    write(tmp_path, "s", [table([(1, 2, 2)])], first=1)
    for part in (tmp_path / "ck" / "state" / "0").iterdir():
        if part.name.isdigit():
            shutil.rmtree(part)
    _ended(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s)).dataframe(), tmp_path / "ck")


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
        wm.sql(PAIR, s=live, t=still).explain()
    with pytest.raises(wm.WatersmeetError, match="no equality"):
        wm.sql("SELECT a.v FROM s a, t b WHERE a.v < b.v WINDOW = 1 SECOND", s=live, t=live).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"(?i)nonsense"):
        wm.sql("SELECT nonsense(a.v) AS x FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", s=live, t=live).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"(?i)nonsense"):
        wm.sql(
            "SELECT a.v FROM s a, t b WHERE a.k = b.k AND nonsense(a.v) WINDOW = 1 SECOND", s=live, t=live
        ).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"wm\.Stream"):
        wm.sql(PAIR, s=live.source, t=live)
    with pytest.raises(wm.WatersmeetError, match="not in this release"):
        wm.sql(PAIR, s=live, t=live).start()


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
    assert "(DuckDB in the unit)" in wm.sql(text, **streams).explain()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        query = wm.sql(text, **streams)
        assert "in the unit)" not in query.explain()
        assert Counter(map(tuple, query.dataframe().collect())) == Counter(
            {(2**31 - 1, 1): 1, (2**31 - 1, 2**31 - 1): 1}
        )
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
