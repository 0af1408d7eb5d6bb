"""Rows that break an expression, set aside on Spark: under `start()`, over a restart, and under `dataframe()`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from watersmeet.errors import OptionError

pytestmark = pytest.mark.spark
DDL = "id bigint, k bigint, x bigint, y bigint, s string, ts timestamp"
BATCHES = [
    {
        "r": [(1, 1, 10, 2, "5", 0), (2, 1, 10, 0, "5", 99), (3, 1, 2**62, 1, "7", 1)],
        "s": [(11, 1, 4, 1, "5", 0), (12, 1, 4, 1, "oops", 1), (13, 1, 0, 1, "7", 1)],
    },
    {"r": [(4, 1, 6, 3, "oops", 2), (5, 2, 1, 0, "1", 3)], "s": [(14, 1, 9, 1, "7", 2), (15, 2, 1, 1, "1", 3)]},
]
TEXT = """SELECT r.id AS r, s.id AS s FROM r, s
    WHERE r.k = s.k AND r.x / r.y > 1 AND CAST(s.s AS INT) > 4 AND r.x * s.x > 0 WINDOW = 10 SECONDS"""
ROWS = {("r", 2): "r.x / r.y > 1", ("s", 12): "CAST(s.s AS INT) > 4", ("r", 5): "r.x / r.y > 1"}
PAIRS = {(3, 11), (3, 14)}
RESULTS = {(1, 11), (1, 14), (4, 11), (4, 14)}


def feed(spark: Any, tmp_path: Path, number: int) -> None:
    for name, rows in BATCHES[number].items():
        made = [f"({', '.join('NULL' if v is None else repr(v) for v in row[:-1])}, {row[-1]})" for row in rows]
        columns = "id, k, x, y, s, ts"
        frame = spark.sql(f"SELECT * FROM VALUES {', '.join(made)} AS t({columns})")
        frame = frame.selectExpr("id", "k", "x", "y", "s", "timestamp_seconds(ts) AS ts")
        frame.selectExpr(
            *(f"CAST({c.split()[0]} AS {c.split()[1]}) AS {c.split()[0]}" for c in DDL.split(", "))
        ).write.mode("append").parquet(str(tmp_path / name))


def query(spark: Any, tmp_path: Path, text: str = TEXT) -> wm.Query:
    streams = {
        n: wm.Stream(spark.readStream.schema(DDL).parquet(str(tmp_path / n)), time="ts", lateness="20 seconds")
        for n in ("r", "s")
    }
    return wm.sql(text, streams, on_error="set aside", units=2)


def check(results: list[Any], lost: list[Any]) -> None:
    assert Counter((row.r, row.s) for row in results) == Counter(RESULTS)
    rows = [row for row in lost if "," not in row.stream]
    told = {(row.stream, json.loads(row.row)["id"]): row.reason for row in rows}
    assert told == {key: f"error in {expr}" for key, expr in ROWS.items()}
    assert len(rows) == len(told)
    pairs = [(row.stream, row.reason, json.loads(row.row)) for row in lost if "," in row.stream]
    assert {(row["r.id"], row["s.id"]) for _, _, row in pairs} == PAIRS
    assert len(pairs) == len(PAIRS)
    assert {(stream, reason) for stream, reason, _ in pairs} == {("r, s", "error in r.x * s.x > 0")}


def test_a_query_goes_on_without_broken_rows_over_a_restart(spark, tmp_path):
    told = []
    for number in range(2):
        feed(spark, tmp_path, number)
        handle = query(spark, tmp_path).start(
            sink=str(tmp_path / "out"),
            late=str(tmp_path / "late"),
            checkpoint=str(tmp_path / "ck"),
            trigger="availableNow",
        )
        handle.await_termination()
        told.append(handle.progress())
    check(spark.read.parquet(str(tmp_path / "out")).collect(), spark.read.parquet(str(tmp_path / "late")).collect())
    assert [progress.set_aside for progress in told] == [{"r": 1, "s": 1, "r, s": 1}, {"r": 1, "r, s": 1}]
    assert [sum(progress.late.values()) for progress in told] == [0, 0]
    assert told[0].watermarks["r"].second == 41, "a row that is set aside moves no watermark"
    assert {row["reason"] for row in told[0].late_sample} <= {
        f"error in {e}" for e in [*ROWS.values(), "r.x * s.x > 0"]
    }


def test_a_dataframe_has_broken_rows_among_the_late_ones(spark, tmp_path):
    for number in range(2):
        feed(spark, tmp_path, number)
    made = query(spark, tmp_path).dataframe(late=True)
    running = (
        made.writeStream.format("memory")
        .queryName("aside")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    rows = spark.table("aside").collect()
    check([row for row in rows if row._late is None], [row._late for row in rows if row._late is not None])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT CAST(r.s AS INT) + s.x AS y FROM r, s WHERE r.k = s.k WINDOW = 1 SECOND", "only Spark evaluates"),
        ("SELECT r.k FROM r, s WHERE r.k = s.k WINDOW = 1 SECOND", r"start\(late=...\) takes a sink"),
    ],
)
def test_what_cannot_be_set_aside_is_refused(spark, tmp_path, text, why):
    feed(spark, tmp_path, 0)
    with pytest.raises(OptionError, match=f"on_error='set aside'.*{why}"):
        query(spark, tmp_path, text).start(sink="noop", checkpoint=str(tmp_path / "ck"))
