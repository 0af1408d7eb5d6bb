"""Every expression of the table, through every runtime, in several time zones, with ANSI mode on and off: as Spark's own SQL answers
over the same data, in value and type, or refused when it is bound.

A query carries all expressions of its kind. `read` selects them all, which Spark evaluates after the join. `kept` selects distinct
rows of all portable ones, and a condition that is another one for every row: both are evaluated inside the units.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.streams import BASE_US, drain, stream
from tests.sql.expressions import ALL, ONE, TWO, ZONES, expr_of, pairs

pytestmark = pytest.mark.spark
ROWS = 240
PORTABLE = [text for text in ALL if expr_of(text).portable]
NEAR = "abs(unix_micros(ts) - unix_micros(us)) <= 3600000000"
KEYS = ("hour(p)", "date_trunc('day', q)", "CAST(p AS DATE)", "x + y", "s || u", "d", "z")
COMPARED = ("f = e", "i = e", "x = y", "h = y", "n = o", "n = CAST(q AS DATE)", "date_trunc('hour', p) = q", "s < u AND d <= e", "p < q AND n = o", "z = w", "l < e AND i = j", "z <= q AND b = c")  # fmt: skip
"""Keys and comparisons, which kernels decide: brought to one type, with NaN, signs of zero, and clocks that change."""


@dataclass(frozen=True)
class Compared:
    """A query: its SELECT and its WHERE, for us and for Spark."""

    select: str
    where: str
    group: str = ""

    @property
    def ours(self) -> str:
        return f"SELECT {self.select} FROM one, two WHERE {self.where} WINDOW = 1 HOUR {self.group}"

    @property
    def sparks(self) -> str:
        """Rows that have their number are distinct."""
        rows = self.select.removeprefix("DISTINCT ")
        return f"SELECT {rows} FROM one, two WHERE {self.where} AND {NEAR} {self.group}"


def items(texts: Any) -> str:
    return ", ".join(f"{text} AS c{n}" for n, text in enumerate(texts))


@lru_cache(None)
def truths() -> tuple[str, ...]:
    """The expressions of the table that are true or false."""
    spark = SparkSession.getActiveSession()
    kinds = [kind for _, kind in spark.sql(f"SELECT {items(ALL)} FROM one, two").dtypes]
    return tuple(text for text, kind in zip(ALL, kinds, strict=True) if kind == "boolean")


def one_of(conditions: list[str]) -> str:
    """One condition out of many: another one for every row."""
    assert len(conditions) > 60
    whens = " ".join(f"WHEN {n} THEN {text}" for n, text in enumerate(conditions))
    return f"CASE row % {len(conditions)} {whens} END"


def queries(turn: int = 0) -> dict[str, Compared]:
    """What Spark evaluates itself is dealt out to the turns."""
    return {
        "read": Compared(f"row, {items(ALL[turn % 5 :: 5])}", "k = g"),
        "kept": Compared(f"DISTINCT row, {items(PORTABLE[turn % 2 :: 2])}", f"k = g AND {one_of([t for t in truths() if t in PORTABLE])}"),
        "after": Compared("row, p, z", f"k = g AND {one_of(list(truths()))}"),
        "groups": Compared(f"{items(KEYS)}, count(*) AS n, sum(i) AS s, min(p) AS lo, max(o) AS hi, avg(d) AS mean", "k = g", f"GROUP BY {', '.join(KEYS)}"),
        **{f"by {where}": Compared("row, k, g, p, q, z, d, e", where) for where in COMPARED if turn % 5 == 0},
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(spark: Any, tmp_path_factory: Any) -> Path:
    """The two streams as files, a batch each, and as views."""
    made, path = pairs(ROWS), tmp_path_factory.mktemp("expressions")
    us = [BASE_US + n for n in range(ROWS)]
    key, time = pa.array(range(ROWS), pa.int64()), pa.array(us, pa.timestamp("us", "UTC"))
    one = pa.table({"row": made["row"], "k": key, "ts": time, **{c: made[c] for c in ONE}})
    two = pa.table({"g": key, "us": time, **{c: made[c] for c in TWO}})
    for name, table in (("one", one), ("two", two)):
        (path / name).mkdir()
        pq.write_table(table, path / name / "0.parquet")
        spark.read.parquet(str(path / name)).createOrReplaceTempView(name)
    return path


@contextmanager
def session(spark: Any, zone: str, *, ansi: bool) -> Iterator[None]:
    """Spark's settings for a while."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "true")


