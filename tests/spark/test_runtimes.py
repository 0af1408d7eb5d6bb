"""What must hold on every Spark runtime, on real checkpoints: types, lateness, state, ROWS windows, restarts, refusals."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import watersmeet as wm
from tests.spark.streams import RUNTIMES, Runtime, drain, run, stream, table, write

pytestmark = pytest.mark.spark
EVERY = pytest.mark.parametrize("runtime", RUNTIMES)
ENTERED = pytest.mark.parametrize("runtime", ["stream", "rounds", pytest.param("shuffled", marks=pytest.mark.thorough)])
"""For what does not depend on the way in which rows enter rounds."""

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"


@EVERY
def test_every_type_comes_out_as_it_went_in(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
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
    expected = exotic.selectExpr("*", "d AS e", "ntz + INTERVAL 1 HOUR AS later").collect()
    rows, _ = drain(wm.sql(text, **streams), tmp_path / "ck", tmp_path / "out", runtime)
    assert sorted(rows, key=lambda r: r.k) == expected
    if runtime == "stream":
        static = {name: wm.Stream(exotic, time="ts") for name in "st"}
        assert sorted(wm.sql(text, **static).dataframe().collect(), key=lambda r: r.k) == expected


@EVERY
def test_times_without_a_zone(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    batches = [table([(1, b, 10 * b), (2, -b, 10 * b + 3)]) for b in range(3)]
    plain = [b.set_column(2, "ts", b.column("ts").cast(pa.timestamp("us"))) for b in batches]
    s, t = write(tmp_path, "s", batches), write(tmp_path, "t", plain)
    query = wm.sql(PAIR, s=stream(spark, s), t=stream(spark, t))
    out, progress = run(query, tmp_path / "ck", runtime=runtime)
    local = wm.local.run(PAIR, {"s": pa.concat_tables(batches), "t": pa.concat_tables(batches)})
    assert out == Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))
    assert progress[-1].watermarks["t"] == datetime(2026, 1, 1, 0, 0, 23, tzinfo=UTC)


@EVERY
def test_wide_rows_of_a_far_year(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    """Milliseconds read as seconds, in the year 58,000; 36 results of 1.2 MB are more than a block."""
    far = 1_767_225_600_000 - 1_767_225_600
    wide = [(1, "w" * (1_200_000 + n), far + n) for n in range(6)]
    s = write(tmp_path, "s", [table(wide), table([(1, "x", far + 30)])])
    t = write(tmp_path, "t", [table([(1, "", far + n) for n in range(6)]), table([(1, "", far + 31)])])
    text = "SELECT length(a.v) AS n, unix_seconds(b.ts) AS at FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
    out, progress = run(wm.sql(text, s=stream(spark, s), t=stream(spark, t)), tmp_path / "ck", runtime=runtime)
    seconds = 1_767_225_600_000
    near = [(1_200_000 + n, seconds + m) for n in range(6) for m in range(6)]
    assert out == Counter([*near, (1, seconds + 31)])
    assert progress[-1].watermarks["s"] == (seconds + 30) * 1_000_000
    assert "s +57971-" in repr(progress[-1])


@EVERY
def test_late_rows_and_null_times_are_dropped_and_counted_once(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    s = write(
        tmp_path, "s", [table([(1, 1, 100)]), table([(1, 2, 80), (1, 3, 95), (1, 4, None), (None, 5, 1), (1, -1, 2)])]
    )
    t = write(tmp_path, "t", [table([(1, 10, 99)]), table([(1, 20, 94)])])
    text = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, s c WHERE a.k = b.k AND b.k = c.k AND a.v > 0 AND c.v > 0 WINDOW = 10 SECONDS"
    query = wm.sql(text, s=stream(spark, s, lateness="10 seconds"), t=stream(spark, t, lateness="1 minute"))
    out, progress = run(query, tmp_path / "ck", runtime=runtime)
    assert out == Counter({(x, y, z): 1 for x in (1, 3) for y in (10, 20) for z in (1, 3)})
    orders = [re.split(r", | \| ", order) for p in progress for order in p.drivers]
    assert orders, "progress says in which order drivers ran"
    assert all(order and set(order) <= {"a", "b", "c"} for order in orders)
    assert sum(p.late.get("s", 0) for p in progress) == 2, (
        "one older than the watermark, one without a time; filtered and keyless rows are no loss"
    )
    assert progress[-1].watermarks["s"] == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)


@EVERY
def test_the_watermark_is_taken_before_filters(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1), (1, -1, 500)]), table([(1, 2, 2)])])
    text = PAIR.replace("WINDOW", "AND a.v > 0 AND b.v > 0 WINDOW")
    out, progress = run(wm.sql(text, s=stream(spark, s), t=stream(spark, s)), tmp_path / "ck", runtime=runtime)
    assert progress[0].watermarks["s"] == datetime(2026, 1, 1, 0, 8, 20, tzinfo=UTC)
    assert out == Counter({(1, 1): 1})
    assert sum(p.late.get("s", 0) for p in progress) == 1
    assert progress[-1].state_rows == {"a": 0, "b": 0}, "what has expired by the end of its batch is gone"


@ENTERED
def test_state_is_bounded_and_an_idle_stream_lets_it_go(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    s = write(tmp_path, "s", [table([(n, n, 100 * b + n) for n in range(50)]) for b in range(4)])
    t = write(tmp_path, "t", [table([(1, 1, 0)])])
    _, waiting = run(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, t)), tmp_path / "ck1", runtime=runtime)
    assert waiting[-1].state_rows["a"] == 200, "t is silent: its tuples may still come"
    query = wm.sql(PAIR, s=stream(spark, s), t=stream(spark, t, idle="20 seconds"))
    _, moving = run(query, tmp_path / "ck2", runtime=runtime)
    assert moving[-1].state_rows["a"] <= 34


@EVERY
@pytest.mark.parametrize("window", ["ROWS {}", "TUMBLING {} ROWS"])
def test_rows_window_waits_for_the_watermark_and_equals_local(
    spark: Any, tmp_path: Path, runtime: Runtime, window: str
) -> None:
    s = [table([(n % 2, n, n + 0.5 * (n % 3)) for n in range(b * 8, b * 8 + 8)]) for b in range(4)]
    t = [table([(n % 2, 100 + n, 2 * n) for n in range(b * 5, b * 5 + 5)]) for b in range(4)]
    ahead = table([(9, 0, 1000)])
    source = f"s a [{window.format(3)}], t b [{window.format(2)}]"
    text = f"SELECT a.v AS x, b.v AS y FROM {source} WHERE a.k = b.k AND a.v > 3"
    local = wm.local.run(text, {"s": pa.concat_tables(s), "t": pa.concat_tables(t)}, batch_rows=7)
    expected = Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))
    assert sum(expected.values()) > 10
    streams = {"s": write(tmp_path, "s", [*s, ahead]), "t": write(tmp_path, "t", [*t, ahead])}
    query = wm.sql(text, **{n: stream(spark, p, lateness="5 seconds") for n, p in streams.items()})
    out, progress = run(query, tmp_path / "ck", runtime=runtime)
    assert out == expected
    if runtime == "stream":
        static = {n: wm.Stream(spark.read.parquet(p), time="ts") for n, p in streams.items()}
        assert Counter(map(tuple, wm.sql(text, **static).dataframe().collect())) == expected
    else:
        assert progress[-1].rounds == 2


@EVERY
def test_blocks_of_rows_go_on_after_a_restart(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    """Every batch has half a block more or less, so blocks are cut between restarts."""
    s = [table([(1, 10 * b + k, 5 * b + k) for k in range(3)]) for b in range(4)]
    ahead = table([(9, 0, 1000)])
    text = "SELECT a.v AS x, b.v AS y FROM s a [TUMBLING 4 ROWS], t b WHERE a.k = b.k WINDOW = 1 MINUTE"
    local = wm.local.run(text, {"s": pa.concat_tables(s), "t": pa.concat_tables(s)}, batch_rows=3)
    for n, batch in enumerate([*s, ahead]):
        paths = {name: write(tmp_path, name, [batch], first=n) for name in "st"}
        query = wm.sql(text, **{name: stream(spark, path) for name, path in paths.items()})
        out, _ = run(query, tmp_path / "ck", tmp_path / "out", runtime)
    assert out == Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))
    assert 12 < sum(out.values()) < 144


@ENTERED
def test_a_condition_that_only_spark_can_evaluate(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    s = write(tmp_path, "s", [table([(1, "kitten", 1), (1, "mitten", 2)])])
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k AND levenshtein(a.v, b.v) = 1 WINDOW = 10 SECONDS"
    query = wm.sql(text, s=stream(spark, s), t=stream(spark, s))
    assert "(Spark, after the join)" in query.explain("full")
    out, _ = run(query, tmp_path / "ck", runtime=runtime)
    assert out == Counter({("kitten", "mitten"): 1, ("mitten", "kitten"): 1})


@EVERY
def test_restart_goes_on_where_it_stopped(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    """With another number of partitions each time: state does not depend on it, except on Spark's state stores."""
    batches = [table([(k, 10 * b + k, 5 * b + k) for k in range(3)]) for b in range(3 if runtime == "stream" else 5)]
    local = wm.local.run(PAIR, {"s": pa.concat_tables(batches), "t": pa.concat_tables(batches)})
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for n, batch in enumerate(batches):
            if runtime != "stream":
                spark.conf.set("spark.sql.shuffle.partitions", str(1 + n % 3))
            s, t = (write(tmp_path, name, [batch], first=n) for name in "st")
            streams = {"s": stream(spark, s, lateness="1 minute"), "t": stream(spark, t, lateness="1 minute")}
            out, _ = run(wm.sql(PAIR, **streams), tmp_path / "ck", tmp_path / "out", runtime)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert out == Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))


@ENTERED
def test_a_checkpoint_of_another_query_or_placement_is_refused(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    def said(query: Any) -> str:
        with pytest.raises((StreamingQueryException, wm.WatersmeetError)) as error:
            run(query, tmp_path / "ck", tmp_path / "out", runtime)
        return str(error.value)

    s = write(tmp_path, "s", [table([(1, 1, 1)])])
    run(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s)), tmp_path / "ck", tmp_path / "out", runtime)
    write(tmp_path, "s", [table([(1, 2, 2)])], first=1)
    wider = said(wm.sql(PAIR.replace("10 SECONDS", "20 SECONDS"), s=stream(spark, s), t=stream(spark, s)))
    first, _, _ = wider.partition("another query or placement")
    assert "pyspark" not in first, "ours comes before Spark's frames"
    assert "\tat org" not in first
    assert len(first) < len(wider)
    assert "10 SECONDS" in wider
    assert "20 SECONDS" in wider
    fewer = said(wm.sql(PAIR, s=stream(spark, s), t=stream(spark, s), units=3))
    assert "another query or placement" in fewer
