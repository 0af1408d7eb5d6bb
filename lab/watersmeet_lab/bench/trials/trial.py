"""One trial: one system, one query, one fresh process with its own JVM. `python -m watersmeet_lab.bench.trials.trial SPEC RESULT`.

A small query of the same shape runs first in the same JVM (workers, imports, generated code), then the measured one:
available-now over the files, checkpoint on disk, results computed to the last column of every row and thrown away: by
Spark's noop sink, or on the rounds runtime by a sink of the same kind. Count and checksum are taken by `observe` on the
way, for every system alike. With `sink="parquet"` results are written to a folder of Parquet files, and count and checksum are read from it.

A trial of `minutes` is stopped at the end of the micro-batch that runs when they are over. The answer is then that of the micro-batches that are complete, and `complete` says how many.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from watersmeet.runtime.spark.java import find_version
from watersmeet.runtime.spark.jobs import compute
from watersmeet.runtime.spark.session import LOCAL_MANAGER, SETTING, STEADY, jvm_settings
from watersmeet_lab.bench.answer import Question
from watersmeet_lab.bench.data import ALIASES, SCHEMA, START_US
from watersmeet_lab.bench.trials.systems import CONF, System, checksum, count_sql, query, results

Sink = Literal["noop", "parquet"]
SINKS: tuple[Sink, ...] = get_args(Sink)


@dataclass(frozen=True)
class Trial:
    """What to run, on what, with what."""

    system: System
    question: Question
    files_per_trigger: int
    data: str
    warmup: str
    cores: int = 2
    memory: str = "4g"
    conf: Mapping[str, str] = field(default_factory=dict)
    sink: Sink = "noop"
    checkpoints: str | None = None
    """Where checkpoints lie, if not beside the result; nothing is there."""
    minutes: float | None = None
    """The measured query is stopped after so many; without, it runs to the end of the files."""


def main(spec: Path, result: Path) -> None:
    """Run the trial that the file `spec` describes and write what was seen to the file `result`."""
    given = json.loads(spec.read_text())
    trial = Trial(**{**given, "question": Question(**given["question"])})
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session(trial.system, trial.cores, trial.memory, trial.conf)
    try:
        checkpoints = trial.checkpoints or str(result.parent)
        _query(spark, replace(trial, minutes=None), trial.warmup, f"{checkpoints}/warmup-checkpoint")
        seen = _query(spark, trial, trial.data, f"{checkpoints}/checkpoint")
    finally:
        spark.stop()
    result.write_text(json.dumps({"trial": asdict(trial), **seen}))


def open_session(system: System, cores: int, memory: str, conf: Mapping[str, str]) -> Any:
    """A local Spark, set for a system."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.openCostInBytes": str(16 * 2**20),  # a file is one task; no empty task for its second half
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        SETTING: LOCAL_MANAGER,  # what watersmeet chooses on a local disk, for all
        **STEADY,  # what the command chooses, likewise
        **jvm_settings(find_version()),
        **CONF[system],
        **conf,
    }
    builder = SparkSession.builder.appName(f"bench-{system}")
    builder = builder.remote(f"local[{cores}]") if system == "connect" else builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if system != "connect":
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _query(spark: Any, trial: Trial, data: str, checkpoint: str) -> dict[str, Any]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", trial.files_per_trigger)
    streams = {alias: reader.parquet(f"{data}/{alias}") for alias in ALIASES[: trial.question.ways]}
    shutil.rmtree(checkpoint, ignore_errors=True)
    run = _rounds if trial.system in ("rounds", "connect") else _stream
    return run(spark, trial, streams, checkpoint)


def _stream(spark: Any, trial: Trial, streams: Mapping[str, Any], checkpoint: str) -> dict[str, Any]:
    frame, folder = results(trial.system, spark, streams, trial.question, trial.cores), f"{checkpoint}-rows"
    shutil.rmtree(folder, ignore_errors=True)
    writer = (frame if trial.sink == "parquet" else _observe_answer(frame, trial.question)).writeStream
    writer = writer.format(trial.sink).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    began = time.monotonic()
    running = writer.start(folder) if trial.sink == "parquet" else writer.start()
    _await(running, trial.minutes, running.stop)
    wall_s = time.monotonic() - began
    events = [json.loads(progress.json) for progress in running.recentProgress]
    if trial.sink == "parquet":
        return {
            "wall_s": wall_s,
            "progress": events,
            "answer": _read_answer(spark, folder, trial.question),
            "complete": count_written(folder),
        }
    answer = _add_up(event.get("observedMetrics", {}).get("answer") or {} for event in events)
    return {"wall_s": wall_s, "progress": events, "answer": answer, "complete": events[-1]["batchId"] + 1}


