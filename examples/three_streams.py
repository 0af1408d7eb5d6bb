"""Three streams of parquet files joined by Structured Streaming, each pair with its own window, results as parquet.

Run it with: python examples/three_streams.py
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.runtime.progress import read
from watersmeet.runtime.spark.session import local_session

MINUTE = 60_000_000
NOON = 1_767_268_800_000_000  # 2026-01-01 12:00 UTC
STREAMS = {
    "clicks": {"user": [1, 1, 2, 3], "page": ["/a", "/b", "/c", "/d"], "ts": [0, 5, 6, 90]},
    "orders": {"id": [10, 11, 12], "user": [1, 2, 3], "total": [50.0, 20.0, 9.0], "ts": [7, 8, 30]},
    "refunds": {"order_id": [10, 11, 12], "amount": [40.0, 5.0, 9.0], "ts": [60, 70, 400]},
}


def write(folder: Path) -> None:
    """One file for each stream."""
    for name, columns in STREAMS.items():
        times = pa.array([NOON + m * MINUTE for m in columns["ts"]], pa.timestamp("us", tz="UTC"))
        (folder / name).mkdir()
        pq.write_table(pa.table({**columns, "ts": times}), folder / name / "0.parquet")


with tempfile.TemporaryDirectory() as scratch, local_session(log=Path(scratch) / "spark.log") as spark:
    folder = Path(scratch)
    write(folder)
    streams = {}
    for name in STREAMS:
        schema = spark.read.parquet(str(folder / name)).schema
        frame = spark.readStream.schema(schema).parquet(str(folder / name))
        streams[name] = wm.Stream(frame, time="ts", lateness="5 minutes")

    query = wm.sql(
        """
        SELECT o.id, c.page, r.amount
        FROM clicks c, orders o, refunds r
        WHERE c.user = o.user AND o.id = r.order_id AND r.amount > o.total * 0.5
        WINDOW (c, o) = 10 MINUTES AND DWINDOW (o, r) = 2 HOURS
        """,
        **streams,
    )
    print(query.explain())

    running = (
        query.dataframe()
        .writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    print([read(event) for event in running.recentProgress])
    spark.read.parquet(str(folder / "results")).orderBy("page").show()
