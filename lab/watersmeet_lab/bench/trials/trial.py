"""One trial: one system, one query, one fresh process with its own JVM. `python -m watersmeet_lab.bench.trials.trial SPEC RESULT`.

A small query of the same shape runs first in the same JVM (workers, imports, generated code), then the measured one:
available-now over the files, checkpoint on disk, results computed to the last column of every row and thrown away: by
Spark's noop sink, or on the rounds runtime by a sink of the same kind. Count and checksum are taken by `observe` on the
way, for every system alike.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from watersmeet.runtime.rounds.supersteps import run_all
from watersmeet.runtime.session import LOCAL_MANAGER, SETTING
from watersmeet_lab.bench.answer import Condition
from watersmeet_lab.bench.data import ALIASES, SCHEMA
from watersmeet_lab.bench.trials.systems import CONF, System, checksum, query, results


@dataclass(frozen=True)
class Trial:
    """What to run, on what, with what."""

    system: System
    ways: int
    files_per_trigger: int
    window_us: int
    data: str
    warmup: str
    cores: int = 2
    memory: str = "4g"
    conf: Mapping[str, str] = field(default_factory=dict)
    condition: Condition = "equal"


def main(spec: Path, result: Path) -> None:
    """Run the trial that the file `spec` describes and write what was seen to the file `result`."""
    trial = Trial(**json.loads(spec.read_text()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session(trial)
    try:
        _query(spark, trial, trial.warmup, result.parent / "warmup-checkpoint")
        seen = _query(spark, trial, trial.data, result.parent / "checkpoint")
    finally:
        spark.stop()
    result.write_text(json.dumps({"trial": asdict(trial), **seen}))


def _session(trial: Trial) -> Any:
    from pyspark.sql import SparkSession

    conf = {
        "spark.driver.memory": trial.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(trial.cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.openCostInBytes": str(16 * 2**20),  # a file is one task; no empty task for its second half
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        SETTING: LOCAL_MANAGER,  # what watersmeet chooses on a local disk, for all
        **CONF[trial.system],
        **trial.conf,
    }
    builder = SparkSession.builder.master(f"local[{trial.cores}]").appName(f"bench-{trial.system}")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _query(spark: Any, trial: Trial, data: str, checkpoint: Path) -> dict[str, Any]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", trial.files_per_trigger)
    streams = {alias: reader.parquet(f"{data}/{alias}") for alias in ALIASES[: trial.ways]}
    shutil.rmtree(checkpoint, ignore_errors=True)
    run = _rounds if trial.system == "rounds" else _stream
    return run(spark, trial, streams, str(checkpoint))


def _stream(spark: Any, trial: Trial, streams: Mapping[str, Any], checkpoint: str) -> dict[str, Any]:
    frame = _observe_answer(
        results(trial.system, spark, streams, trial.window_us, trial.cores, trial.condition), trial.ways
    )
    began = time.monotonic()
    running = (
        frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    running.awaitTermination()
    wall_s = time.monotonic() - began
    events = [json.loads(progress.json) for progress in running.recentProgress]
    seen = [event.get("observedMetrics", {}).get("answer") or {} for event in events]
    answer = {name: sum(row.get(name) or 0 for row in seen) for name in ("count", "checksum")}
    return {"wall_s": wall_s, "progress": events, "answer": answer}


def _rounds(spark: Any, trial: Trial, streams: Mapping[str, Any], checkpoint: str) -> dict[str, Any]:
    sink = Counted(trial.ways)
    began = time.monotonic()
    handle = query(streams, trial.window_us, trial.cores, trial.condition).start(
        sink=sink, checkpoint=checkpoint, trigger="availableNow"
    )
    handle.await_termination()
    wall_s = time.monotonic() - began
    events = [json.loads(progress.json) for progress in handle.query.recentProgress]
    retained = {progress.batch_id: progress.state_rows for progress in handle.history()}
    for event in events:
        event["retained"] = retained.get(event["batchId"])
    return {"wall_s": wall_s, "progress": events, "answer": sink.answer}


class Counted:
    """A sink for the rounds runtime that counts and checks results, and keeps nothing."""

    def __init__(self, ways: int) -> None:
        self.ways = ways
        self.answer = {"count": 0, "checksum": 0}
        self._frames: dict[int, tuple[Any, Any]] = {}

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: Any, batch_id: int) -> None:
        """The frames of a query are few and run again and again, so each is made to count once."""
        if id(rows) not in self._frames:
            self._frames[id(rows)] = rows, _observe_answer(rows, self.ways)
        counting = self._frames[id(rows)][1]
        run_all(counting)
        seen = json.loads(counting._jdf.queryExecution().observedMetrics().apply("answer").json())
        for name in self.answer:
            self.answer[name] += seen.get(name) or 0


def _observe_answer(frame: Any, ways: int) -> Any:
    from pyspark.sql import functions as F

    return frame.observe("answer", F.count(F.lit(1)).alias("count"), F.sum(F.expr(checksum(ways))).alias("checksum"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
