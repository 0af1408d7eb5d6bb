"""The program that the crash tests kill: a join from parquet files to a parquet sink, with a checkpoint.

`python -m tests.crash.driver RUN DATA OUT CHECKPOINT FILES_PER_TRIGGER` runs until all files are read. RUN is one of

    stream    the DataFrame runtime, with Spark's own sink
    rounds    the rounds runtime, one round per batch
    rows      the same with a ROWS window: two rounds per batch, the sequencer and the join
    theta     a band join of two streams, in a biclique, on the DataFrame runtime
    scaling   the same on the rounds runtime, with units that come and go all the time
    outer     a LEFT JOIN and an ANTI JOIN, on the DataFrame runtime
    settled   the same on the rounds runtime
    marked    the join with many late rows, which are among its results, on the DataFrame runtime
    late      the same on the rounds runtime, with late rows in a sink of their own beside OUT
    delta     the join on the rounds runtime, into a Delta table

With a file OUT-by-jobs, small batches run by jobs as large ones do. Apart from that it is a user's script: it knows the public surface and nothing of the tests.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import watersmeet as wm
from watersmeet.runtime.rounds import running

SCHEMA = "id BIGINT, k BIGINT, ts TIMESTAMP"
QUERY = """
    SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id, a.k AS k
    FROM a, b, c
    WHERE a.k = b.k AND b.k = c.k
    WINDOW (a, b) = 2 SECONDS AND DWINDOW (b, c) = 3 SECONDS
"""
BAND_QUERY = "SELECT a.id AS a_id, b.id AS b_id FROM a, b WHERE abs(a.k - b.k) <= 1 WINDOW = 700 MILLISECONDS"
OUTER_QUERY = """
    SELECT a.id AS a_id, b.id AS b_id, a.k AS k
    FROM a LEFT JOIN b ON a.k = b.k LEFT ANTI JOIN c ON a.k = c.k
    WINDOW (a, b) = 1 SECOND AND WINDOW (a, c) = 200 MILLISECONDS
"""
ROWS_QUERY = QUERY.replace("FROM a,", "FROM a [ROWS 60],")


def session() -> Any:
    """A small Spark for short lives: it compiles little and starts fast. CRASH_SPARK has other settings, as JSON."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return SparkSession.builder.config(map=settings | json.loads(os.environ.get("CRASH_SPARK", "{}"))).getOrCreate()


QUERIES = {
    "stream": QUERY,
    "rounds": QUERY,
    "rows": ROWS_QUERY,
    "theta": BAND_QUERY,
    "scaling": BAND_QUERY,
    "outer": OUTER_QUERY,
    "settled": OUTER_QUERY,
    "marked": QUERY,
    "late": QUERY,
    "delta": QUERY,
}
ON_DATAFRAMES = ("stream", "theta", "outer", "marked")
LATENESS = dict.fromkeys(QUERIES, "1 second") | {"marked": "100 milliseconds", "late": "100 milliseconds"}
OPTIONS: dict[str, dict[str, Any]] = {"theta": {"units": 5}, "scaling": {"units": 4, "routing": "random"}}
SCALING = wm.Scaling(unit_bytes="1900 B", low=0.58, target=0.6, high=0.62, confirm=1, most_units=12)


def query(spark: Any, run: str, data: str, files_per_trigger: str) -> Any:
    """The query of a run over the streams of a folder."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_trigger)
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness=LATENESS[run]) for name in "abc"}
    used = streams if QUERIES[run] is not BAND_QUERY else {name: streams[name] for name in "ab"}
    return wm.sql(QUERIES[run], **used, **OPTIONS.get(run, {}))


def sink_of(run: str, out: str) -> str:
    """What a run's results go to, if they are in a folder."""
    return f"delta:{out}" if run == "delta" else out


def main(run: str, data: str, out: str, checkpoint: str, files_per_trigger: str) -> None:
    """Run the query over what is there."""
    if os.path.exists(f"{out}-by-jobs"):
        running.MOST_MAIL = 0
    asked = query(session(), run, data, files_per_trigger)
    if run in ON_DATAFRAMES:
        sink = asked.dataframe(late=run == "marked").writeStream.format("parquet").option("path", out)
        wait = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination
    else:
        scaling = SCALING if run == "scaling" else None
        late = f"{out}-late" if run == "late" else None
        handle = asked.start(
            sink=sink_of(run, out), checkpoint=checkpoint, trigger="availableNow", scaling=scaling, late=late
        )
        wait = handle.await_termination
    print("query started", flush=True)
    wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
