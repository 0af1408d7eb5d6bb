"""Tumbling windows: against a nested loop, in `wm.local.run` and in registered queries of every kind, over times before and after the epoch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm

WIDTH_US = 4_000_000
KINDS = {"zoned": pa.timestamp("us", tz="UTC"), "local": pa.timestamp("us")}


def make_stream(chance: random.Random, first: int, kind: pa.DataType) -> pa.Table:
    """Tuples in order of time, some of them at the very ends of windows."""
    edges = (0, 1, WIDTH_US - 1, chance.randrange(WIDTH_US))
    ts = sorted(chance.randrange(-3, 4) * WIDTH_US + chance.choice(edges) for _ in range(40))
    return pa.table(
        {"id": range(first, first + 40), "k": [chance.randrange(3) for _ in ts], "ts": pa.array(ts).cast(kind)}
    )


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    ts = table.column("ts").cast(pa.int64()).to_pylist()
    return [{**row, "ts": at} for row, at in zip(table.to_pylist(), ts, strict=True)]


def expect(r: pa.Table, s: pa.Table, *, keyed: bool) -> Counter[tuple[int, int]]:
    return Counter(
        (x["id"], y["id"])
        for x in rows_of(r)
        for y in rows_of(s)
        if x["ts"] // WIDTH_US == y["ts"] // WIDTH_US and (x["k"] == y["k"] if keyed else x["k"] < y["k"])
    )


def found_in(table: pa.Table) -> Counter[tuple[int, int]]:
    return Counter(zip(table.column("x").to_pylist(), table.column("y").to_pylist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("test", ["r.k = s.k", "r.k < s.k"])
def test_members_lie_in_the_same_window(kind: str, test: str) -> None:
    chance = random.Random(5)
    tables = {"r": make_stream(chance, 0, KINDS[kind]), "s": make_stream(chance, 100, KINDS[kind])}
    expected = expect(**tables, keyed="=" in test)
    assert sum(expected.values()) > 50
    out = wm.local.run(f"SELECT r.id AS x, s.id AS y FROM r, s WHERE {test} TUMBLING = 4 SECONDS", tables, batch_rows=7)
    assert found_in(out) == expected


@pytest.mark.parametrize(("engine", "test"), [("shared", "r.k = s.k"), ("rjoin", "r.k = s.k"), ("shared", "r.k < s.k")])
def test_registered_queries(engine: str, test: str) -> None:
    chance = random.Random(6)
    r, s = make_stream(chance, 0, KINDS["zoned"]), make_stream(chance, 100, KINDS["zoned"])
    streams = {name: wm.Stream(t.slice(0, 0), time="ts", lateness="1 hour") for name, t in (("r", r), ("s", s))}
    subs = wm.local.subscriptions(streams, engine=engine, units=2)
    subs.add(f"SELECT r.id AS x, s.id AS y FROM r, s WHERE {test} TUMBLING = 4 SECONDS", id="q")
    subs.add(f"SELECT r.id AS x, s.id AS y FROM r, s WHERE {test} WINDOW = 4 SECONDS", id="wider")
    answers = pa.concat_tables([subs.push({"r": r.slice(n, 10), "s": s.slice(n, 10)}) for n in range(0, 40, 10)])
    objects = answers.filter(pa.compute.equal(answers.column("query"), "q")).column("answer").to_pylist()
    found = Counter((int(o.split(":")[1].split(",")[0]), int(o.split(":")[2].rstrip("}"))) for o in objects)
    assert found == expect(r, s, keyed="=" in test)
    assert answers.num_rows > 2 * sum(found.values()), "windows that slide have more"


def test_rows_of_distinct_leave_once_per_window() -> None:
    chance = random.Random(7)
    tables = {"r": make_stream(chance, 0, KINDS["zoned"]), "s": make_stream(chance, 100, KINDS["zoned"])}
    out = wm.local.run("SELECT DISTINCT r.k AS k FROM r, s WHERE r.k = s.k TUMBLING = 4 SECONDS", tables, batch_rows=7)
    pairs = ((x, y) for x in rows_of(tables["r"]) for y in rows_of(tables["s"]) if x["k"] == y["k"])
    expected = {(x["k"], x["ts"] // WIDTH_US) for x, y in pairs if x["ts"] // WIDTH_US == y["ts"] // WIDTH_US}
    assert Counter(out.column("k").to_pylist()) == Counter(k for k, _ in expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT r.id FROM r, s WHERE r.k = s.k TUMBLING (r, s) = 4 s", "holds for all streams"),
        ("SELECT r.id FROM r LEFT JOIN s ON r.k = s.k TUMBLING = 4 s", "goes with inner joins"),
        ("SELECT r.id FROM r, s WHERE r.k = s.k TUMBLING = 0 s", "zero"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    empty = make_stream(random.Random(1), 0, KINDS["zoned"]).slice(0, 0)
    with pytest.raises(wm.WatersmeetError, match=said):
        wm.local.run(text, {"r": empty, "s": empty})


def test_a_column_of_that_name_stays_one() -> None:
    table = make_stream(random.Random(1), 0, KINDS["zoned"]).rename_columns(["id", "tumbling", "ts"])
    out = wm.local.run(
        "SELECT r.id FROM r, s WHERE r.id = s.id AND r.tumbling = 1 WINDOW = 1 s", {"r": table, "s": table}
    )
    assert out.num_rows == table.column("tumbling").to_pylist().count(1) > 0


def test_the_fluent_form_says_the_same() -> None:
    chance = random.Random(8)
    r, s = make_stream(chance, 0, KINDS["zoned"]), make_stream(chance, 100, KINDS["zoned"])
    q = wm.join(r=wm.Stream(r, time="ts"), s=wm.Stream(s, time="ts")).on("r.k = s.k").tumble("4 s")
    assert "TUMBLING = 4 s" in str(q.explain())


@pytest.mark.spark
def test_windows_are_those_of_sparks_own_function(spark: Any) -> None:
    """A static join on Spark, and Spark's SQL with window() on both sides; times before the epoch, too."""
    times = pa.array([n * 1_300_000 for n in range(-30, 30)], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": range(60), "k": [n % 3 for n in range(60)], "ts": times})
    frame = spark.createDataFrame(rows.to_pandas())
    given = {name: wm.Stream(frame, time="ts") for name in "rs"}
    text = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k"
    found = wm.sql(f"{text} TUMBLING = 10 SECONDS", given).dataframe()
    frame.createOrReplaceTempView("written")
    spark.sql("SELECT id, k, window(ts, '10 seconds') AS w FROM written").createOrReplaceTempView("tumbled")
    wanted = spark.sql(f"{text.replace('r, s', 'tumbled r, tumbled s')} AND r.w = s.w")
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, wanted.collect()))
    assert wanted.count() > 60, "more than every row with itself"


