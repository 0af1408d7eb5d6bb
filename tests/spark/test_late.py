"""Dropped rows on Spark: rows that are late, too far ahead or without a time, from both runtimes, over restarts and over static data."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.spark.streams import RUNTIMES, Runtime, run, stream, table, write
from tests.starved import until_ended
from watersmeet.runtime.progress import read
from watersmeet.runtime.spark.session import start_query

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
AHEAD = time.time() + 86_400 * 365 - 1_767_225_600
"""A year ahead, as `table` counts seconds."""


@pytest.mark.parametrize(
    "runtime", [pytest.param(r, marks=pytest.mark.thorough) if r == "stream" else r for r in RUNTIMES]
)
def test_a_row_a_year_ahead_moves_no_watermark(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    """Under `dataframe()` dropped rows are among results in the next test: with a watermark a year ahead, rows of its second batch would be."""
    s = write(tmp_path, "s", [table([(1, 1, 1), (1, 2, AHEAD)]), table([(1, 3, 2), (1, 4, None)])])
    t = write(tmp_path, "t", [table([(1, 10, 1)]), table([(1, 20, 2)])])
    query = wm.sql(PAIR, s=stream(spark, s, max_ahead="1 hour"), t=stream(spark, t))
    out, progress = run(query, tmp_path / "ck", runtime=runtime)
    assert out == Counter((x, y) for x in (1, 3) for y in (10, 20))
    assert [p.late.get("s", 0) for p in progress] == [1, 1]
    assert progress[0].watermarks["s"] == progress[0].watermarks["t"]


TREE = (
    "SELECT a.v AS x, b.v AS y, upper(a.name) AS n FROM s a LEFT JOIN t b ON a.k = b.k AND a.v > 0 WINDOW = 10 SECONDS"
)
LOST = [("s", 0, "no time", 4, None), ("s", 0, "ahead", 5, None), ("s", 1, "late", 6, 90), ("t", 1, "late", 7, 70)]
"""(stream, batch, reason, v, seconds behind the watermark) of what the streams below lose."""


def streams_with_losses(spark: Any, folder: Path) -> dict[str, wm.Stream]:
    names = "k v name ts"
    s = [
        table([(1, 1, "x", 100), (1, 4, "y", None), (1, 5, "z", AHEAD)], names),
        table([(1, 6, "w", 10), (1, 2, "u", 101)], names),
    ]
    t = [table([(1, 10, "x", 99)], names), table([(1, 7, "é", 29), (1, 11, "x", 100)], names)]
    ahead = {"max_ahead": "1 hour"}
    return {n: stream(spark, write(folder, n, b), **(ahead if n == "s" else {})) for n, b in (("s", s), ("t", t))}


def show(row: Any) -> tuple[Any, ...]:
    """A dropped row as `LOST` has it."""
    content = json.loads(row["row"])
    assert list(content) == ["k", "v", "name", "ts"]
    assert (row["ts"] is None) == (content["ts"] is None)
    lag = None if row["reason"] != "late" else row["lag_us"] // 1_000_000
    return row["stream"], row["batch"], row["reason"], content["v"], lag


PAIRS = [(x, y) for x in (1, 2) for y in (10, 11)]
ASKED = {
    "a tree, through several stages": (TREE, Counter((x, y, {1: "X", 2: "U"}[x]) for x, y in PAIRS)),
    "DISTINCT of what only Spark projects": (
        "SELECT DISTINCT soundex(a.name) AS x, b.v AS y FROM s a, t b WHERE a.k = b.k AND levenshtein(a.name, b.name) < 9 WINDOW = 10 SECONDS",
        Counter(({1: "X000", 2: "U000"}[x], y) for x, y in PAIRS),
    ),
    "plain columns": (PAIR, Counter(PAIRS)),
    "a condition of Spark's": (f"{PAIR} AND levenshtein(a.name, b.name) < 9", Counter(PAIRS)),
    "groups that end": (
        "SELECT a.v AS x, count(*) AS n FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS GROUP BY window(a.ts, '1 minute'), a.v",
        Counter(),
    ),
}
"""Queries, and their results: of groups none, since no watermark has passed their windows."""
LESS = list(ASKED)[2:]


@pytest.mark.parametrize("what", [pytest.param(w, marks=pytest.mark.thorough) if w in LESS else w for w in ASKED])
def test_a_dataframe_has_dropped_rows_among_its_results(spark: Any, tmp_path: Path, what: str) -> None:
    text, results = ASKED[what]
    frame = wm.sql(text, **streams_with_losses(spark, tmp_path), units=3).dataframe(late=True)
    rows, progress = collect(spark, frame, tmp_path / "ck")
    lost = [r["_late"] for r in rows if r["_late"] is not None]
    assert sorted(map(show, lost), key=repr) == sorted(LOST, key=repr)
    assert all(v is None for r in rows if r["_late"] is not None for v in r[:-1])
    assert Counter(tuple(r[:-1]) for r in rows if r["_late"] is None) == results
    assert sum(sum(p.late.values()) for p in progress) == len(LOST)


def test_static_dataframes_lose_rows_without_a_time_and_too_far_ahead(spark: Any, tmp_path: Path) -> None:
    streams = streams_with_losses(spark, tmp_path)
    static = {
        n: wm.Stream(spark.read.parquet(str(tmp_path / n)), time="ts", **({"max_ahead": "1 hour"} if n == "s" else {}))
        for n in "st"
    }
    query = wm.sql(TREE, **static)
    found = [("s", None, reason, v, None) for _, _, reason, v, _ in (LOST[1], LOST[0])]
    assert sorted((show(r) for r in query.late().collect()), key=repr) == found
    both = query.dataframe(late=True).collect()
    assert sorted((show(r["_late"]) for r in both if r["_late"]), key=repr) == found
    assert Counter(tuple(r[:-1]) for r in both if not r["_late"]) == Counter(map(tuple, query.dataframe().collect()))
    with pytest.raises(wm.StreamError, match=r"start\(late=\.\.\.\)"):
        wm.sql(TREE, **streams).late()
    with pytest.raises(wm.OptionError, match="groups without window"):
        wm.sql("SELECT a.k, count(*) AS n FROM s a, t b WHERE a.k = b.k GROUP BY a.k", **streams).dataframe(late=True)


def collect(spark: Any, frame: Any, checkpoint: Path) -> tuple[list[Any], list[Any]]:
    rows: list[Any] = []
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer = writer.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    ran = until_ended(lambda: start_query(writer, spark, is_local=True))
    return rows, [p for running in ran for p in map(read, running.recentProgress) if p is not None]


def test_start_writes_dropped_rows_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    """Rows posted by key, and a ROWS window behind the sequencer; with files and with a function."""
    streams = streams_with_losses(spark, tmp_path / "in")
    query = wm.sql(TREE, **streams)
    how = {"sink": tmp_path / "out", "checkpoint": tmp_path / "ck", "trigger": "availableNow"}
    with pytest.raises(wm.OptionError, match="give them a sink of their own"):
        query.start(**how, late=str(tmp_path / "out"))
    handle = query.start(**how, late=tmp_path / "late")
    handle.await_termination()
    assert sorted(map(show, handle.late().collect()), key=repr) == sorted(LOST, key=repr)
    assert sum(sum(p.late.values()) for p in handle.history()) == len(LOST)
    more = table([(2, 8, "again", 11), (2, 9, "again", 102)], "k v name ts")
    write(tmp_path / "in", "s", [more], first=2)
    handle = query.start(**how, late=tmp_path / "late")
    handle.await_termination()
    lost = [*LOST, ("s", 2, "late", 8, 90)]
    assert sorted(map(show, handle.late().collect()), key=repr) == sorted(lost, key=repr)
    with pytest.raises(wm.CheckpointError, match="give that folder as late="):
        query.start(**how, late=tmp_path / "elsewhere")
    with pytest.raises(wm.OptionError, match="start the query with late="):
        query.start(**how).late()

    grid = "SELECT a.v AS x, b.v AS y FROM s a, t b, s c WHERE a.k = b.k AND b.name = c.name WINDOW = 10 SECONDS"
    query = wm.sql(grid, **streams_with_losses(spark, tmp_path / "in"), units=4)
    assert any(query.plan.stages[0].routing.copies(n) > 1 for n in range(3)), "no row is copied: less is tested"
    handle = query.start(sink="noop", checkpoint=tmp_path / "ck3", trigger="availableNow", late="memory")
    handle.await_termination()
    assert sorted(map(show, handle.late().collect()), key=repr) == sorted(lost, key=repr)

    calls: list[Any] = []
    rows = PAIR.replace("s a,", "s a [ROWS 9],")
    handle = wm.sql(rows, **streams_with_losses(spark, tmp_path / "in")).start(
        sink="noop", checkpoint=tmp_path / "ck2", trigger="availableNow",
        late=lambda some, batch_id: calls.append((batch_id, [show(r) for r in some.collect()])),
    )  # fmt: skip
    handle.await_termination()
    assert [batch for batch, _ in calls] == [0, 1, 2]
    assert sorted((row for _, some in calls for row in some), key=repr) == sorted(lost, key=repr)