def _rounds(spark: Any, trial: Trial, streams: Mapping[str, Any], checkpoint: str) -> dict[str, Any]:
    folder = f"{checkpoint}-rows"
    shutil.rmtree(folder, ignore_errors=True)
    counting = CountedApart(trial.question, folder) if trial.system == "connect" else Counted(trial.question)
    sink: Any = folder if trial.sink == "parquet" else counting
    began = time.monotonic()
    handle = query(streams, trial.question, trial.cores).start(sink=sink, checkpoint=checkpoint, trigger="availableNow")
    _await(handle.query, trial.minutes, handle.stop)
    if handle.exception is not None:
        raise handle.exception
    wall_s = time.monotonic() - began
    events = [json.loads(progress.json) for progress in handle.query.recentProgress]
    retained = {progress.batch_id: progress.state_rows for progress in handle.history()}
    for event in events:
        event["retained"] = retained.get(event["batchId"])
        event.setdefault(
            "numInputRows", sum(source["numInputRows"] for source in event["sources"])
        )  # not told by Connect
    complete = count_written(folder) if trial.sink == "parquet" else events[-1]["batchId"] + 1
    answer = _read_answer(spark, folder, trial.question) if trial.sink == "parquet" else counting.answer(complete)
    return {"wall_s": wall_s, "progress": events, "answer": answer, "complete": complete}


def _await(running: Any, minutes: float | None, stop: Callable[[], object]) -> None:
    """Wait for the end of the files or, after so many minutes, of a micro-batch."""
    if minutes is None:
        running.awaitTermination()
        return
    if running.awaitTermination(round(60 * minutes)):
        return
    last = running.lastProgress
    while running.isActive and running.lastProgress == last:
        time.sleep(0.01)
    stop()


def count_written(folder: str) -> int:
    """The micro-batches that the log of a folder of results has, from the first on."""
    numbers = [int(file.name.split(".")[0]) for file in Path(folder, "_spark_metadata").glob("[0-9]*")]
    return max(numbers, default=-1) + 1


class Counted:
    """A sink for the rounds runtime that counts and checks results, and keeps nothing."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._seen: dict[int, dict[str, int]] = {}
        """What was counted, by batch."""
        self._frames: dict[int, tuple[Any, Any]] = {}

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: Any, batch_id: int) -> None:
        """The frames of a query are few and run again and again, so each is made to count once."""
        if id(rows) not in self._frames:
            self._frames[id(rows)] = rows, _observe_answer(rows, self.question)
        counting = self._frames[id(rows)][1]
        compute(counting)
        self._seen[batch_id] = json.loads(counting._jdf.queryExecution().observedMetrics().apply("answer").json())

    def take_batches(self, batches: Any, batch_id: int) -> None:
        """Batches that were joined in this process; results come as key, and the time and payload of every side."""
        seen = self._seen[batch_id] = {"count": 0, "low": 0}
        for batch in batches:
            times = [batch.column(1 + 2 * n) for n in range((batch.num_columns - 1) // 2)]
            since = [np.asarray(time.fill_null(START_US).cast("int64")) - START_US for time in times]
            counts = np.full(batch.num_rows, True)
            if self.question.until_us is not None:
                counts = since[0] < self.question.until_us
            seen["count"] += int(counts.sum())
            seen["low"] += int(np.sum([np.asarray(batch.column(0)), *since], axis=0)[counts].sum())

    def answer(self, complete: int) -> dict[str, int]:
        """What was counted in so many micro-batches."""
        return _add_up(seen for batch_id, seen in self._seen.items() if batch_id < complete)


@dataclass
class CountedApart:
    """The same in a worker of a server: it leaves what it counts in a file for every batch."""

    question: Question
    folder: str

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: Any, batch_id: int) -> None:
        from pyspark.sql import Observation

        seen = Observation()
        compute(rows.observe(seen, *_answer_columns(self.question)))
        os.makedirs(self.folder, exist_ok=True)
        (Path(self.folder) / f"{batch_id}.json").write_text(json.dumps(seen.get))

    def answer(self, complete: int) -> dict[str, int]:
        """What was counted in so many micro-batches."""
        files = (Path(self.folder) / f"{batch_id}.json" for batch_id in range(complete))
        return _add_up(json.loads(file.read_text()) for file in files if file.exists())


def _add_up(seen: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The answer, of what `_answer_columns` has found in its parts."""
    counted = list(seen)
    count, high, low = (sum(one.get(name) or 0 for one in counted) for name in ("count", "high", "low"))
    return {"count": count, "checksum": (high << _LOW_BITS) + low}


def _observe_answer(frame: Any, question: Question) -> Any:
    return frame.observe("answer", *_answer_columns(question))


def _read_answer(spark: Any, folder: str, question: Question) -> dict[str, int]:
    """Count and checksum of what a run has written."""
    return _add_up([spark.read.parquet(folder).agg(*_answer_columns(question)).first().asDict()])


_LOW_BITS = 24


def _answer_columns(question: Question) -> list[Any]:
    """A hundred million results add up to more than 64 bits hold, and Spark keeps sums over all runs of a frame: so high and low bits are added up apart."""
    from pyspark.sql import functions as F

    counts = F.expr(count_sql(question))
    summed = F.when(counts, F.expr(checksum(question)))
    high, low = F.shiftright(summed, _LOW_BITS), summed.bitwiseAND(F.lit(2**_LOW_BITS - 1))
    return [F.count_if(counts).alias("count"), F.sum(high).alias("high"), F.sum(low).alias("low")]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
