"""Streams joined with tables on Spark: batch by batch what the oracle says; tables are read anew in every micro-batch; late rows count once."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import Arrival, run
from tests.spark import streams as files
from tests.spark.test_trees import count_of, write
from tests.trees import KINDS, TreeCase, counted, generate
from watersmeet.runtime.spark.session import start_query

pytestmark = pytest.mark.spark
SEED = 494
BEFORE = "SELECT o.id, u.country FROM orders o JOIN users u ON u.id = o.user"
LAST = """SELECT o.id, u.country FROM orders o JOIN orders p ON p.id = o.id
          LEFT JOIN users u ON u.id = o.user AND u.id = p.user WHERE u.country IS NOT NULL WINDOW = 5 SECONDS"""


def case_of() -> TreeCase:
    """Outer joins of three streams, with a table that is joined to one of them, and one that is joined to results."""
    return generate(random.Random(SEED), ("inner", *KINDS), 3, rows=12, tables=2)


def dimensions(spark: Any, case: TreeCase) -> dict[str, wm.Table]:
    return {name: wm.Table(spark.createDataFrame(table.source)) for name, table in case.dimensions().items()}


def test_static(spark: Any, tmp_path: Path) -> None:
    case = case_of()
    write(case, tmp_path, range(count_of(case)))
    whole = {s: Arrival([[r for b in a.batches for r in b]], 10**12) for s, a in case.arrivals.items()}
    given = {s: wm.Stream(spark.read.parquet(str(tmp_path / s)), time="ts") for s in case.arrivals}
    found = wm.sql(case.sql, given | dimensions(spark, case), **case.options).dataframe().collect()
    assert counted(found) == counted(run(case.query, whole, ends=True).rows), case.sql
    assert found, "a query without results tests little"


@pytest.mark.parametrize("runtime", ["stream", "rounds"])
def test_streaming(spark: Any, tmp_path: Path, runtime: Any) -> None:
    case = case_of()
    wanted, count = case.expected(), count_of(case)
    write(case, tmp_path, range(count))
    out: dict[int, Counter[Any]] = defaultdict(Counter)

    def sink(frame: Any, number: int) -> None:
        out[number].update(counted(frame.collect()))

    given = {
        name: files.stream(spark, str(tmp_path / name), lateness=f"{arrival.lateness_us} microseconds")
        for name, arrival in case.arrivals.items()
    }
    query = wm.sql(case.sql, given | dimensions(spark, case), **case.options)
    files.feed(query, tmp_path / "ck", sink, runtime)
    for number in range(count):
        assert out[number] == counted(wanted.in_batch(number)), (number, case.sql)
    assert sum(out.values(), Counter()), "a query without results tests little"


@pytest.mark.parametrize(
    ("runtime", "broadcasts", "text", "late_rows"),
    [("stream", False, BEFORE, 1), ("rounds", False, BEFORE, 1), ("stream", True, LAST, 2), ("rounds", True, LAST, 2)],
)
def test_the_table_is_read_anew_and_late_rows_count_once(
    spark: Any, tmp_path: Path, runtime: str, broadcasts: bool, text: str, late_rows: int
) -> None:
    """The table's file changes after the first batch. One of two late rows finds two rows in the table, and is one late row; the other finds none, and is lost if that is not asked before."""
    orders = [
        files.table([(1, 7, 0.0), (2, 9, 100.0)], "id user ts"),
        files.table([(3, 7, 100.0), (4, 7, 1.0), (5, 9, 2.0)], "id user ts"),
    ]
    path, users = files.write(tmp_path, "orders", orders), tmp_path / "users.csv"
    users.write_text("7,FR\n7,PT\n")
    table = wm.Table(spark.read.schema("id bigint, country string").csv(str(users)))
    query = wm.sql(text, orders=files.stream(spark, path), users=table)
    out: dict[int, list[tuple[Any, ...]]] = {}
    dropped: list[Any] = []

    def sink(frame: Any, number: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        lost = [row["_late"].asDict() for row in rows if row.get("_late") is not None]
        dropped.extend(lost)
        out[number] = sorted((row["id"], row["country"]) for row in rows if row.get("_late") is None)
        users.write_text("7,DE\n7,NL\n")

    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before if broadcasts else "-1")
    try:
        if runtime == "stream":
            writer = query.dataframe(late=True).writeStream.foreachBatch(sink).trigger(availableNow=True)
            running = start_query(writer.option("checkpointLocation", str(tmp_path / "ck")), spark, is_local=True)
            running.awaitTermination()
            late = [files.read(p).late for p in running.recentProgress]
        else:
            handle = query.start(
                sink=sink,
                checkpoint=tmp_path / "ck",
                trigger="availableNow",
                late=lambda frame, _: dropped.extend(frame.collect()),
            )
            handle.await_termination()
            late = [p.late for p in handle.history()]
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
    assert out == {0: [(1, "FR"), (1, "PT")], 1: [(3, "DE"), (3, "NL")]}
    assert sum(p.get("orders", 0) for p in late) == len(dropped) == late_rows
    assert all("country" not in row["row"] for row in dropped)


