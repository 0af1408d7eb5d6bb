"""`watersmeet bench soak`: many small micro-batches on the rounds runtime. What grows, and what does a round cost?

Files, bytes on disk against live bytes, and the memory of workers and JVM are looked at every tenth of the way, and the time of
a micro-batch is told by thirds. A long run needs no long streams: CYCLE files of each stream come again and again under new names
(hard links), and what comes later has later times, by its name. So 10^9 tuples are `--batches 2000 --rows 250000 --keys 10000 --seconds 250`.

    a/00019.parquet  -> .a/19.parquet    a/00020.parquet  -> .a/0.parquet     time = START + 20 * seconds + us

Invariant: the run is as long as whole cycles, so how many results there must be follows from DuckDB's answers for one cycle and for two.

The empty second round is the same query whose units send one empty message: the difference of the medians is its price.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import duckdb
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
CYCLE = 20
"""Different files of a stream."""
SECOND = 60
"""Micro-batches of the runs with and without a second round."""
SECOND_ROWS = 2_000
"""Tuples of theirs at most: they have few keys, and what a round costs does not depend on tuples."""
AHEAD = 5
"""So many files of a stream lie ready for batches to come."""
_TIME = "timestamp_micros({start} + {span} * CAST(substring(_metadata.file_name, 1, 6) AS BIGINT) + us) AS ts"


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


@dataclass(frozen=True)
class Cycle:
    """Two streams whose files come again and again."""

    folder: Path
    rows: int
    keys: int
    seconds: int
    batches: int

    def write(self) -> None:
        """The files of a cycle, and links for the first batches."""
        rng = np.random.default_rng(1)
        for alias in "ab":
            (self.folder / f".{alias}").mkdir()
            (self.folder / alias).mkdir()
            for n in range(CYCLE):
                us = np.sort(rng.integers(0, self.seconds * 1_000_000, self.rows))
                table = pa.table({"key": rng.integers(0, self.keys, self.rows), "us": us})
                pq.write_table(table, self._file(alias, n))
        for n in range(min(AHEAD, self.batches)):
            self.link(n)

    def link(self, n: int) -> None:
        """Let the files of a batch come; Spark reads files in the order of their times, which all links of a file have in common."""
        for alias in "ab":
            at = START.timestamp() + n
            os.utime(self._file(alias, n), (at, at))
            os.link(self._file(alias, n), self._link(alias, n))

    def go_on(self, done: int) -> None:
        """A batch is over: its files go, and others come."""
        for alias in "ab":
            self._link(alias, done).unlink()
        if done + AHEAD < self.batches:
            self.link(done + AHEAD)

    def count_results(self) -> int:
        """How many results the run must have, by DuckDB."""
        one, two = (self._count(cycles) for cycles in (1, 2))
        return one + (self.batches // CYCLE - 1) * (two - one)

    def query(self, spark: Any) -> Any:
        """The join of the two streams, a file of each in a batch."""
        reader = spark.readStream.schema("key BIGINT, us BIGINT").option("maxFilesPerTrigger", 1)
        time = _TIME.format(start=START_US, span=self.seconds * 1_000_000)
        frames = {alias: reader.parquet(str(self.folder / alias)).selectExpr("key", time) for alias in "ab"}
        streams = {alias: wm.Stream(frame, time="ts") for alias, frame in frames.items()}
        return wm.sql(QUERY, **streams, units=spark.sparkContext.defaultParallelism)

    def _count(self, cycles: int) -> int:
        span = self.seconds * 1_000_000
        streams = {
            alias: " UNION ALL ".join(
                f"SELECT key, us + {span * n} AS us FROM '{self._file(alias, n)}'" for n in range(cycles * CYCLE)
            )
            for alias in "ab"
        }
        text = f"SELECT count(*) FROM ({streams['a']}) a JOIN ({streams['b']}) b ON a.key = b.key AND abs(a.us - b.us) <= 10000000"
        [(count,)] = duckdb.sql(text).fetchall()
        return int(count)

    def _file(self, alias: str, n: int) -> Path:
        return self.folder / f".{alias}" / f"{n % CYCLE}.parquet"

    def _link(self, alias: str, n: int) -> Path:
        return self.folder / alias / f"{n:06d}.parquet"


def command(
    batches: Annotated[int, typer.Option(help=f"Micro-batches; whole cycles of {CYCLE}.", min=2 * CYCLE)] = 500,
    rows: Annotated[int, typer.Option(help="Tuples of each stream per micro-batch.", min=10)] = 2_000,
    keys: Annotated[int, typer.Option(help="Different keys.", min=1)] = 1_000,
    seconds: Annotated[int, typer.Option(help="Event time of a micro-batch.", min=1)] = SECONDS_PER_FILE,
) -> None:
    """Files, disk, memory and time over many micro-batches, results counted; the cost of an empty second round."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        cycle = Cycle(folder, rows, keys, seconds, batches // CYCLE * CYCLE)
        cycle.write()
        expected = cycle.count_results()
        (folder / "short").mkdir()
        for number, alias in enumerate("ab"):
            write_stream(folder / "short" / alias, SECOND, min(rows, SECOND_ROWS), number)
        with local_session("bench-soak", log=folder / "spark.log") as spark:
            status.update(f"{cycle.batches} micro-batches")
            looks, one = _soak(spark, cycle)
            status.update("an empty second round")
            single = _run_over(spark, folder, "single")
            with patch.object(handle_module, "PlanFlows", Echo):
                double = _run_over(spark, folder, "double")
    _show(console, looks, one, single, double)
    found = sum(p.results for p in one)
    console.print(f"{2 * rows * cycle.batches:,} tuples, {found:,} results; DuckDB's count is {expected:,}")
    if found != expected:
        raise typer.Exit(1)


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


