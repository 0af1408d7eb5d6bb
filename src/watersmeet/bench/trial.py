"""One trial: one system, one query, one fresh process with its own JVM. `python -m watersmeet.bench.trial SPEC RESULT`.

A small query of the same shape runs first in the same JVM (workers, imports, generated code), then the measured one:
available-now over the files, checkpoint on disk, results into Spark's noop sink, which computes every column of every
row and throws them away. Count and checksum are taken by `observe` on the way, for every system alike.
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

from watersmeet.bench.data import ALIASES, SCHEMA
from watersmeet.bench.systems import CONF, System, checksum, results


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
    from pyspark.sql import functions as F

    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", trial.files_per_trigger)
    streams = {alias: reader.parquet(f"{data}/{alias}") for alias in ALIASES[: trial.ways]}
    frame = results(trial.system, spark, streams, trial.window_us, trial.cores)
    frame = frame.observe(
        "answer", F.count(F.lit(1)).alias("count"), F.sum(F.expr(checksum(trial.ways))).alias("checksum")
    )
    shutil.rmtree(checkpoint, ignore_errors=True)
    began = time.monotonic()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wall_s = time.monotonic() - began
    return {"wall_s": wall_s, "progress": [json.loads(progress.json) for progress in query.recentProgress]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