FOUND = """SELECT a.id FROM orders a JOIN users u ON u.id = a.user AND u.country = 'FR' JOIN orders b ON b.id = a.id
           JOIN users v ON v.id = b.user AND v.country = 'DE' WINDOW = 1 MINUTE"""
WANTING = """SELECT a.id FROM orders a LEFT JOIN users u ON u.id = a.user JOIN orders b ON b.id = a.id
             JOIN users v ON v.id = b.user AND v.country = 'DE' WHERE coalesce(u.country, '{none}') = '{none}' WINDOW = 1 MINUTE"""
TWO = FOUND.replace("'FR'", "'FR' LEFT JOIN kinds k ON k.country = u.country LEFT JOIN ranks r ON r.id = a.id")


@pytest.mark.parametrize(
    ("runtime", "broadcasts", "text"),
    [
        ("rounds", False, FOUND),
        ("stream", True, WANTING),
        pytest.param("rounds", True, TWO, marks=pytest.mark.thorough),
        pytest.param("stream", False, TWO, marks=pytest.mark.thorough),
        pytest.param("rounds", True, WANTING, marks=pytest.mark.thorough),
        pytest.param("stream", False, FOUND, marks=pytest.mark.thorough),
    ],
)
def test_late_rows_of_a_self_join_count_under_the_alias_whose_table_knows_them(
    spark: Any, tmp_path: Path, runtime: Any, broadcasts: bool, text: str
) -> None:
    """One late row each: known to both tables as French, known as German, known to none of the two conditions; without a time; and with no user."""
    orders = [
        files.table([(1, 7, 100.0)], "id user ts"),
        files.table([(2, 7, 5.0), (3, 8, 5.0), (4, 9, 5.0), (5, 9, None), (6, None, 5.0)], "id user ts"),
    ]
    users = spark.createDataFrame([(7, "FR"), (8, "DE"), (8, "DE"), (9, "PT")], "id bigint, country string")
    more = {
        "kinds": spark.createDataFrame([("FR", 1), ("FR", 2)], "country string, n int"),
        "ranks": spark.createDataFrame([(2, 1), (2, 2)], "id bigint, n int"),
    }
    used = {name: wm.Table(frame) for name, frame in more.items() if name in text}
    path = files.write(tmp_path, "orders", orders)
    query = wm.sql(text, orders=files.stream(spark, path), users=wm.Table(users), **used)
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before if broadcasts else "-1")
    try:
        progress = files.feed(query, tmp_path / "ck", lambda frame, _: frame.collect(), runtime)
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
    assert sum(p.late.get("orders", 0) for p in progress) == 3


def test_a_table_of_another_kind_is_refused(spark: Any) -> None:
    stream = wm.Stream(spark.createDataFrame(files.table([(1, 7, 0.0)], "id user ts")), time="ts")
    arrow = wm.Table(pa.table({"id": [7], "country": ["FR"]}))
    text = "SELECT o.id FROM orders o JOIN users u ON u.id = o.user"
    with pytest.raises(wm.StreamError, match="alias u: an Arrow table cannot be joined with DataFrames"):
        wm.sql(text, orders=stream, users=arrow)
    live = spark.readStream.format("rate").load()
    with pytest.raises(wm.StreamError, match="a streaming DataFrame is no table"):
        wm.Table(live)
    mixed = {"orders": wm.Stream(live, time="timestamp"), "users": stream}
    with pytest.raises(wm.StreamError, match=r"users|u is static and the rest streams: .*wm\.Table"):
        wm.sql("SELECT o.value FROM orders o, users u WHERE u.id = o.value", mixed)
