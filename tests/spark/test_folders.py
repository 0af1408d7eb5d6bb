"""A folder as sink: what Spark reads there is what the SELECT has, in rows and types, at any time and over crashes, whoever selects."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.streams import entrance, stream, table, write
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.folder import LOG
from watersmeet.runtime.rounds.sinks import FileSink

pytestmark = pytest.mark.spark

ROWS = """SELECT id AS i, id % 3 AS g, timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, 0, 0, id) AS ts, CAST(id AS tinyint) AS t, CAST(id AS smallint) AS h, CAST(id - 4 AS int) AS n,
    CASE id WHEN 1 THEN double('NaN') WHEN 2 THEN double('Infinity') WHEN 3 THEN -0.0D WHEN 4 THEN NULL ELSE id / 3D END AS d,
    CAST(id / 7D AS float) AS f, CAST(id / 7 AS decimal(10,4)) AS m, CAST(id AS decimal(38,6)) AS w, if(id = 4, NULL, id % 2 = 0) AS o,
    if(id = 5, NULL, repeat('é/=%', CAST(id % 4 AS int))) AS s, CAST(CAST(id AS string) AS binary) AS b, date_add(date'0800-01-01', CAST(id AS int) % 3) AS y,
    timestamp_ntz'1500-03-29 01:30:00' + make_dt_interval(0, id, 40) AS z, timestamp'1200-01-01 00:00:00Z' + make_dt_interval(id) AS old, make_dt_interval(id, 1, 2, 3.5) AS v,
    array(id, NULL) AS l, named_struct('x', CAST(id AS int), 'y', array(timestamp_micros(id))) AS r, map('k', id, 'q', NULL) AS p FROM range({}, {})"""
EVERY = ["i", "g", "ts", "t", "h", "n", "d", "f", "m", "w", "o", "s", "b", "y", "z", "old", "v", "l", "r", "p"]
JOIN = "FROM s a, u b WHERE a.i = b.i WINDOW = 10 SECONDS"
QUERIES = {
    "every type": (f"SELECT {', '.join(f'a.{c} AS {c}' for c in EVERY)}, b.i AS `a b` {JOIN}", True),
    "computed": (f"SELECT a.n + b.t AS `sum`, -a.d AS d, a.s || 'x' AS s, a.m + b.m AS m, CAST(a.i AS double) AS c, a.y AS y, 1 AS one, a.n IS NULL AS isn {JOIN}", True),
    "by Spark": (f"SELECT soundex(a.s) AS x, a.ts, b.d AS d, make_ym_interval(1, CAST(a.i AS int)) AS ym, array(a.n, b.n) AS l {JOIN}", False),
    "a condition of Spark's": (f"SELECT a.i AS x, b.s AS y {JOIN} AND levenshtein(a.s, b.s) < 9", False),
    "outer": ("SELECT a.i AS x, b.s AS s, b.d AS d, b.m AS m, b.ts AS t FROM s a LEFT JOIN u b ON a.i = b.i AND b.g = 1 WINDOW = 10 SECONDS", True),
    "distinct": (f"SELECT DISTINCT a.g AS g, a.y AS y, a.d < 1 AS o {JOIN}", True),
    "groups": (f"SELECT a.g AS g, count(*) AS c, avg(a.d) AS d, sum(b.m) AS m {JOIN} GROUP BY a.g", True),
    "groups that end": (
        f"SELECT window.start AS w, window.end AS e, a.g AS g, count(*) AS n, collect_list(a.d) AS l, max(a.ts) AS t {JOIN} GROUP BY window(a.ts, '4 seconds'), a.g", True,
    ),
    "groups with HAVING": (f"SELECT window.start AS w, a.g AS g, sum(a.n) + 1 AS n {JOIN} GROUP BY window(a.ts, '4 seconds'), a.g HAVING count(*) > 0", False),
    "nothing": (f"SELECT a.i AS x, a.s AS s {JOIN} AND a.i > 100", True),
    "nothing, by Spark": (f"SELECT soundex(a.s) AS x {JOIN} AND a.i > 100", False),
}  # fmt: skip
"""Queries, and whether their units select."""


def streams(spark: Any, folder: Path) -> dict[str, wm.Stream]:
    """Four micro-batches of two streams, the second of them empty."""
    for name in "su":
        for n, (first, end) in enumerate([(0, 6), (6, 6), (6, 12), (40, 42)]):
            path = folder / name / f"{n}"
            spark.sql(ROWS.format(first, end)).coalesce(1).write.parquet(str(path))
            (file,) = path.glob("*.parquet")
            file.rename(folder / name / f"{n}.parquet")
            os.utime(folder / name / f"{n}.parquet", (1_767_225_600 + n, 1_767_225_600 + n))
    read = {n: spark.read.parquet(f"{folder}/{n}/0.parquet").schema for n in "su"}
    frames = {
        n: spark.readStream.schema(read[n]).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{n}/*.parquet")
        for n in "su"
    }
    return {n: wm.Stream(frame, time="ts") for n, frame in frames.items()}


def shown(frame: Any) -> list[str]:
    """Rows as text, bit by bit; Python has no intervals of months."""
    months = [f"CAST({name} AS string) AS {name}" if "year" in kind else f"`{name}`" for name, kind in frame.dtypes]
    return [repr(row) for row in frame.selectExpr(*months).collect()]


def kinds(schema: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.dataType) for field in schema.fields]


def run(query: Any, folder: Path, name: str, sink: Any, **options: Any) -> Any:
    handle = query.start(sink=sink, checkpoint=folder / f"ck-{name}", trigger="availableNow", **options)
    handle.await_termination()
    return handle


LESS = [what for what in QUERIES if what not in ("every type", "by Spark")]
RUNS = [(what, False) for what in QUERIES] + [("every type", True), ("by Spark", True)]


@pytest.mark.parametrize(
    ("what", "shuffled"),
    [pytest.param(*r, marks=pytest.mark.thorough) if r[0] in LESS or r == RUNS[-1] else r for r in RUNS],
)
def test_spark_reads_what_the_select_has(spark: Any, tmp_path: Path, what: str, shuffled: bool) -> None:
    text, inside = QUERIES[what]
    expected: list[str] = []
    with entrance(shuffled=shuffled):
        query = wm.sql(text, **streams(spark, tmp_path), units=2)
        run(query, tmp_path, "function", lambda rows, _: expected.extend(shown(rows)))
        handle = run(query, tmp_path, "folder", tmp_path / "out")
    assert (handle._protocol.steps.task.writing is not None) == inside
    found = spark.read.parquet(str(tmp_path / "out"))
    assert kinds(found.schema) == kinds(query.dataframe().schema)
    assert Counter(shown(found)) == Counter(expected)
    assert bool(expected) != what.startswith("nothing")
    assert sorted(p.name for p in (tmp_path / "out" / LOG).iterdir()) == ["0", "1", "2", "3"]
    assert len(handle.history()) == 4


def pair(spark: Any, tmp_path: Path, batches: list[Any], first: int = 0) -> Any:
    given = {n: stream(spark, write(tmp_path, n, batches, first), lateness="5 seconds") for n in "st"}
    return wm.sql(
        "SELECT a.v AS x, b.v AS y, a.day AS day, a.part AS part FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECONDS",
        **given,
        units=2,
    )


PARTS = ["a/b", "x=y", "ü 100%", None, "", "\\[]{}^#:?*'\"", "\x01\x7f", "__x"]


def rising(count: int, first: int = 0) -> list[Any]:
    names = "k v day part ts"
    return [
        table([(k, 100 * b + k, f"2026-01-{b + 1:02d}", PARTS[k], 3 * b) for k in range(len(PARTS))], names)
        for b in range(first, first + count)
    ]


@pytest.mark.thorough  # without Spark in tests/rounds
def test_readers_see_whole_batches_while_the_log_is_compacted(spark: Any, tmp_path: Path) -> None:
    query, counts = pair(spark, tmp_path, rising(26)), list[int]()
    handle = query.start(sink=tmp_path / "out", checkpoint=tmp_path / "ck", trigger="availableNow")
    handle.on_batch(lambda progress: counts.append(spark.read.parquet(str(tmp_path / "out")).count()))
    handle.await_termination()
    assert counts[-1] == 8 * 26
    assert all(n % 8 == 0 for n in counts)
    names = {p.name for p in (tmp_path / "out" / LOG).iterdir()}
    assert names == {"9.compact", *map(str, range(10, 19)), "19.compact", *map(str, range(20, 26))}
    write(tmp_path, "s", rising(6, 26), 26)
    query = pair(spark, tmp_path, rising(6, 26), 26)
    query.start(sink=tmp_path / "out", checkpoint=tmp_path / "ck", trigger="availableNow").await_termination()
    assert spark.read.parquet(str(tmp_path / "out")).select("x").distinct().count() == 8 * 32
    assert not (tmp_path / "out" / LOG / "18").exists()


@pytest.mark.parametrize("dies", ["commit", "put"])
def test_a_batch_that_is_repeated_is_there_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """Its files are named and its manifest is missing, or its files are there and nobody names them."""
    query, out = pair(spark, tmp_path, rising(3)), tmp_path / "out"
    how = {"sink": out, "checkpoint": tmp_path / "ck", "trigger": "availableNow", "partition_by": "day"}

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        if dies == "commit":
            patch.setattr(Protocol, "commit", fail)
        else:
            patch.setattr("watersmeet.runtime.rounds.results.log.SinkLog.put", fail)
        with pytest.raises(OSError, match="the disk is full"):
            query.start(**how).await_termination()
    written = {p.name for p in out.rglob("part-*")}
    assert len(written) == 1, "the driver writes a small batch, one file for a day"
    assert (out / LOG / "0").exists() == (dies == "commit")
    query.start(**how).await_termination()
    assert sorted(spark.read.parquet(str(out)).select("x").toArrow()["x"].to_pylist()) == sorted(
        100 * b + k for b in range(3) for k in range(8)
    )
    assert written & {p.name for p in out.rglob("part-*")} == (written if dies == "commit" else set())


def test_folders_are_named_as_spark_names_them(spark: Any, tmp_path: Path) -> None:
    query, out = pair(spark, tmp_path, rising(2)), str(tmp_path / "out")
    expected: list[Any] = []
    run(query, tmp_path, "function", lambda rows, _: expected.extend(rows.collect()))
    run(query, tmp_path, "folder", out, partition_by=["day", "PART"])
    spark.createDataFrame(expected, query.dataframe().schema).write.partitionBy("day", "part").parquet(
        str(tmp_path / "spark")
    )
    found = {p.relative_to(out).parent for p in Path(out).rglob("part-*.parquet")}
    assert found == {p.relative_to(tmp_path / "spark").parent for p in (tmp_path / "spark").rglob("part-*.parquet")}
    again, sparks = spark.read.parquet(out), spark.read.parquet(str(tmp_path / "spark"))
    assert kinds(again.schema) == kinds(sparks.schema)
    assert Counter(shown(again)) == Counter(shown(sparks))
    assert {name for p in Path(out).rglob("*.parquet") for name in pq.read_schema(p).names} == {"x", "y"}


def test_folders_of_values_that_only_spark_writes_as_text(spark: Any, tmp_path: Path) -> None:
    query = wm.sql(f"SELECT a.i AS x, a.ts AS at, a.m AS m {JOIN}", **streams(spark, tmp_path), units=2)
    expected: list[str] = []
    run(query, tmp_path, "function", lambda rows, _: expected.extend(shown(rows)))
    handle = run(query, tmp_path, "folder", tmp_path / "out", partition_by=["at", "m"])
    assert handle._protocol.steps.task.writing is None
    read = spark.read.schema(query.dataframe().schema).parquet(str(tmp_path / "out")).select("x", "at", "m")
    assert Counter(shown(read)) == Counter(expected)


def test_types_that_parquet_knows_by_sparks_own_word(spark: Any, tmp_path: Path) -> None:
    text = f"SELECT a.i AS i, parse_json(concat('{{\"x\":', a.i, '}}')) AS v, a.s COLLATE UNICODE_CI AS s {JOIN}"
    query = wm.sql(text, **streams(spark, tmp_path), units=2)
    expected: list[str] = []

    def plain(rows: Any) -> list[str]:
        return shown(rows.withColumn("v", F.to_json("v")))

    run(query, tmp_path, "function", lambda rows, _: expected.extend(plain(rows)))
    run(query, tmp_path, "folder", tmp_path / "out")
    found = spark.read.parquet(str(tmp_path / "out"))
    assert kinds(found.schema) == kinds(query.dataframe().schema)
    assert Counter(plain(found)) == Counter(expected) != Counter()


def test_json_is_what_spark_writes(spark: Any, tmp_path: Path) -> None:
    query = wm.sql(QUERIES["every type"][0].replace("a.v AS v, ", ""), **streams(spark, tmp_path), units=2)
    run(query, tmp_path, "function", lambda rows, _: rows.write.mode("append").json(str(tmp_path / "spark")))
    run(query, tmp_path, "folder", FileSink(str(tmp_path / "out"), "json"))
    found = Counter(spark.read.text(str(tmp_path / "out")).toArrow()["value"].to_pylist())
    assert found == Counter(spark.read.text(str(tmp_path / "spark")).toArrow()["value"].to_pylist()) != Counter()


def test_what_cannot_be_written_is_said_before_the_query_runs(spark: Any, tmp_path: Path) -> None:
    given = streams(spark, tmp_path)

    def refused(text: str, said: str, **how: Any) -> None:
        with pytest.raises(wm.OptionError, match=said):
            wm.sql(f"SELECT {text} {JOIN}", **given).start(
                **{"sink": tmp_path / "out", "checkpoint": tmp_path / "ck", **how}
            )

    refused("a.i AS x", "the result has no column 'day'; it has x", partition_by=["day"])
    refused("a.i AS x, a.g AS y", "all columns of the result", partition_by=["x", "y"])
    refused("a.i AS x, a.l AS y", "'y' is array<bigint>, which does not name a folder", partition_by="y")
    refused("a.i AS x, a.g AS y", "names a column twice", partition_by=["x", "X"])
    refused("a.i AS x, a.g AS y", "give names of columns", partition_by=7)
    refused(
        "a.i AS x, a.g AS y",
        "partition_by=.* is for a folder or a table, and sink is 'memory'",
        partition_by="x",
        sink="memory",
    )
    refused("a.i AS x, b.i AS X", "column 'x' twice")
    refused("a.i AS x, NULL AS y", "column 'y' is void, which Parquet files cannot hold")
    refused("a.i AS x", "Arrow, which writes the files, cannot open", sink="unheard://of/it")
    assert not (tmp_path / "out").exists()
