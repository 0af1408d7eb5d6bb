"""`watersmeet bench soak`: many small micro-batches on the rounds runtime. What grows, and what does a round cost?

Files, bytes on disk against live bytes, and the memory of workers and JVM are looked at every tenth of the way. The
empty second round is the same query whose units send one empty message: the difference of the medians is its price.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Dataflow, FlowStage, Message, Pause, Turn, Yielded, first_unit
from watersmeet.operators.assemble import PlanFlows
from watersmeet.operators.join import JoinUnits
from watersmeet.runtime.progress import Progress
from watersmeet.runtime.rounds import handle as handle_module
from watersmeet.runtime.rounds.checkpoint import SEGMENTS, StateFolder
from watersmeet.runtime.spark.session import local_session
from watersmeet_lab.bench.data import START, START_US
from watersmeet_lab.bench.memory import Peak, descendants, sample

QUERY = "SELECT a.key AS key, a.ts AS a_ts, b.ts AS b_ts FROM a, b WHERE a.key = b.key WINDOW = 10 SECONDS"
SECONDS_PER_FILE = 2


@dataclass(frozen=True)
class Nothing:
    """An operator that does nothing, and the way to it, on which results are lost."""

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        for _ in tables:
            pass
        yield Message(first_unit(1), "nothing", pa.table({"nothing": pa.array([], pa.int8())}))

    def step(self, turn: Turn) -> Iterator[Yielded]:
        return iter(())

    def cuts(self, clock: Clock) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class Echo(PlanFlows):
    """The join, and a second round in which nobody has anything to do."""

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        flow = super().assemble(decisions)
        join = replace(flow.stages[0], operator=JoinUnits(self.plan, 0, 0, Nothing()))
        return replace(flow, stages=(join, FlowStage(Nothing(), 1)), rounds=2)


def command(
    batches: Annotated[int, typer.Option(help="Micro-batches.", min=20)] = 500,
    rows: Annotated[int, typer.Option(help="Tuples of each stream per micro-batch.", min=10)] = 2_000,
) -> None:
    """Files, disk and memory over many micro-batches; the cost of an empty second round."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        for number, alias in enumerate("ab"):
            write_stream(folder / alias, batches, rows, number)
        with local_session("bench-soak", log=folder / "spark.log") as spark:
            status.update(f"{batches} micro-batches")
            looks, one = _soak(spark, folder, batches)
            status.update("an empty second round")
            two = _second_round(spark, folder)
    _show(console, looks, one, two)


@dataclass(frozen=True)
class Look:
    """What there is after a micro-batch."""

    batch: int
    files: int
    disk: int
    live: int
    workers_mb: float
    jvm_mb: float


def write_stream(folder: Path, files: int, rows: int, number: int) -> None:
    """A stream in files, two seconds each."""
    rng = np.random.default_rng(number)
    folder.mkdir()
    for n in range(files):
        ts = START_US + n * SECONDS_PER_FILE * 1_000_000 + np.sort(rng.integers(0, SECONDS_PER_FILE * 1_000_000, rows))
        table = pa.table({"key": rng.integers(0, 1_000, rows), "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})
        path = folder / f"{n:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (START.timestamp() + n, START.timestamp() + n))


def make_query(spark: Any, folder: Path) -> Any:
    """The join of two streams, a file of each in a batch."""
    reader = spark.readStream.schema("key BIGINT, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
    streams = {alias: wm.Stream(reader.parquet(str(folder / alias)), time="ts") for alias in "ab"}
    return wm.sql(QUERY, **streams, units=spark.sparkContext.defaultParallelism)


def _soak(spark: Any, folder: Path, batches: int) -> tuple[list[Look], list[Progress]]:
    state = StateFolder.under(str(folder / "soak"))
    seen: list[Progress] = []
    looks: list[Look] = []
    handle: Any = None

    def look(progress: Progress) -> None:
        seen.append(progress)
        if progress.batch_id % max(1, batches // 10) == batches // 10 - 1:
            names = state.names(SEGMENTS)
            peak = Peak()
            peak.add(sample(descendants(os.getpid())))
            disk = sum(os.path.getsize(state.path(SEGMENTS, name)) for name in names)
            looks.append(
                Look(
                    progress.batch_id + 1,
                    len(names),
                    disk,
                    progress.state_bytes,
                    peak.workers_rss / 2**20,
                    peak.jvm_rss / 2**20,
                )
            )

    handle = make_query(spark, folder).start(sink="noop", checkpoint=folder / "soak", trigger="availableNow")
    handle.on_batch(look)
    handle.await_termination()
    return looks, seen


def _second_round(spark: Any, folder: Path) -> list[Progress]:
    """The same query with an empty second round, over the same files; one round is what the soak measured."""
    with patch.object(handle_module, "PlanFlows", Echo):
        handle = make_query(spark, folder).start(sink="noop", checkpoint=folder / "second", trigger="availableNow")
        while handle.is_active and len(handle.history()) < 60:
            handle.await_termination(0.2)
        handle.stop()
        return list(handle.history())


def _show(console: Console, looks: list[Look], one: list[Progress], two: list[Progress]) -> None:
    table = Table("after batch", title="soak", title_justify="left")
    for title in ("segment files", "MB on disk", "MB live", "disk / live", "workers, RSS in MB", "JVM, RSS in MB"):
        table.add_column(title, justify="right")
    for o in looks:
        table.add_row(
            f"{o.batch:,}",
            f"{o.files}",
            f"{o.disk / 1e6:.2f}",
            f"{o.live / 1e6:.2f}",
            f"{o.disk / max(o.live, 1):.2f}",
            f"{o.workers_mb:,.0f}",
            f"{o.jvm_mb:,.0f}",
        )
    console.print(table)
    single = statistics.median(p.seconds for p in one[len(one) // 2 :]) * 1000
    double = statistics.median(p.seconds for p in two[len(two) // 2 :]) * 1000
    console.print(
        f"a batch of one round takes {single:.0f} ms around its jobs and files, with an empty second round {double:.0f} ms: {double - single:.0f} ms for it"
    )