@pytest.mark.parametrize(
    "window", ["TUMBLING = 5 ROWS", "TUMBLING = 5 tuples", "WINDOW = 5 ROWS", "DWINDOW (r, s) = 5 ROWS"]
)
def test_windows_that_count_tuples_are_refused_with_the_remedy(window: str) -> None:
    table = make_stream(random.Random(7), 0, KINDS["zoned"])
    with pytest.raises(wm.WatersmeetError, match=r"counts tuples.*\[ROWS 5\].*FROM stream alias \[TUMBLING 5 ROWS\]"):
        wm.local.run(f"SELECT r.id AS x FROM r, s WHERE r.k = s.k {window}", {"r": table, "s": table})


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_blocks_of_tuples_that_the_source_numbers(engine: str) -> None:
    """What goes with every engine: each stream numbers its tuples, and the blocks are joined as any column is."""
    chance = random.Random(8)
    tables = [make_stream(chance, first, KINDS["zoned"]) for first in (0, 100)]
    numbered = [t.append_column("block", pa.array(n // 5 for n in range(t.num_rows))) for t in tables]
    streams = {s: wm.Stream(t.slice(0, 0), time="ts", lateness="1 hour") for s, t in zip("rs", numbered, strict=True)}
    subs = wm.local.subscriptions(streams, engine=engine, units=2)
    subs.add("SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.block = s.block WINDOW = 1 MINUTE", id="q")
    out = subs.push(dict(zip("rs", numbered, strict=True)))
    r, s = map(rows_of, numbered)
    wanted = sum(x["k"] == y["k"] and x["block"] == y["block"] for x in r for y in s)
    assert out.num_rows == wanted > 0
