"""Groups that end, on Spark: static, streaming with a restart and in rounds, batch by batch as the oracle says; values and time zones as Spark's own SQL has them."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.oracle import Arrival, run
from tests.spark.streams import Runtime, feed
from tests.spark.test_trees import count_of, play_in_two_lives, write
from tests.trees import KINDS, TreeCase, counted, generate

pytestmark = pytest.mark.spark
SPARKS = "CAST(initcap(CAST(a.k AS string)) AS bigint)"
"""A key that only Spark evaluates."""


def make(title: str) -> TreeCase:
    """Three streams at three units: an inner join with HAVING, or two left joins, grouped by the time of what may be NULL."""
    seed, kinds = (479, ("inner",)) if title == "inner" else (563, KINDS)
    case = generate(random.Random(seed), kinds, 3, rows=12, grouped=True)
    if title == "projected by Spark":
        case.sql = case.sql.replace("a.k AS", f"{SPARKS} AS").replace("), a.k", f"), {SPARKS}")
        assert case.sql.count(SPARKS) == 2
    return case


THOROUGH = [("stream", "inner"), ("stream", "tree"), ("stream", "projected by Spark")]
RUNS = [("rounds", "inner"), ("rounds", "tree")]
RUNS += [pytest.param(*run, marks=pytest.mark.thorough) for run in THOROUGH]


@pytest.mark.parametrize(("runtime", "title"), RUNS)
def test_streaming(spark: Any, tmp_path: Path, runtime: Runtime, title: str) -> None:
    """The query stops after the first batch, and goes on from its checkpoint; no group leaves twice."""
    play_in_two_lives(spark, tmp_path, make(title), runtime)


@pytest.mark.parametrize("title", ["tree", "projected by Spark"])
def test_static(spark: Any, tmp_path: Path, title: str) -> None:
    case = make(title)
    write(case, tmp_path, range(count_of(case)))
    whole = {s: Arrival([[r for b in a.batches for r in b]], 10**12) for s, a in case.arrivals.items()}
    streams = {s: wm.Stream(spark.read.parquet(str(tmp_path / s)), time="ts") for s in case.arrivals}
    found = wm.sql(case.sql, streams, **case.options).dataframe().collect()
    assert counted(found) == counted(run(case.query, whole, ends=True).rows), case.sql


ROWS = """SELECT id AS i, id % 3 AS g, timestamp'2026-03-28 00:00:00Z' + make_dt_interval(0, id * 5, 7) AS ts, CAST(id AS tinyint) AS t, CAST(id - 4 AS int) AS n,
    CASE id WHEN 1 THEN double('NaN') WHEN 2 THEN double('Infinity') WHEN 3 THEN -0.0D WHEN 4 THEN NULL ELSE id / 3D END AS d,
    CAST(id / 7D AS float) AS f, CAST(id / 7 AS decimal(10,4)) AS m, CAST(id AS decimal(38,6)) AS w, if(id = 4, NULL, id % 2 = 0) AS o,
    CAST(id % 4 * 1000 AS string) AS s, CAST(CAST(id AS string) AS binary) AS b, date_add(date'2026-01-01', CAST(id AS int)) AS y,
    timestamp_ntz'2026-03-29 01:30:00' + make_dt_interval(0, id, 40) AS z FROM range(12)"""
NUMBERS, THINGS = ("t", "n", "d", "f", "m"), ("t", "n", "d", "f", "m", "o", "s", "b", "y", "z", "ts")
SPREADS = ("stddev", "stddev_pop", "variance", "var_pop")
OURS = [
    *(f"{f}(a.{c})" for f in SPREADS for c in NUMBERS),
    *(f"count(DISTINCT a.{c})" for c in THINGS),
    *(f"{f}(a.{c})" for f in ("first", "last", "collect_list", "collect_set") for c in THINGS),
    *(f"{f}_by(a.{c}, a.i)" for f in ("min", "max") for c in THINGS),
    "last_value(a.d) IGNORE NULLS", "avg(a.m)", "avg(a.w)", "sum(a.m)", "min(a.ts)", "count(*)", "max_by(a.i, a.s)",
]  # fmt: skip
WINDOW = "window(a.ts, '1 day', '8 hours', '-1 hour')"
ITEMS = ["window.start", "window.end AS until", "window", "date_format(window.end, 'HH:mm') AS clock", "a.g"]
ITEMS += [f"{item} AS c{n}" for n, item in enumerate(OURS)]


def of_spark(item: str) -> str:
    """The same in Spark, where the order matters by what it is here."""
    item = item.replace(
        "last_value(a.d) IGNORE NULLS", "max_by(if(a.d IS NULL, NULL, a.d), if(a.d IS NULL, NULL, a.ts))"
    )
    item = item.replace("max_by(a.i, a.s)", "max(struct(a.s, a.i)).i")
    for function, wanted in (("first", "min_by"), ("last", "max_by")):
        item = re.sub(rf"^{function}\((.*?)\)", rf"{wanted}(\1, a.ts)", item)
    item = re.sub(r"collect_set\((.*?)\)", r"array_sort(collect_set(\1))", item)
    return re.sub(
        r"collect_list\((.*?)\)", r"transform(array_sort(collect_list(if(\1 IS NULL, NULL, struct(a.ts, \1 AS v)))), s -> s.v)", item
    )  # fmt: skip


def shown(value: Any) -> Any:
    """A value as a text; floats to nine digits, 0.0 for -0.0."""
    if isinstance(value, float):
        return f"{value + 0.0:.9g}"
    if isinstance(value, list | tuple):
        return str([shown(v) for v in value])
    return repr(value)


def bag_of(rows: Any) -> Counter[Any]:
    return Counter(tuple(map(shown, row)) for row in rows)


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.thorough), "Europe/Berlin"])
def test_values_are_those_of_sparks_own_sql(spark: Any, tmp_path: Path, zone: str) -> None:
    """Static over every plain type, in two time zones; in the second one also on streams, in rounds and in Structured Streaming."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql(ROWS)
        rows.createOrReplaceTempView("edges")
        text = f"SELECT {', '.join(ITEMS)} FROM s a, t b WHERE a.i = b.i WINDOW = 1 SECOND GROUP BY {WINDOW}, a.g HAVING count(*) > 0"
        want = spark.sql(f"SELECT {', '.join(map(of_spark, ITEMS))} FROM edges a GROUP BY {WINDOW}, a.g")
        expected = bag_of(want.collect())
        got = wm.sql(text, {name: wm.Stream(rows, time="ts") for name in "st"}, units=2).dataframe()
        kinds, wanted = ([(f.name, f.dataType.simpleString()) for f in frame.schema] for frame in (got, want))
        assert kinds == wanted
        assert bag_of(got.collect()) == expected
        if zone != "UTC":
            runtimes: tuple[Runtime, ...] = ("stream", "rounds")
            for runtime in runtimes:
                assert bag_of(streamed(spark, text, tmp_path / runtime, runtime)) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def streamed(spark: Any, text: str, folder: Path, runtime: Runtime) -> list[Any]:
    """What leaves when the rows are followed by one that is late enough to end all groups."""
    rows, out = spark.sql(ROWS).coalesce(1), list[Any]()
    later = (
        rows.where("i = 0").withColumn("ts", F.expr("ts + INTERVAL 90 DAYS")).withColumn("i", F.lit(99).cast("bigint"))
    )
    for number, part in enumerate((later, rows)):  # the second write is made the older file
        known = set((folder / "in").glob("*.parquet"))
        part.write.mode("append").parquet(str(folder / "in"))
        for file in {*(folder / "in").glob("*.parquet")} - known:
            os.utime(file, (10**9 - number, 10**9 - number))
    source = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    query = wm.sql(text, {name: wm.Stream(source, time="ts") for name in "st"}, units=2)

    def sink(frame: Any, _: int) -> None:
        out.extend(frame.collect())

    feed(query, folder / "ck", sink, runtime)
    return out


def test_local_times(spark: Any) -> None:
    """Windows of a timestamp_ntz are counted on its own clock, also where the session's is set forward."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = spark.sql(ROWS).select("i", "z")
        rows.createOrReplaceTempView("local")
        items = "window, window.start AS s, window.end AS e, count(*) AS n"
        by = "GROUP BY window(a.z, '90 minutes', '90 minutes', '10 minutes')"
        streams = {name: wm.Stream(rows, time="z") for name in "st"}
        got = wm.sql(f"SELECT {items} FROM s a, t b WHERE a.i = b.i WINDOW = 1 SECOND {by}", streams).dataframe()
        want = spark.sql(f"SELECT {items} FROM local a {by}")
        assert [f.dataType for f in got.schema] == [f.dataType for f in want.schema]
        assert bag_of(got.collect()) == bag_of(want.collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
