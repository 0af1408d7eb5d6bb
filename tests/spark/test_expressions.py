"""Every expression of the table, through every runtime, in several time zones, with ANSI mode on and off: as Spark's own SQL answers
over the same data, in value and type, or refused when it is bound.

A query carries all expressions of its kind. `read` selects them all, which Spark evaluates after the join. `kept` selects distinct
rows of all portable ones, and a condition that is another one for every row: both are evaluated inside the units.

`make test` deals the expressions out to the sessions, those that look at a time to several zones. `make test-all` puts every
expression into every session of every runtime.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.streams import BASE_US, drain, stream
from tests.sql.evaluator.expressions import ALL, ONE, TIMES, TWO, ZONES, expr_of, pairs

pytestmark = pytest.mark.spark
ROWS = 240
THOROUGH = settings.default.max_examples >= 1000
STREAMING_ZONES = ZONES if THOROUGH else ZONES[:4]
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
    whens = " ".join(f"WHEN {n} THEN {text}" for n, text in enumerate(conditions))
    return f"CASE row % {len(conditions)} {whens} END"


@dataclass(frozen=True)
class Session:
    """A zone and a mode, and which share of the expressions it is given: that with a number, of so many."""

    zone: str
    ansi: bool
    number: int = 0
    shares: int = 1

    def deal(self, texts: Sequence[str]) -> list[str]:
        """Its share of some expressions; with ANSI mode on it has a third of those that look at a time besides."""
        mine = [t for n, t in enumerate(texts) if n % self.shares == self.number]
        zoned = (
            [t for n, t in enumerate(texts) if n % 3 == ZONES.index(self.zone) % 3 and t in TIMES] if self.ansi else []
        )
        return sorted({*mine, *zoned}, key=texts.index)

    def queries(self) -> dict[str, Compared]:
        true = self.deal(truths())
        portable = [t for t in true if t in PORTABLE]
        grouped = "count(*) AS n, sum(i) AS s, min(p) AS lo, max(o) AS hi, avg(d) AS mean"
        return {
            "read": Compared(f"row, {items(self.deal(ALL))}", "k = g"),
            "kept": Compared(f"DISTINCT row, {items(self.deal(PORTABLE))}", f"k = g AND {one_of(portable)}"),
            "after": Compared("row, p, z", f"k = g AND {one_of(true)}"),
            "groups": Compared(f"{items(KEYS)}, {grouped}", "k = g", f"GROUP BY {', '.join(KEYS)}"),
            **{
                f"by {where}": Compared("row, k, g, p, q, z, d, e", where)
                for n, where in enumerate(COMPARED)
                if n % self.shares == self.number
            },
        }


def sessions(zones: Sequence[str], modes: Sequence[bool]) -> list[Session]:
    """Sessions that share the expressions; or that have them all, each."""
    every = [(zone, ansi) for zone in zones for ansi in modes]
    if THOROUGH:
        return [Session(zone, ansi) for zone, ansi in every]
    some = [(zone, ansi) for n, (zone, ansi) in enumerate(every) if ansi or n % 4 == 1]
    return [Session(zone, ansi, n, len(some)) for n, (zone, ansi) in enumerate(some)]


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


def tag(name: str, frame: Any) -> Any:
    """The rows of a frame as texts: Python has no times beyond its years."""
    safe = name.replace("'", "")
    return frame.selectExpr(f"'{safe}' AS tag", "to_json(struct(*)) AS row")


def bag(frames: dict[str, Any]) -> Counter[Any]:
    """The rows of all frames in one job, by the frame's name."""
    return count(reduce(lambda x, y: x.union(y), [tag(name, frame) for name, frame in frames.items()]).collect())


def count(rows: Sequence[Any]) -> Counter[Any]:
    """Rows as texts; zero has no sign."""
    return Counter((r.tag, unsigned(r.row)) for r in rows)


def unsigned(row: str) -> str:
    return re.sub(r'(?<=[:,\["])-0\.0(?=[,}"])', "0.0", row)


