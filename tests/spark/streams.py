"""Streaming runs in tests: folders of Parquet files, one micro-batch per file, and what came out."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.runtime.progress import Progress, read

US = 1_000_000
BASE_US = 1_767_225_600 * US
"""2026-01-01T00:00:00Z."""


def table(rows: list[tuple[Any, ...]], names: str = "k v ts") -> pa.Table:
    """A table whose last column is event time in seconds from BASE_US; None is NULL."""
    columns = names.split()
    data = {c: [r[i] for r in rows] for i, c in enumerate(columns)}
    times = [None if t is None else BASE_US + round(t * US) for t in data[columns[-1]]]
    return pa.table({**data, columns[-1]: pa.array(times, pa.timestamp("us", tz="UTC"))})


def write(folder: Path, name: str, batches: list[pa.Table], first: int = 0) -> str:
    """Add one file per batch to a stream's folder; Spark reads them in the order of their modification times."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    for n, batch in enumerate(batches, first):
        file = path / f"{n:05d}.parquet"
        pq.write_table(batch, file)
        os.utime(file, (1_767_225_600 + n, 1_767_225_600 + n))
    return str(path)


def stream(spark: Any, path: str, **options: Any) -> wm.Stream:
    """The folder as a stream, one file per micro-batch."""
    schema = spark.read.parquet(path).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
    return wm.Stream(frame, time=options.pop("time", "ts"), **options)


def run(frame: Any, checkpoint: Path, sink: Path | None = None) -> tuple[Counter[Any], list[Progress]]:
    """Run to the end of the files: the bag of results of this run, and its progress."""
    name = f"t{uuid.uuid4().hex}"
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if sink is None:
        collected: list[Any] = []
        writer = writer.foreachBatch(lambda batch, _: collected.extend(batch.collect()))
    else:
        writer = writer.format("parquet").option("path", str(sink))
    query = writer.queryName(name).start()
    query.awaitTermination()
    progress = [p for p in map(read, query.recentProgress) if p is not None]
    rows = frame.sparkSession.read.schema(frame.schema).parquet(str(sink)).collect() if sink is not None else collected
    return Counter(tuple(r) for r in rows), progress
