"""DISTINCT and GROUP BY on Spark: static, streaming and in rounds, batch by batch as the oracle says; restarts, types, refusals."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.cases import SECOND, Agg, All, Case, Col, Interval, Pair, bag, op, rounded
from tests.properties.test_spark import AB, ABC, BATCH_ROWS, case, equal, found
from tests.properties.test_spark import write as write_case
from tests.spark.streams import Runtime, entrance, stream, table, write
from tests.starved import until_ended
from watersmeet.runtime.spark.session import start_query

pytestmark = pytest.mark.spark


def of(query: Case, *select: Any, **changes: Any) -> Case:
    return replace(query, select=select, **changes)


ONE_KEY = case(AB, [equal("a", "b", "k"), op("<", Col("a", "v"), Col("b", "v"))], [All("WINDOW", 3 * SECOND)])
TWO_KEYS = case(
    ABC, [equal("a", "b", "k"), equal("b", "c", "n")], [Pair("WINDOW", "a", "b", SECOND), Pair("DWINDOW", "b", "c", 2 * SECOND)]
)  # fmt: skip
SOME = (
    Agg("count"),
    Agg("sum", Col("b", "n")),
    Agg("avg", Col("a", "n")),
    Agg("min", Col("b", "v")),
    Agg("max", Col("b", "ts")),
)
INSIDE = {
    "distinct": of(ONE_KEY, Col("a", "n"), Col("b", "f"), op("*", Col("a", "n"), Col("b", "n")), distinct=True),
    "distinct, three streams": of(TWO_KEYS, Col("a", "k"), Col("c", "name"), distinct=True),
    "distinct, no horizon": of(case(AB, [equal("a", "b", "k")], [Interval("a", "b", 0, 0)]), Col("b", "n"), distinct=True),
    "distinct, full history": of(case(AB, [equal("a", "b", "n")], []), Col("a", "n"), Col("b", "name"), distinct=True),
    "groups": of(ONE_KEY, Col("a", "n"), Col("b", "f"), aggregates=SOME),
    "groups, three streams": of(TWO_KEYS, Col("a", "name"), aggregates=(*SOME, Agg("sum", op("*", Col("a", "n"), Col("c", "n"))))),
    "of all results": of(ONE_KEY, aggregates=SOME),
    "only counted": of(ONE_KEY, aggregates=(Agg("count"),)),
}  # fmt: skip
OUTSIDE = {
    "distinct after a condition of Spark's": of(
        replace(ONE_KEY, predicates=(*ONE_KEY.predicates, op("<>", op("reverse", Col("a", "name")), op("reverse", Col("b", "name"))))),
        op("reverse", Col("a", "name")), Col("b", "ts"), distinct=True,
    ),
    "groups by what only Spark evaluates": of(ONE_KEY, op("reverse", Col("a", "name")), aggregates=SOME),
}  # fmt: skip
QUERIES = INSIDE | OUTSIDE


def streaming(spark: Any, query: Case, folder: Path, **options: Any) -> Any:
    streams = {name: stream(spark, path, lateness="1 hour") for name, path in write_case(query, folder).items()}
    return wm.sql(query.sql(), **streams, **{"units": 2, **options})


def collected(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a Spark result, its times as whole microseconds."""
    return [row for row, n in found(frame).items() for _ in range(n)]


def updates(query: Any, checkpoint: Path, runtime: Runtime) -> dict[int, list[tuple[Any, ...]]]:
    """What leaves in every batch, times as whole microseconds."""
    out: dict[int, list[tuple[Any, ...]]] = {}

    def collect(batch: Any, number: int) -> None:
        out[number] = collected(batch)

    if runtime == "stream":
        mode = "append" if query.plan.join.distinct else "update"
        writer = query.dataframe().writeStream.outputMode(mode).foreachBatch(collect)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        until_ended(lambda: start_query(writer, SparkSession.getActiveSession(), is_local=True))
    else:
        with entrance(shuffled=runtime == "shuffled"):
            handle = query.start(sink=collect, checkpoint=checkpoint, trigger="availableNow")
        handle.await_termination()
    return out


@pytest.mark.parametrize("title", QUERIES)
def test_static(spark: Any, tmp_path: Path, title: str) -> None:
    query = QUERIES[title]
    streams = {
        name: wm.Stream(spark.read.parquet(path), time="ts", lateness="1 hour")
        for name, path in write_case(query, tmp_path).items()
    }
    bound = wm.sql(query.sql(), **streams, units=2)
    assert ("whole results are shipped" in bound.explain("full")) == (title in OUTSIDE)
    outcome = query.expected()
    want = bag(rounded(outcome.final if query.aggregates else outcome.rows))
    assert want, "a query without results tests little"
    assert bag(rounded(collected(bound.dataframe()))) == want


