"""The program that the crash test kills: a 3-way join from parquet files to a parquet sink, with a checkpoint.

`python driver.py DATA OUT CHECKPOINT FILES_PER_TRIGGER`: runs until all files are read. It is a user's script: it knows the
public surface and nothing of the test.
"""

from __future__ import annotations

import os
import sys

SCHEMA = "id BIGINT, k BIGINT, ts TIMESTAMP"
QUERY = """
    SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id, a.k AS k
    FROM a, b, c
    WHERE a.k = b.k AND b.k = c.k
    WINDOW (a, b) = 2 SECONDS AND DWINDOW (b, c) = 3 SECONDS
"""


def main(data: str, out: str, checkpoint: str, files_per_trigger: str) -> None:
    """Run the query over what is there."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import watersmeet as wm

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Short lives: compile little, start fast.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_trigger)
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness="1 second") for name in "abc"}
    results = wm.sql(QUERY, **streams).dataframe()
    sink = results.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
    query = sink.trigger(availableNow=True).start()
    print("query started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
