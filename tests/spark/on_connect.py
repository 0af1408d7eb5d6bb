"""A user's programs on Spark Connect: `python -m tests.spark.on_connect FOLDER PROGRAM ...` prints what each saw as a line of JSON.

They have a process of their own because a session of Spark Connect makes pyspark's functions those of Connect, for the whole process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.conftest import FAST_START
from tests.crash.driver import SCALING, SCHEMA, query, sink_of
from tests.crash.streams import KEYS
from tests.starved import until_ended, until_started

GROUPED = "SELECT a.k, count(*) AS n, max(b.id) AS high FROM a, b WHERE a.k = b.k GROUP BY a.k WINDOW = 1 SECOND"
WINDOWED = """
    SELECT date_format(window(a.ts, '1 second').start, 'HH:mm:ss') AS second, count(*) AS n, sum(b.id) AS total FROM a, b WHERE a.k = b.k
    GROUP BY window(a.ts, '1 second') WINDOW = 500 MILLISECONDS
"""
NAMED = """
    SELECT a.id, b.id AS b_id, n.name FROM a JOIN b ON a.k = b.k LEFT JOIN names n ON n.id = a.k AND b.id > 0
    WINDOW = 300 MILLISECONDS
"""
OVERFLOWING = "SELECT a.id FROM a, b WHERE a.k = b.k AND CAST(a.id + b.id AS tinyint) > 0 WINDOW = 1 SECOND"
SUBSCRIBED = "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.k = b.k AND a.k {} WINDOW = 1 SECOND"
QUERY = "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW = 10 SECONDS"


def session() -> Any:
    """A server in this process's child, and a client of it."""
    os.environ["PYSPARK_PYTHON"] = os.environ.get("SERVER_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.extraJavaOptions", FAST_START).getOrCreate()


def refusal(call: Callable[[], Any]) -> list[str]:
    """The kind of an error, and what it says."""
    try:
        call()
    except wm.WatersmeetError as error:
        return [type(error).__name__, str(error)]
    return []


def rows(frame: Any) -> list[list[Any]]:
    return sorted(map(list, frame.collect()))


def drain(frame: Any, folder: str) -> None:
    """Run to the end of the files."""
    writer = frame.writeStream.format("parquet").option("path", f"{folder}/out").trigger(availableNow=True)
    until_ended(writer.option("checkpointLocation", f"{folder}/ck").start)


def dataframe(spark: Any, folder: str) -> dict[str, Any]:
    """`dataframe()`, static and streaming."""
    static = {name: wm.Stream(spark.read.parquet(f"{folder}/{name}"), time="ts") for name in "ab"}
    schema = static["a"].source.schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = {name: wm.Stream(reader.parquet(f"{folder}/{name}"), time="ts") for name in "ab"}
    query = wm.sql(QUERY, **streams, units=2)
    refused = refusal(lambda: drain(query.dataframe(late=True), folder))
    joined = wm.sql(QUERY, **static, units=2)
    found = None if refused else spark.read.parquet(f"{folder}/out")
    return {
        "refused": refused,
        "static": refusal(joined.dataframe) if refused else rows(joined.dataframe()),
        "streaming": [] if found is None else rows(found.where("_late IS NULL").drop("_late")),
        "late": []
        if found is None
        else rows(found.where("_late IS NOT NULL").selectExpr("_late.batch", "_late.reason")),
        "start": refusal(lambda: query.start(sink="memory", checkpoint=f"{folder}/other")),
        "subscriptions": refusal(lambda: wm.subscriptions(streams, sink="console", checkpoint=f"{folder}/other")),
    }


def start(spark: Any, folder: str, run: str = "settled") -> dict[str, Any]:
    """`start()` of a query of the crash tests into a folder, whatever was there before."""
    out = f"{folder}/{run}/out"
    asked = query(spark, run, f"{folder}/data", "1")
    handle = until_started(
        lambda: asked.start(
            sink=sink_of(run, out),
            late=f"{folder}/{run}/out-late" if run == "late" else None,
            checkpoint=f"{folder}/{run}/checkpoint",
            trigger="availableNow",
            scaling=SCALING if run == "scaling" else None,
        )
    )
    told: list[int] = []
    handle.on_batch(lambda progress: told.append(progress.batch_id))
    print("query started", flush=True)
    handle.await_termination()
    last = handle.progress()
    files = DeltaTable(out).file_uris() if run == "delta" else [out]
    seen: dict[str, Any] = {"rows": rows(spark.read.parquet(*files))}
    if last is not None:
        seen |= {
            "batches": [p.batch_id for p in handle.history()],
            "told": wait_until(lambda: told[-1:] == [last.batch_id] and told),
            "late": rows(handle.late().select("stream", "batch", "reason")) if run == "late" else [],
            "figures": [last.input_rows, last.rounds, sorted(last.watermarks)],
            "state": sorted(handle.state()),
        }
    return seen