ROUNDS = ("distinct", "distinct, no horizon", "groups", "groups, three streams", "of all results")
_IN_SHORT = {
    "stream": ("groups", "groups by what only Spark evaluates"),
    "rounds": [title for title in ROUNDS if title not in ("distinct", "groups")],
}
"""What `make test` runs; on `start()` it runs "distinct" and "groups" with a restart (`test_a_restart_goes_on`), and on `dataframe()` distinct rows of many types (`test_expressions`)."""
RUNS = [
    *(
        pytest.param(runtime, title, {}, marks=[] if title in _IN_SHORT[runtime] else [pytest.mark.thorough])
        for runtime, titles in (("stream", QUERIES), ("rounds", ROUNDS))
        for title in titles
    ),
    ("shuffled", "distinct", {}),
    pytest.param("shuffled", "groups", {}, marks=pytest.mark.thorough),
    pytest.param("stream", "distinct, three streams", {"routing": "random", "units": 4}, marks=pytest.mark.thorough),
    ("rounds", "distinct, three streams", {"routing": "random", "units": 4}),
    ("rounds", "groups", {"routing": "contrand(2, 1)", "units": 4}),
    ("rounds", "distinct, full history", {"shipping": "semijoin"}),
]


@pytest.mark.parametrize(("runtime", "title", "options"), RUNS, ids=lambda part: str(part) if part else "")
def test_streaming(spark: Any, tmp_path: Path, title: str, runtime: Runtime, options: dict[str, Any]) -> None:
    """Every batch lets out what the oracle says; a total of all results Spark repeats even where it has not changed."""
    query = QUERIES[title]
    outcome = query.expected(BATCH_ROWS)
    got = updates(streaming(spark, query, tmp_path, **options), tmp_path / "ck", runtime)
    assert len(got) > 1, "the input came in one batch"
    for number, rows in got.items():
        want = outcome.in_batch(number)
        if want or query.select:
            assert bag(rounded(rows)) == bag(rounded(want)), (number, query.sql())


@pytest.mark.parametrize("title", OUTSIDE)
def test_rounds_refuse_what_only_spark_can_project(spark: Any, tmp_path: Path, title: str) -> None:
    bound = streaming(spark, QUERIES[title], tmp_path)
    with pytest.raises(wm.WatersmeetError, match=r"REVERSE.*use dataframe\(\)"):
        bound.start(sink="noop", checkpoint=tmp_path / "ck")


@pytest.mark.parametrize(
    ("runtime", "title"),
    [
        pytest.param("stream", "distinct", marks=pytest.mark.thorough),
        pytest.param("stream", "groups", marks=pytest.mark.thorough),  # their state is Spark's own
        ("rounds", "distinct"),
        ("rounds", "groups"),
    ],
)
def test_a_restart_goes_on(spark: Any, tmp_path: Path, title: str, runtime: Runtime) -> None:
    query, size = QUERIES[title], 20
    want = query.expected(size)
    got: dict[int, list[Any]] = {}
    for batches in (range(1), range(1, 3)):
        for name, rows in query.tables().items():
            pieces = [rows.slice(n * size, size) for n in batches]
            write(tmp_path, name, pieces, first=batches.start)
        streams = {name: stream(spark, str(tmp_path / name), lateness="1 hour") for name, _ in query.data}
        got |= updates(wm.sql(query.sql(), **streams, units=2), tmp_path / "ck", runtime)
    assert {n: bag(rounded(rows)) for n, rows in got.items()} == {n: bag(rounded(want.in_batch(n))) for n in range(3)}


EDGES = """SELECT id AS i, id % 3 AS g, timestamp_seconds(1767225600) AS ts, CAST(id AS tinyint) AS t, CAST(id - 4 AS int) AS n,
    CASE id WHEN 1 THEN double('NaN') WHEN 2 THEN double('Infinity') WHEN 3 THEN -0.0D WHEN 4 THEN NULL ELSE id / 3D END AS d,
    CAST(id / 7D AS float) AS f, CAST(id / 7 AS decimal(10,4)) AS m, CAST(id AS decimal(38,6)) AS w, if(id = 4, NULL, id % 2 = 0) AS o,
    CAST(id * 1000 AS string) AS s, CAST(CAST(id AS string) AS binary) AS b, date_add(date'2026-01-01', CAST(id AS int)) AS y,
    timestamp_ntz'2026-03-29 02:30:00' + make_dt_interval(0, 0, 0, id) AS z FROM range(9)"""
NUMBERS, THINGS = "tndfm", "tndfmosbyz"


def test_views_are_what_spark_aggregates(spark: Any) -> None:
    """Values and types, over every plain type, NaN, infinity and NULL; once more with DECIMAL(38) and its mean, outside."""
    rows = spark.sql(EDGES).cache()
    rows.createOrReplaceTempView("edges")
    streams = {name: wm.Stream(rows, time="ts") for name in "st"}
    items = [f"{f}(a.{c})" for f in ("sum", "avg") for c in NUMBERS if (f, c) != ("avg", "m")]
    items += [f"{f}(a.{c})" for f in ("min", "max", "count") for c in THINGS]
    for more in ([], ["avg(a.m)", "sum(a.w)", "avg(a.w)", "sum(a.s)"]):
        select = ", ".join(f"{item} AS c{n}" for n, item in enumerate([*items, *more]))
        bound = wm.sql(
            f"SELECT a.g, {select} FROM s a, t b WHERE a.i = b.i WINDOW = 1 SECOND GROUP BY a.g", **streams, units=2
        )
        assert ("local views" in bound.explain("full")) == (not more)
        want = spark.sql(f"SELECT a.g, {select} FROM edges a GROUP BY a.g")
        got = bound.dataframe()
        assert [(f.name, f.dataType) for f in got.schema] == [(f.name, f.dataType) for f in want.schema]
        assert bag(rounded(map(tuple, got.collect()))) == bag(rounded(map(tuple, want.collect())))


