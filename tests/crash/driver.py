"""The program that the crash tests kill: a 3-way join from parquet files to a parquet sink, with a checkpoint.

`python driver.py RUN DATA OUT CHECKPOINT FILES_PER_TRIGGER` runs until all files are read. RUN is one of

    stream    the DataFrame runtime, with Spark's own sink
    rounds    the rounds runtime, one round per batch
    rows      the same with a ROWS window: two rounds per batch, the sequencer and the join

It is a user's script: it knows the public surface and nothing of the tests.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import watersmeet as wm

SCHEMA = "id BIGINT, k BIGINT, ts TIMESTAMP"
QUERY = """
    SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id, a.k AS k
    FROM a, b, c
    WHERE a.k = b.k AND b.k = c.k
    WINDOW (a, b) = 2 SECONDS AND DWINDOW (b, c) = 3 SECONDS
"""
ROWS_QUERY = QUERY.replace("FROM a,", "FROM a [ROWS 60],")


def session() -> Any:
    """A small Spark for short lives: it compiles little and starts fast."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )


def query(spark: Any, text: str, data: str, files_per_trigger: str) -> Any:
    """The query over the streams of a folder."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_trigger)
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness="1 second") for name in "abc"}
    return wm.sql(text, **streams)


def main(run: str, data: str, out: str, checkpoint: str, files_per_trigger: str) -> None:
    """Run the query over what is there."""
    asked = query(session(), ROWS_QUERY if run == "rows" else QUERY, data, files_per_trigger)
    if run == "stream":
        sink = asked.dataframe().writeStream.format("parquet").option("path", out)
        wait = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination
    else:
        wait = asked.start(sink=out, checkpoint=checkpoint, trigger="availableNow").await_termination
    print("query started", flush=True)
    wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
