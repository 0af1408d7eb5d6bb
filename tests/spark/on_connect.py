"""A user's program on Spark Connect: `python -m tests.spark.on_connect FOLDER` prints what it saw as JSON.

It has a process of its own because a session of Spark Connect makes pyspark's functions those of Connect, for the whole process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm
from tests.conftest import FAST_START
from tests.starved import until_ended

QUERY = "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW = 10 SECONDS"


def session() -> Any:
    """A server in this process's child, and a client of it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
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


def main(folder: str) -> None:
    spark = session()
    static = {name: wm.Stream(spark.read.parquet(f"{folder}/{name}"), time="ts") for name in "ab"}
    schema = static["a"].source.schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = {name: wm.Stream(reader.parquet(f"{folder}/{name}"), time="ts") for name in "ab"}
    query = wm.sql(QUERY, **streams, units=2)
    refused = refusal(lambda: drain(query.dataframe(late=True), folder))
    joined = wm.sql(QUERY, **static, units=2)
    found = None if refused else spark.read.parquet(f"{folder}/out")
    seen = {
        "refused": refused,
        "static": refusal(joined.dataframe) if refused else rows(joined.dataframe()),
        "streaming": [] if found is None else rows(found.where("_late IS NULL").drop("_late")),
        "late": []
        if found is None
        else rows(found.where("_late IS NOT NULL").selectExpr("_late.batch", "_late.reason")),
        "start": refusal(lambda: query.start(sink="memory", checkpoint=f"{folder}/other")),
        "subscriptions": refusal(lambda: wm.subscriptions(streams, sink="memory", checkpoint=f"{folder}/other")),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
