"""The same under `start()`: one file of each stream in a micro-batch, the sink that keeps nothing, two units.

A file has what comes in one span of event time, so that bursty streams burst. Policies take turns in one session, after a run that warms it up. What a policy takes is told in two figures,
less the first fifth of the micro-batches: the CPU time of the units, which is what a policy can change, and the time of micro-batches, which is what a user waits for.
The bag of results is the same under every policy by count; checksums are compared in process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

import watersmeet as wm
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.trials.trial import open_session

UNITS = 2
SCHEMA = "k bigint, ts timestamp"


@dataclass
class OnSpark:
    """What the policies took on a workload: seconds of units and of micro-batches."""

    name: str
    results: int
    units: dict[str, list[float]] = field(default_factory=dict)
    batches: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, policy: str, figure: str) -> float:
        taken = getattr(self, figure)
        return float(min(taken[policy]) / min(taken["auto"]))


def cut(table: pa.Table, batch_us: int, batches: int) -> list[pa.Table]:
    """What comes in each span of event time.

    >>> [t.num_rows for t in cut(pa.table({"ts": pa.array([START_US, START_US + 9, START_US + 10], pa.timestamp("us", tz="UTC"))}), 10, 3)]
    [2, 1, 0]
    """
    times = table.column("ts").cast(pa.int64()).to_numpy() - START_US
    ends = np.searchsorted(times, np.arange(1, batches + 1) * batch_us)
    return [table.slice(begin, end - begin) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def write_files(tables: Mapping[str, pa.Table], batch_us: int, batches: int, folder: Path) -> None:
    """A file of each stream for every micro-batch, in the order in which Spark reads them."""
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        for number, part in enumerate(cut(table, batch_us, batches)):
            path = folder / name / f"{number:05}.parquet"
            pq.write_table(part, path)
            os.utime(path, (START_US / 1e6 + number, START_US / 1e6 + number))


def measure_on_spark(
    cases: Sequence[tuple[str, str, Mapping[str, pa.Table], int, int]], policies: Sequence[str], repeat: int
) -> list[OnSpark]:
    """Every case, as name, text, tables, microseconds of a batch and batches, under every policy."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark, out = open_session("rounds", UNITS, "4g", {}), list[OnSpark]()
    try:
        for name, text, tables, batch_us, batches in cases:
            with tempfile.TemporaryDirectory(prefix="watersmeet-drivers-") as scratch:
                write_files(tables, batch_us, batches, Path(scratch))
                out.append(_take_turns(spark, name, text, tables, Path(scratch), policies, repeat))
    finally:
        spark.stop()
    return out


def _take_turns(
    spark: Any, name: str, text: str, tables: Mapping[str, Any], root: Path, policies: Sequence[str], repeat: int
) -> OnSpark:
    results, *_ = _run(spark, text, tables, root, "auto", "warm")
    found = OnSpark(name, results)
    for number in range(repeat):
        for policy in policies if number % 2 == 0 else reversed(policies):
            count, units, batches = _run(spark, text, tables, root, policy, f"{policy}{number}")
            if count != results:
                raise SystemExit(f"{name}: {policy} and auto differ, so there is nothing to time")
            found.units.setdefault(policy, []).append(units)
            found.batches.setdefault(policy, []).append(batches)
    return found


def _run(
    spark: Any, text: str, tables: Mapping[str, Any], root: Path, policy: str, name: str
) -> tuple[int, float, float]:
    """The number of results; seconds of units and of micro-batches."""
    streams = {}
    for stream in tables:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        streams[stream] = wm.Stream(reader.parquet(str(root / stream)), time="ts")
    query = wm.sql(text, streams, driver=policy, units=UNITS)
    handle = query.start(sink="noop", checkpoint=str(root / f"checkpoint-{name}"), trigger="availableNow")
    handle.await_termination()
    told = [figures.progress() for figures in handle._run.told]
    later = told[len(told) // 5 :]
    return (
        sum(p.results for p in told),
        sum(sum(p.unit_seconds.values()) for p in later),
        sum(p.seconds for p in later),
    )


def show_on_spark(found: Sequence[OnSpark], policies: Sequence[str]) -> Table:
    """Ratios to `auto`: of units / of micro-batches."""
    table = Table(
        title="start(): CPU time of units, and time of micro-batches, over those of auto", title_justify="left"
    )
    for column in ("workload", "results", "auto, s", *(policy.replace("_", " ") for policy in policies[1:])):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for one in found:
        ratios = [f"{one.ratio(p, 'units'):.2f} / {one.ratio(p, 'batches'):.2f}" for p in policies[1:]]
        own = f"{min(one.units['auto']):.2f} / {min(one.batches['auto']):.2f}"
        table.add_row(one.name, f"{one.results:,}", own, *ratios)
    return table