def bag(frames: dict[str, Any]) -> Counter[Any]:
    """The rows of all frames in one job, by the frame's name, as texts; zero has no sign."""
    tagged = [f.selectExpr(f"'{_safe(name)}' AS tag", "to_json(struct(*)) AS row") for name, f in frames.items()]
    rows = reduce(lambda x, y: x.union(y), tagged).collect()
    return Counter((r.tag, unsigned(r.row)) for r in rows)


def _safe(name: str) -> str:
    return name.replace("'", "")


def unsigned(row: str) -> str:
    return re.sub(r'(?<=[:,\["])-0\.0(?=[,}"])', "0.0", row)


def test_static(spark: Any, folder: Path) -> None:
    for turn, (zone, ansi) in enumerate([*((zone, True) for zone in ZONES), (ZONES[0], False), (ZONES[2], False)]):
        with session(spark, zone, ansi=ansi):
            asked = queries(turn)
            streams = {n: wm.Stream(spark.table(n), time=t) for n, t in (("one", "ts"), ("two", "us"))}
            bound = {name: wm.sql(q.ours, **streams, units=1) for name, q in asked.items()}
            ours = {name: q.dataframe() for name, q in bound.items()}
            sparks = {name: spark.sql(q.sparks) for name, q in asked.items()}
            types = {name: [f.dataType for f in frame.schema] for name, frame in ours.items()}
            assert types == {name: [f.dataType for f in frame.schema] for name, frame in sparks.items()}
            assert ("whole results are shipped" in str(bound["kept"].explain("full"))) == (not ansi)
            assert bag(ours) == bag(sparks), (zone, ansi)


@pytest.mark.parametrize("runtime", ["stream", "rounds"])
def test_streaming(spark: Any, folder: Path, tmp_path: Path, runtime: Any) -> None:
    """What Spark evaluates anyway is run in one zone."""
    runs = [*((zone, True, "kept") for zone in ZONES[:4]), (ZONES[2], True, "after"), (ZONES[0], False, "after")]
    for n, (zone, ansi, name) in enumerate(runs):
        with session(spark, zone, ansi=ansi):
            streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
            asked = queries(n)[name]
            query = wm.sql(asked.ours, **streams, units=1)
            rows, _ = drain(query, tmp_path / f"ck{n}", tmp_path / f"out{n}", runtime)
            found = spark.createDataFrame(rows, spark.sql(asked.sparks).schema)
            assert bag({name: found}) == bag({name: spark.sql(asked.sparks)}), (zone, ansi, name)


def test_rounds_refuse_distinct_rows_that_only_spark_projects(spark: Any, folder: Path, tmp_path: Path) -> None:
    streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
    with session(spark, ZONES[0], ansi=False):
        query = wm.sql(queries()["kept"].ours, **streams)
        with pytest.raises(wm.UnsupportedError, match=r"use dataframe\(\)"):
            query.start(sink="noop", checkpoint=tmp_path / "ck")


@pytest.mark.parametrize("zone", ZONES[:4])
def test_subscriptions(spark: Any, folder: Path, tmp_path: Path, zone: str) -> None:
    """What is not portable is refused when it is added; the rest is answered."""
    with session(spark, zone, ansi=True):
        streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
        subs = wm.subscriptions(streams, checkpoint=tmp_path / "ck", sink="memory", trigger="availableNow", units=1)
        for text in set(ALL) - set(PORTABLE):
            with pytest.raises(wm.UnsupportedError):
                subs.add(f"SELECT row, {text} AS c FROM one, two WHERE k = g")
        asked = {f"read{n}": Compared(f"row, {items(PORTABLE[n::4])}", "k = g") for n in range(4)}
        asked["kept"] = Compared(
            "DISTINCT row, hour(p) AS h, p, d", f"k = g AND {one_of([t for t in truths() if t in PORTABLE])}"
        )
        for name, query in asked.items():
            subs.add(query.ours, id=name)
        subs.start().await_termination()
        answers = spark.createDataFrame(subs.table())
        frames = {name: subs.answers(answers, name) for name in asked}
        sparks = {name: spark.sql(q.sparks) for name, q in asked.items()}
        assert bag(frames) == bag(sparks)


def test_subscriptions_go_by_ansi_rules_alone(spark: Any, folder: Path, tmp_path: Path) -> None:
    streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
    with session(spark, ZONES[0], ansi=False), pytest.raises(wm.OptionError, match=r"ansi\.enabled is false"):
        wm.subscriptions(streams, checkpoint=tmp_path / "ck", sink="memory")