def sinks(spark: Any, folder: str) -> dict[str, Any]:
    """A function as sink, GROUP BY with a window and without, tables, and errors that come from afar."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    data = f"{folder}/data"
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness="1 second") for name in "ab"}
    names = wm.Table(spark.range(0, KEYS, 2).selectExpr("id", "'even ' || id AS name"))
    out = f"{folder}/by_function"

    def write(rows: Any, batch_id: int) -> None:
        rows.write.mode("overwrite").parquet(f"{out}/batch={batch_id}")

    def fail(rows: Any, batch_id: int) -> None:
        raise KeyError("price")

    def ran(text: str, name: str, sink: Any, **more: Any) -> Any:
        asked = wm.sql(text, **streams, **more)
        handle = until_started(lambda: asked.start(sink=sink, checkpoint=f"{folder}/{name}", trigger="availableNow"))
        handle.await_termination()
        return handle

    ran(GROUPED, "grouped", write)
    ran(WINDOWED, "windowed", f"{folder}/in_windows")
    ran(NAMED, "named", f"{folder}/by_name", names=names)
    try:
        ran(GROUPED, "failing", fail)
        raised = ""
    except Exception as error:
        raised = str(error)
    return {
        "grouped": rows(spark.read.parquet(out)),
        "windowed": rows(spark.read.parquet(f"{folder}/in_windows")),
        "named": rows(spark.read.parquet(f"{folder}/by_name")),
        "raised": "price" in raised,
        "overflow": refusal(lambda: ran(OVERFLOWING, "overflowing", f"{folder}/nothing")),
    }


def subscriptions(spark: Any, folder: str) -> dict[str, Any]:
    """Queries that are added, answered and removed, and a restart."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    feed = spark.readStream.schema("id STRING, action STRING, sql STRING").json(f"{folder}/feed")

    def made() -> Any:
        streams = {
            name: wm.Stream(reader.parquet(f"{folder}/live/{name}"), time="ts", lateness="1 second") for name in "ab"
        }
        how: dict[str, Any] = {"checkpoint": f"{folder}/subs", "sink": f"{folder}/answers", "trigger": "availableNow"}
        return wm.subscriptions(streams, feed=feed, units=2, **how)

    def run(subs: Any) -> None:
        until_started(subs.start)
        subs.await_termination()

    def reveal(file: int) -> None:
        for name in "ab":
            os.makedirs(f"{folder}/live/{name}", exist_ok=True)
            os.rename(f"{folder}/data/{name}/part-{file:03d}.parquet", f"{folder}/live/{name}/part-{file:03d}.parquet")

    reveal(0)
    subs = made()
    subs.add(SUBSCRIBED.format("< 40"), "low")
    subs.add(SUBSCRIBED.format(">= 40"), "high")
    run(subs)
    listed = {entry.id: [entry.state, entry.since] for entry in subs.list()}
    subs.remove("high")
    subs.add(SUBSCRIBED.format(">= 60"), "higher")
    reveal(1)
    run(subs)
    again = made()
    reveal(2)
    run(again)
    found = spark.read.parquet(f"{folder}/answers")
    return {
        "listed": listed,
        "after": {entry.id: [entry.state, entry.since] for entry in again.list()},
        "answers": {id: rows(again.answers(found, id).drop("ts")) for id in ("low", "higher", "fed")},
        "high": found.where("query = 'high'").count(),
        "queries": again.progress().queries,
        "asked": again.ask(SUBSCRIBED.format("< 40")).num_rows,
    }


def refused(spark: Any, folder: str) -> dict[str, Any]:
    """What `start()` says on a server that cannot run it."""
    asked = query(spark, "settled", f"{folder}/data", "1")
    return {"start": refusal(lambda: asked.start(sink=f"{folder}/out", checkpoint=f"{folder}/checkpoint"))}


def wait_until(call: Callable[[], Any], seconds: float = 30) -> Any:
    """What a call returns as soon as that is true; the last, after some time."""
    deadline = time.monotonic() + seconds
    while not (found := call()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def main(folder: str, *programs: str) -> None:
    spark = session()
    for program in programs:
        name, _, argument = program.partition("=")
        print(json.dumps(globals()[name](spark, folder, *([argument] if argument else []))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
