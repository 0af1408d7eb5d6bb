"""One trial: one query on one system in a fresh process with its own JVM. `python -m watersmeet_lab.bench.nexmark.trial SPEC RESULT`.

The query runs over a few events first (workers, imports, generated code), then over all: available-now over the files,
checkpoint on disk, results in Parquet files. Of a group whose value changes the last value is written when the query has ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet_lab.bench.nexmark.events import STREAMS
from watersmeet_lab.bench.nexmark.queries import DERIVED, LATENESS, QUERIES, NexmarkQuery
from watersmeet_lab.bench.trials.systems import System
from watersmeet_lab.bench.trials.trial import open_session

ROWS = "rows"
"""The folder of a run's results, in its own folder."""


@dataclass(frozen=True)
class Trial:
    """What to run, on what, with what."""

    system: System
    query: str
    events: str
    warmup: str
    files_per_trigger: int = 1
    cores: int = 2
    memory: str = "4g"


def main(spec: Path, result: Path) -> None:
    """Run the trial that the file `spec` describes and write what was seen to the file `result`; rows go to a folder beside it."""
    trial = Trial(**json.loads(spec.read_text()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session(trial.system, trial.cores, trial.memory, {})
    try:
        run_query(spark, trial, Path(trial.warmup), result.parent / "warmup")
        seen = run_query(spark, trial, Path(trial.events), result.parent / "measured")
    finally:
        spark.stop()
    result.write_text(json.dumps(seen))


def run_query(spark: Any, trial: Trial, events: Path, out: Path) -> dict[str, Any]:
    """Run the query over a folder of events to their end; checkpoint and rows are below `out`."""
    query = QUERIES[trial.query]
    named = _show_streams(spark, query, events, trial.files_per_trigger)
    (out / ROWS).mkdir(parents=True)
    latest = Latest(query.groups)
    if trial.system == "rounds":
        bound = bind(spark, query, named, trial.cores)
        began = time.monotonic()
        handle = bound.start(
            sink=latest if query.groups else out / ROWS, checkpoint=out / "checkpoint", trigger="availableNow"
        )
        handle.await_termination()
        running = handle.query
    else:
        ours = trial.system == "watersmeet"
        frame = bind(spark, query, named, trial.cores).dataframe() if ours else spark.sql(query.spark)
        began = time.monotonic()
        running = _write(frame, latest, out)
    wall_s = time.monotonic() - began
    if query.groups:
        latest.write(out / ROWS)
    return {"wall_s": wall_s, "progress": [json.loads(progress.json) for progress in running.recentProgress]}


def _show_streams(spark: Any, query: NexmarkQuery, events: Path, files_per_trigger: int) -> dict[str, Any]:
    """The query's streams as frames; Spark's own SQL sees them as views with watermarks, and tables as views."""
    frames = {}
    for name in query.reads:
        path = str(events / name)
        reader = spark.readStream.schema(spark.read.parquet(path).schema).option(
            "maxFilesPerTrigger", files_per_trigger
        )
        frames[name] = reader.parquet(path)
        frames[name].withWatermark("date_time", LATENESS).createOrReplaceTempView(name)
    for name in query.tables:
        frames[name] = spark.read.parquet(str(events / name))
        frames[name].createOrReplaceTempView(name)
    return frames


def bind(spark: Any, query: NexmarkQuery, frames: Mapping[str, Any], units: int) -> Any:
    """The query in watersmeet's SQL, bound to streams and tables."""
    import watersmeet as wm

    named: dict[str, Any] = {
        name: wm.Stream(frame, time="date_time", lateness=LATENESS) for name, frame in frames.items() if name in STREAMS
    }
    named |= {name: wm.Table(frames[name]) for name in query.tables}
    named |= {name: wm.Stream(spark.sql(DERIVED[name]), time="date_time") for name in query.derived}
    return wm.sql(query.text, named, units=units)


def _write(frame: Any, latest: Latest, out: Path) -> Any:
    """Run a streaming frame to its end."""
    writer = frame.writeStream.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    if latest.keys:
        running = writer.outputMode("update").foreachBatch(latest).start()
    else:
        running = writer.format("parquet").start(str(out / ROWS))
    running.awaitTermination()
    return running


class Latest:
    """A sink for groups whose value changes, which keeps the last value of each."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def __call__(self, changed: Any, batch_id: int) -> None:
        for row in changed.collect():
            self.rows[tuple(row[key] for key in self.keys)] = row.asDict()

    def write(self, folder: Path) -> None:
        """All groups, as a Parquet file."""
        pq.write_table(pa.Table.from_pylist(list(self.rows.values())), folder / "part-00000.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