def _soak(spark: Any, cycle: Cycle) -> tuple[list[Look], list[Progress]]:
    state = StateFolder.under(str(cycle.folder / "soak"))
    seen: list[Progress] = []
    looks: list[Look] = []

    def look(progress: Progress) -> None:
        seen.append(progress)
        cycle.go_on(progress.batch_id)
        if (progress.batch_id + 1) % (cycle.batches // 10) == 0:
            looks.append(_look(state, progress))

    handle = cycle.query(spark).start(sink="noop", checkpoint=cycle.folder / "soak")
    handle.on_batch(look)
    while len(seen) < cycle.batches and not handle.await_termination(0.2):
        pass
    handle.stop()
    return looks, seen


def _look(state: StateFolder, progress: Progress) -> Look:
    names = state.names(SEGMENTS)
    peak = Peak()
    peak.add(sample(descendants(os.getpid())))
    disk = sum(os.path.getsize(state.path(SEGMENTS, name)) for name in names)
    megabytes = peak.workers_rss / 2**20, peak.jvm_rss / 2**20
    return Look(progress.batch_id + 1, len(names), disk, progress.state_bytes, *megabytes)


def _run_over(spark: Any, folder: Path, name: str) -> list[Progress]:
    """The batches of a run over short streams."""
    handle = make_query(spark, folder / "short").start(sink="noop", checkpoint=folder / name, trigger="availableNow")
    handle.await_termination()
    return list(handle.history())


def _show(
    console: Console, looks: list[Look], one: list[Progress], single: list[Progress], double: list[Progress]
) -> None:
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
    console.print(_thirds(one))
    before, after = (statistics.median(p.seconds for p in run[len(run) // 2 :]) * 1000 for run in (single, double))
    console.print(
        f"a batch of one round takes {before:.0f} ms around its jobs and files, with an empty second round {after:.0f} ms: {after - before:.0f} ms for it"
    )


def _thirds(batches: Sequence[Progress]) -> Table:
    """The time of a micro-batch in each third of the run: the query's own, without Spark's planning and logs."""
    table = Table("third", "median ms", "p95 ms", title="micro-batches", title_justify="left")
    for n in range(3):
        part = sorted(p.seconds * 1000 for p in batches[len(batches) * n // 3 : len(batches) * (n + 1) // 3])
        table.add_row(f"{n + 1}", f"{statistics.median(part):,.0f}", f"{part[int(0.95 * len(part))]:,.0f}")
    return table