def test_keys_and_distinct_rows_of_every_type(spark: Any) -> None:
    """All plain types at once inside the units; with nested ones outside."""
    rows = spark.sql(EDGES)
    streams = {name: wm.Stream(rows, time="ts") for name in "st"}
    plain = [f"a.{c}" for c in (*THINGS, "w")]
    for items in (plain, [*plain, "array(a.n)", "named_struct('x', a.n)"]):
        select = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
        tail = "FROM s a, t b WHERE a.g = b.g WINDOW = 1 SECOND"
        distinct = wm.sql(f"SELECT DISTINCT {select} {tail}", **streams, units=2).dataframe()
        groups = wm.sql(f"SELECT {select}, count(*) AS n {tail} GROUP BY {', '.join(items)}", **streams, units=2)
        want = bag(map(_plain, rows.alias("a").selectExpr(*items).distinct().collect()))
        assert bag(map(_plain, distinct.collect())) == want
        assert bag(map(_plain, groups.dataframe().collect())) == {(*row, 3): 1 for row in want}


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(repr(v) if isinstance(v, list | tuple | bytearray) or hasattr(v, "asDict") else v for v in row)


@pytest.mark.parametrize("runtime", [pytest.param("stream", marks=pytest.mark.thorough), "rounds"])
def test_distinct_keeps_only_open_buckets(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    """Rows of a closed bucket are forgotten: equal rows leave again in the next, and state files do not add up."""
    batches = 3 if runtime == "stream" else 6  # the state store's files are Spark's
    tables = [table([(k, k % 5, 20 * b + k) for k in range(10)]) for b in range(batches)]
    paths = {n: write(tmp_path, n, tables) for n in "st"}
    text = "SELECT DISTINCT a.v FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
    query = wm.sql(text, **{n: stream(spark, p) for n, p in paths.items()})
    got = updates(query, tmp_path / "ck", runtime)
    assert [sorted(rows) for rows in got.values()] == [[(v,) for v in range(5)]] * batches
    if runtime != "stream":
        files = list((tmp_path / "ck" / "watersmeet" / "segments").iterdir())
        assert sum(f.stat().st_size for f in files) < 60_000


def test_overflow_is_an_error(spark: Any) -> None:
    rows = spark.sql(
        "SELECT id AS k, CAST(9223372036854775807 AS bigint) AS v, timestamp_seconds(1) AS ts FROM range(2)"
    )
    text = "SELECT sum(a.v) AS s FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    with pytest.raises(Exception, match=r"(?i)overflow|out of range"):
        wm.sql(text, **{n: wm.Stream(rows, time="ts") for n in "st"}, units=1).dataframe().collect()


def test_without_ansi_mode_spark_aggregates_itself(spark: Any) -> None:
    rows = spark.sql(
        "SELECT id AS k, CAST(9223372036854775807 AS bigint) AS v, timestamp_seconds(1) AS ts FROM range(2)"
    )
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        query = wm.sql(
            "SELECT sum(a.v) AS s FROM s a, t b WHERE a.k = b.k WINDOW = 1 s",
            **{n: wm.Stream(rows, time="ts") for n in "st"},
        )
        assert "ANSI mode is off" in query.explain("full")
        assert query.dataframe().collect()[0].s == -2
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_what_spark_refuses_is_refused_in_the_driver(spark: Any) -> None:
    rows = spark.sql("SELECT id AS k, map('a', id) AS m, timestamp_seconds(1) AS ts, id % 2 = 0 AS o FROM range(2)")
    streams = {n: wm.Stream(rows, time="ts") for n in "st"}
    for text in ("SELECT DISTINCT a.m", "SELECT sum(a.o) AS s", "SELECT max(a.m) AS s"):
        with pytest.raises(wm.WatersmeetError):
            wm.sql(f"{text} FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", **streams).dataframe()


def test_expressions_over_aggregates_are_sparks(spark: Any) -> None:
    rows = spark.sql(
        "SELECT id AS k, id % 2 AS g, CAST(id AS decimal(10,2)) AS m, timestamp_seconds(1) AS ts FROM range(6)"
    )
    text = "SELECT format_number(sum(a.m) / count(*), 1) AS t, a.g + 1 AS h FROM s a, t b WHERE a.k = b.k WINDOW = 1 s GROUP BY a.g"
    got = wm.sql(text, **{n: wm.Stream(rows, time="ts") for n in "st"}).dataframe()
    assert sorted(map(tuple, got.collect())) == [("2.0", 1), ("3.0", 2)]
    assert Decimal(got.collect()[0][0])