def test_static(spark: Any, folder: Path) -> None:
    for case in sessions(ZONES, (True, False)):
        with session(spark, case.zone, ansi=case.ansi):
            asked = case.queries()
            streams = {n: wm.Stream(spark.table(n), time=t) for n, t in (("one", "ts"), ("two", "us"))}
            bound = {name: wm.sql(q.ours, **streams, units=1) for name, q in asked.items()}
            ours = {name: q.dataframe() for name, q in bound.items()}
            sparks = {name: spark.sql(q.sparks) for name, q in asked.items()}
            types = {name: [f.dataType for f in frame.schema] for name, frame in ours.items()}
            assert types == {name: [f.dataType for f in frame.schema] for name, frame in sparks.items()}
            assert ("whole results are shipped" in str(bound["kept"].explain("full"))) == (not case.ansi)
            assert bag(ours) == bag(sparks), case


def streaming_cases() -> list[Any]:
    """Runtimes and sessions, with the names of the queries that each is asked; all of them, or a few."""
    cases = sessions(STREAMING_ZONES, (True, False))
    few = [["kept"], ["kept", "after"], ["kept", "groups"]]
    asked = [(case, [] if THOROUGH else few[n % 3]) for n, case in enumerate(cases)]
    of = {"stream": asked if THOROUGH else asked[-1:], "rounds": asked}
    return [
        pytest.param(runtime, case, names, id=f"{runtime}-{case.zone}-{'ansi' if case.ansi else 'not-ansi'}")
        for runtime, cases in of.items()
        for case, names in cases
    ]


@pytest.mark.parametrize(("runtime", "case", "names"), streaming_cases())
def test_streaming(spark: Any, folder: Path, tmp_path: Path, runtime: Any, case: Session, names: list[str]) -> None:
    """Of what rounds leave to Spark, nothing is asked: see the next test."""
    with session(spark, case.zone, ansi=case.ansi):
        streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
        asked, compared = case.queries(), 0
        for m, name in enumerate(names or asked):
            query = wm.sql(asked[name].ours, **streams, units=1)
            if runtime == "rounds" and query.plan.finish is not None and not query.plan.finish.inside:
                assert not case.ansi
                continue
            rows, _ = drain(query, tmp_path / f"ck{m}", None, runtime, partial(tag, name))
            assert count(rows) == bag({name: spark.sql(asked[name].sparks)}), (case, name)
            compared += len(rows)
        assert compared or not case.ansi, "nothing was compared"


def test_rounds_refuse_distinct_rows_that_only_spark_projects(spark: Any, folder: Path, tmp_path: Path) -> None:
    streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
    with session(spark, ZONES[0], ansi=False):
        query = wm.sql(Session(ZONES[0], ansi=False).queries()["kept"].ours, **streams)
        with pytest.raises(wm.UnsupportedError, match=r"use dataframe\(\)"):
            query.start(sink="noop", checkpoint=tmp_path / "ck")


@pytest.mark.parametrize("case", sessions(STREAMING_ZONES, (True,)), ids=lambda case: case.zone)
def test_subscriptions(spark: Any, folder: Path, tmp_path: Path, case: Session) -> None:
    """What is not portable is refused when it is added; the rest is answered."""
    with session(spark, case.zone, ansi=True):
        streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
        subs = wm.subscriptions(streams, checkpoint=tmp_path / "ck", sink="memory", trigger="availableNow", units=1)
        for text in set(ALL) - set(PORTABLE):
            with pytest.raises(wm.UnsupportedError):
                subs.add(f"SELECT row, {text} AS c FROM one, two WHERE k = g")
        mine = case.deal(PORTABLE)
        asked = {f"read{n}": Compared(f"row, {items(mine[n::4])}", "k = g") for n in range(4)}
        asked["kept"] = Compared(
            "DISTINCT row, hour(p) AS h, p, d", f"k = g AND {one_of([t for t in case.deal(truths()) if t in PORTABLE])}"
        )
        for name, query in asked.items():
            subs.add(query.ours, id=name)
        subs.start().await_termination()
        answers = spark.createDataFrame(subs.table())
        typed = {name: subs.answers(answers, name) for name in asked}
        frames = {name: frame.drop(frame.columns[0]) for name, frame in typed.items()}  # less the time of the answer
        sparks = {name: spark.sql(q.sparks) for name, q in asked.items()}
        assert bag(frames) == bag(sparks)


def test_subscriptions_go_by_ansi_rules_alone(spark: Any, folder: Path, tmp_path: Path) -> None:
    streams = {s: stream(spark, str(folder / s), time=t) for s, t in (("one", "ts"), ("two", "us"))}
    with session(spark, ZONES[0], ansi=False), pytest.raises(wm.OptionError, match=r"ansi\.enabled is false"):
        wm.subscriptions(streams, checkpoint=tmp_path / "ck", sink="memory")
