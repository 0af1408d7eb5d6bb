"""Registered queries on Spark: real batches, sinks, feeds and restarts. Semantics are tested in process, in tests/properties and
tests/rounds."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.spark.streams import BASE_US, stream, table, write
from watersmeet.errors import OptionError, StreamError
from watersmeet.registry.subscription import Computed
from watersmeet.runtime.progress import moment
from watersmeet.runtime.subscriptions.sinks import sub_folder

pytestmark = pytest.mark.spark

PAIR = "SELECT r.v AS x, s.v AS y FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS"
SELF = "SELECT a.v + b.v AS total, b.ts AS at, a.name FROM r a, r b WHERE a.k = b.k AND a.k = 2 AND a.v < b.v WINDOW = 10 SECONDS"


def batches(count: int, first: int = 0) -> list[pa.Table]:
    rows = [[(k, 10 * n + k, None if k == 0 else f"n'{k}", 3 * n + k / 10) for k in range(4)] for n in range(count)]
    return [table(b, "k v name ts") for b in rows][first:]


def subscriptions(spark: Any, folder: Path, **options: Any) -> Any:
    streams = {n: stream(spark, str(folder / n)) for n in "rs"}
    return wm.subscriptions(
        streams, **{"checkpoint": folder / "ck", "sink": "memory", "trigger": "availableNow", **options}
    )


def twin(queries: dict[str, str], tables: list[pa.Table]) -> Counter[tuple[str, str]]:
    """What a registry in process answers."""
    local = wm.local.subscriptions({n: wm.Stream(tables[0].slice(0, 0), time="ts") for n in "rs"})
    local.add_all(queries)
    found = [local.push({"r": t, "s": t}) for t in tables]
    return bag(pa.concat_tables(found))


def bag(answers: pa.Table) -> Counter[tuple[str, str]]:
    return Counter(zip(answers["query"].to_pylist(), answers["answer"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_queries_are_answered_and_come_and_go_without_a_restart(engine: str, spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(4))
    subs = subscriptions(spark, tmp_path, engine=engine)
    with pytest.raises(wm.WatersmeetError, match="has no column 'nope'"):
        subs.add("SELECT r.nope FROM r, s WHERE r.k = s.k")
    first = subs.add(PAIR)
    subs.add(SELF, id="self")
    changed: list[int] = []

    def change(progress: Any) -> None:
        if progress.batch_id == 1:
            subs.remove(first)
            subs.add(PAIR, id="late")
        changed.append(progress.queries)

    subs.on_batch(change)
    assert subs.start().await_termination() is True
    found = bag(subs.table())
    whole = twin({first: PAIR, "self": SELF}, batches(4))
    assert {p: n for p, n in found.items() if p[0] == "self"} == {p: n for p, n in whole.items() if p[0] == "self"}
    assert len(subs.history()) == len(changed) == 4
    assert {p[1] for p in found if p[0] == first} == {p[1] for p in twin({first: PAIR}, batches(2))}
    assert {p[1] for p in found if p[0] == "late"} == {p[1] for p in twin({"x": PAIR}, batches(4, 2))}
    assert changed == [2, 2, 2, 2]
    assert {e.id: (e.state, e.since) for e in subs.list()} == {"self": ("running", 0), "late": ("running", 2)}
    rows = sum(subs.progress().state_rows.values())
    assert sum(u.rows for u in subs.state().values()) == rows > 0
    typed = subs.answers(spark.createDataFrame(subs.table().to_pandas()), "self")
    assert typed.schema.simpleString() == "struct<ts:timestamp,total:bigint,at:timestamp,name:string>"
    gone = subs.answers(spark.createDataFrame(subs.table().to_pandas()), first)
    assert Counter((row.x, row.y) for row in gone.collect()) == Counter(
        tuple(json.loads(answer).values()) for id, answer in found.elements() if id == first
    )
    one = typed.orderBy("total").first()
    assert (one.total, one.name, int(one.at.timestamp() * 1_000_000) - BASE_US) == (14, "n'2", 3_200_000)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_a_failing_sink_and_queries_that_are_added_before_the_replay(engine: str, spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(3))
    seen: list[tuple[int, Counter[tuple[str, str]]]] = []

    def picky(rows: Any, batch_id: int) -> None:
        seen.append((batch_id, bag(rows.toArrow())))
        if len(seen) == 2:
            raise ValueError("not today")

    subs = subscriptions(spark, tmp_path, sink=picky, engine=engine)
    subs.add(PAIR, id="first")
    with pytest.raises(ValueError, match=r"^not today\nin batch 1 of "):
        subs.start().await_termination()
    again = subscriptions(spark, tmp_path, sink=picky)
    again.add(PAIR, id="second")
    assert {e.id: e.state for e in again.list()} == {"first": "running", "second": "waiting"}
    again.start().await_termination()
    assert [n for n, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2], "the replay answers the queries of its intent"
    assert {id for id, _ in seen[2][1]} == {"first"}
    assert {id for id, _ in seen[3][1]} == {"first", "second"}
    assert sum((c for n, c in (seen[0], seen[2], seen[3])), Counter()) == (
        twin({"first": PAIR}, batches(3)) + twin({"second": PAIR}, batches(3, 2))
    )


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_units_are_others_after_a_restart_and_follow_the_load(engine: str, spark: Any, tmp_path: Path) -> None:
    queries = {
        "pair": PAIR,
        "self": SELF,
        "once": "SELECT DISTINCT r.k AS k, s.name AS n FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS",
        "values": f"{PAIR.replace(' WINDOW', ' AND r.k = 3 WINDOW')}",
        "anti": "SELECT r.v FROM r ANTI JOIN s ON r.v = s.v + 10 WINDOW = 4 SECONDS",
        "groups": "SELECT r.k, count(*) AS n FROM r GROUP BY r.k, window(r.ts, '5 seconds')",
        "alert": "SELECT s.v FROM s WHERE s.v > 7",
        "last": "SELECT r.v, s.v AS w FROM r [ROWS 3], s [ROWS 2] WHERE r.k = s.k",
        "blocks": "SELECT r.v, s.v AS w FROM r [TUMBLING 4 ROWS], s [TUMBLING 3 ROWS] WHERE r.k = s.k",
    }
    scaling = wm.Scaling(unit_bytes=1, confirm=1, most_units=6)
    found, units = Counter[tuple[str, str]](), list[int]()
    for life, (wanted, scales) in enumerate(
        ((2, None), (5, None), ("auto", None), (1, None), (2, scaling), (1, scaling))
    ):
        for n in "rs":
            write(tmp_path, n, batches(2 * life + 2, 2 * life), first=2 * life)
        subs = subscriptions(spark, tmp_path, engine=engine, units=wanted)
        if not life:
            subs.add_all(queries)
        subs.start(scaling=scales).await_termination()
        found += bag(subs.table())
        units += [p.units for p in subs.history()]
        assert set(subs.state()) <= set(range(units[-1])), "units that are gone are forgotten"
        assert subs.ask(PAIR).num_rows > 0
    assert units == [2, 2, 5, 5, 5, 5, 1, 1, 1, 6, 6, 6]
    assert found == twin(queries, batches(12))
    assert subs.units == 6
    assert all(0 <= entry.unit < 6 for entry in subs.list())


def test_distinct_rows_are_answered_once_across_a_restart_and_anew_for_a_new_query(spark: Any, tmp_path: Path) -> None:
    """Rows of six micro-batches of 3 seconds, in three lives; a bucket is 10 seconds."""
    rows = {
        "ten": "SELECT DISTINCT r.k AS k, s.name AS n FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS",
        "ever": "SELECT DISTINCT r.k % 2 = 0 AS even, r.name FROM r, s WHERE r.k = s.k",
        "pair": PAIR,
    }
    found: list[pa.Table] = []
    for life in range(3):
        for n in "rs":
            write(tmp_path, n, batches(2 * life + 2, 2 * life), first=2 * life)
        subs = subscriptions(spark, tmp_path)
        if life == 0:
            subs.add_all(rows)
        if life == 2:
            subs.remove("ever")
            subs.add(rows["ever"], id="ever")
        subs.start().await_termination()
        found.append(subs.table())
        assert {e.id: e.distinct is not None for e in subs.list()} == {"ten": True, "ever": True, "pair": False}
    whole = twin(rows, batches(6))
    anew = twin({"ever": rows["ever"]}, batches(6, 4))
    assert bag(pa.concat_tables(found)) == whole + anew
    assert Counter(id for id, _ in (whole + anew).elements())["ten"] == 8, "four rows, two buckets"
    assert len(anew) == 4
    typed = subs.answers(spark.createDataFrame(found[2].to_pandas()), "ever")
    assert typed.schema.simpleString() == "struct<ts:timestamp,even:boolean,name:string>"
    states = subs.state().values()
    assert sum(u.rows for u in states) > sum(subs.progress().state_rows.values()), "answered rows are state, too"
    assert all(u.oldest is not None and u.newest <= moment(BASE_US + 16_000_000) for u in states)


def test_one_time_queries_while_micro_batches_run_and_after_a_restart(spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(5))
    wide = "SELECT r.v AS x, s.v AS y, s.ts AS at FROM r, s WHERE r.k = s.k WINDOW = 1 HOUR"
    local = wm.local.subscriptions({n: wm.Stream(batches(1)[0].slice(0, 0), time="ts") for n in "rs"}, units=2)
    subs = subscriptions(spark, tmp_path)
    with pytest.raises(wm.WatersmeetError, match="no tuples of 'r' are kept"):
        subs.ask(wide)
    for registry in (subs, local):
        registry.add_all({"pair": PAIR.replace("10", "4"), "self": SELF.replace("10", "7")})
    found: list[pa.Table] = []
    subs.on_batch(lambda progress: found.append(subs.ask(wide)))
    subs.start().await_termination()
    for answer, batch in zip(found, batches(5), strict=True):
        local.push({"r": batch, "s": batch})
        twin_answer = local.ask(wide)
        assert answer.schema.types == twin_answer.schema.types
        assert sorted(answer.to_pylist(), key=repr) == sorted(twin_answer.to_pylist(), key=repr) != []
    again = subscriptions(spark, tmp_path)
    assert sorted(again.ask(wide).to_pylist(), key=repr) == sorted(found[-1].to_pylist(), key=repr)
    with pytest.raises(wm.WatersmeetError, match="list of functions"):
        again.ask("SELECT reverse(r.name) AS x FROM r, s WHERE r.k = s.k")
    assert [e.id for e in again.list()] == ["pair", "self"]


def test_a_feed_adds_and_removes_and_a_folder_has_a_sub_folder_for_every_query(spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(2))
    rows = [("alice", "add", PAIR), ("bob", "add", "SELECT 1"), ("carol", "add", SELF), ("dave", "add", PAIR)]
    (tmp_path / "feed").mkdir()
    for n, part in enumerate([rows, [("dave", "remove", None)]]):
        lines = [json.dumps(dict(zip(("id", "action", "sql"), row, strict=True))) for row in part]
        file = tmp_path / "feed" / f"{n}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_767_225_600 + n, 1_767_225_600 + n))
    feed = spark.readStream.schema("id string, action string, sql string").option("maxFilesPerTrigger", 1)
    out = str(tmp_path / "out")
    subs = subscriptions(spark, tmp_path, sink=out, per_query=True, feed=feed.json(str(tmp_path / "feed")))
    subs.start().await_termination()
    assert {e.id: e.state for e in subs.list()} == {"alice": "running", "carol": "running", "bob": "refused"}
    assert "FROM" in subs.progress().refused["bob"]
    found = spark.read.parquet(out).select("query", "answer").toArrow()
    assert bag(found) == twin({"alice": PAIR, "carol": SELF}, batches(2))
    folders = {p.name for p in Path(out).iterdir() if p.is_dir()}
    assert folders == {"query_folder=id-alice", "query_folder=id-carol", "_spark_metadata"}
    with pytest.raises(StreamError, match="no column 'action'"):
        subscriptions(spark, tmp_path, feed=spark.readStream.schema("id string").json(str(tmp_path / "feed")))


IDS = [
    "1", "1.0", "01", "true", "2024-01-01", "__HIVE_DEFAULT_PARTITION__", "null", "None", " ", "  ", "a/b", "/", "..", ".", "a=b", "%41", "A", "a",
    "_41", "_5f41", "a_b", "a-b", "\u00e9", "e\u0301", "\u2126", "\u03a9", "a\n", "a\r\n", "\0", "'", '"', "`", "\\", "{", "\U0001f600", "x" * 160,
    "x" * 161, "X" * 300, "X" * 301, "/" * 90, "/" * 1000, "\u00e9" * 500,
]  # fmt: skip


def test_every_id_has_its_own_answers_and_its_own_sub_folder(spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(1))
    out = str(tmp_path / "out")
    subs = subscriptions(spark, tmp_path, sink=out, per_query=True)
    subs.add_all({id: PAIR.replace(" FROM", f", {n} AS n FROM") for n, id in enumerate(IDS)})
    subs.start().await_termination()
    rows = spark.read.parquet(out)
    found = rows.selectExpr("query", "int(get_json_object(answer, '$.n')) AS n", "query_folder").distinct().collect()
    assert {(row.query, row.n) for row in found} == {(id, n) for n, id in enumerate(IDS)}
    for n, id in [*enumerate(IDS)][:6:2]:
        assert [row.n for row in subs.answers(rows, id).select("n").distinct().collect()] == [n]
    chance = random.Random(7)
    more = {
        "".join(chance.choices("aA0_-/.%= \n\u00e9\u0301\u0130\U0001f600", k=chance.randrange(1, 90)))
        for _ in range(2000)
    }
    assert {row.query: row.query_folder for row in found} == {id: sub_folder(id) for id in IDS}
    names = {id: sub_folder(id) for id in {*IDS, *more}}
    assert len({folder.casefold() for folder in names.values()}) == len(names) > 1500
    assert all(re.fullmatch(r"id-[a-z0-9_-]{1,197}", folder) for folder in names.values())


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_a_query_that_breaks_a_batch_fails_and_the_others_are_answered(engine: str, spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(2))
    out = str(tmp_path / "out")
    subs = subscriptions(spark, tmp_path, sink=out, engine=engine)
    subs.add_all({"pair": PAIR, "self": SELF})
    bind = subs._registry.bind
    odd = Computed("no_such_function({0}, {1})", ((0, "v"), (1, "v")))  # as if the list of functions had let it through
    subs._registry.bind = lambda sql, backfill=False: replace(bind(sql, backfill), residuals=(odd,))
    subs.add(PAIR.replace("WINDOW", "AND r.v = 11 WINDOW"), id="odd")
    subs._registry.bind = bind
    subs.start().await_termination()
    assert {e.id: e.state for e in subs.list()} == {
        **dict.fromkeys(("pair", "self"), "running"),
        "odd": "failed",
    }
    assert "no_such_function" in subs.progress().failed["odd"]
    assert [(p.batch_id, p.queries, p.input_rows) for p in subs.history()] == [(0, 3, 8), (1, 2, 8)]
    found = bag(spark.read.parquet(out).select("query", "answer").toArrow())
    assert found == twin({"pair": PAIR, "self": SELF}, batches(2))
    subs.remove("odd")
    assert len(subs.list()) == 2


def test_a_function_for_every_query_gets_its_own_columns_and_stops_only_the_query_for_which_it_raises(
    spark: Any, tmp_path: Path
) -> None:
    for n in "rs":
        write(tmp_path, n, batches(2))
    calls: list[tuple[str, int, str, int]] = []

    def each(id: str, rows: Any, batch_id: int) -> None:
        if id == "bad":
            raise KeyError("no channel for bad")
        calls.append((id, batch_id, rows.schema.simpleString(), rows.count()))

    subs = subscriptions(spark, tmp_path, sink=each, per_query=True)
    subs.add_all({"pair": PAIR, "bad": PAIR, "self": SELF})
    subs.start().await_termination()
    assert {e.id: e.state for e in subs.list()} == {"pair": "running", "self": "running", "bad": "failed"}
    assert subs.list()[-1].reason == "its sink function raised KeyError in batch 0: 'no channel for bad'"
    assert [p.queries for p in subs.history()] == [3, 2]
    counts = Counter(id for id, _ in twin({"pair": PAIR, "self": SELF}, batches(2)).elements())
    assert Counter({id: sum(n for i, _, _, n in calls if i == id) for id in ("pair", "self")}) == counts
    assert {(i, s) for i, _, s, _ in calls} == {
        ("pair", "struct<ts:timestamp,x:bigint,y:bigint>"),
        ("self", "struct<ts:timestamp,total:bigint,at:timestamp,name:string>"),
    }
    with pytest.raises(OptionError, match="per_query=True"):
        subscriptions(spark, tmp_path, sink="memory", per_query=True)
    with pytest.raises(StreamError, match=r"wrap it as wm\.Stream"):
        wm.subscriptions(r=3, checkpoint=tmp_path / "x", sink="memory")
