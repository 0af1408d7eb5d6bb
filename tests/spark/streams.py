"""Streaming runs in tests: folders of Parquet files, one micro-batch per file, and what came out."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.starved import until_ended
from watersmeet.runtime.progress import Progress, read
from watersmeet.runtime.rounds import handle as handle_module
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.spark.session import start_query

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
    """Add one file per batch to a stream's folder; Spark reads them in the order of their modification times.

    A file gets its name last: of one that a running query saw before its time was set all later ones would be a year older, and Spark passes over such files.
    """
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    for n, batch in enumerate(batches, first):
        unseen = path / f".{n:05d}.parquet"
        pq.write_table(batch, unseen)
        os.utime(unseen, (1_767_225_600 + n, 1_767_225_600 + n))
        unseen.rename(path / f"{n:05d}.parquet")
    return str(path)


def stream(spark: Any, path: str, **options: Any) -> wm.Stream:
    """The folder as a stream, one file per micro-batch."""
    schema = spark.read.parquet(path).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
    return wm.Stream(frame, time=options.pop("time", "ts"), **options)


Runtime = Literal["stream", "rounds", "shuffled"]
"""dataframe(); start(); start() with rows shuffled by Spark, as it is where the checkpoint is not on a local disk."""
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)


def run(
    query: Any, checkpoint: Path, sink: Path | None = None, runtime: Runtime = "stream"
) -> tuple[Counter[Any], list[Progress]]:
    """Run a query to the end of the files: the bag of results (in the sink, if there is one), and its progress."""
    rows, progress = drain(query, checkpoint, sink, runtime)
    return Counter(tuple(r) for r in rows), progress


def drain(
    query: Any,
    checkpoint: Path,
    sink: Path | None,
    runtime: Runtime,
    shown: Callable[[Any], Any] = lambda batch: batch,
) -> tuple[list[Any], list[Progress]]:
    """The same, with results as rows, of batches as they are shown. Checkpoints are written without processes; the crash tests write them as Spark does by default."""
    collected: list[Any] = []

    def collect(batch: Any, _: int) -> None:
        collected.extend(shown(batch).collect())

    progress = feed(query, checkpoint, sink or collect, runtime)
    if sink is not None:
        collected = SparkSession.getActiveSession().read.parquet(str(sink)).collect()
    return collected, progress


def feed(query: Any, checkpoint: Path, to: Path | Callable[[Any, int], None], runtime: Runtime) -> list[Progress]:
    """Run a query to the end of the files, its results going to a folder or, batch by batch, to a function: its progress."""
    name = f"t{uuid.uuid4().hex}"
    if runtime == "stream":
        frame = query.dataframe()
        join = query.plan.join
        mode = "append" if join.grouping is None or join.group_window is not None else "update"
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(mode)
        writer = writer.trigger(availableNow=True)
        ready = writer.foreachBatch(to) if callable(to) else writer.format("parquet").option("path", str(to))
        session = SparkSession.getActiveSession()
        ran = until_ended(lambda: start_query(ready.queryName(name), session, is_local=True))
        return [p for running in ran for p in map(read, running.recentProgress) if p is not None]
    with entrance(shuffled=runtime == "shuffled"):
        handle = query.start(sink=to, checkpoint=checkpoint, trigger="availableNow", name=name)
    handle.await_termination()
    return list(handle.history())


@contextmanager
def entrance(*, shuffled: bool) -> Iterator[None]:
    """How rows enter the rounds of a query that is started meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        if shuffled:
            patch.setattr(handle_module, "Supersteps", partial(Supersteps, posts=False))
        yield
