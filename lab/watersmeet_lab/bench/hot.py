"""`watersmeet bench hot`: a key with many of the tuples, under `start()`: without options, and with plain hash routing.

Both streams come from files, one of each in a batch. In the middle third of the batches a share of the tuples has one key; before and after it keys
are uniform. Counted are rows/s while the skew lasts, the busiest unit's rows and CPU time over the mean, and how many units the key goes to at the end. Rows/s by CPU are those that two cores
allow: no batch is shorter than its busiest unit, nor than half of what all units take together. They hold on a loaded machine, too, and leave out what Spark needs besides. The two runs
must have the same number of results, which is counted by bisection in the whole streams. Runs alternate, each in the same session, after one to warm up.

By default a hot tuple has about 10,000 partners, so that the pairs of the hot key take longer than what Spark needs for a batch; with a window of 40 ms and 10,000 tuples
they do not, and there is little to gain.

`--watching` asks instead what it costs to look for hot keys where there are none, in this process: the time of what watches (units that look at keys, and what follows of it after a batch) as a share of the CPU time of the
run. All runs make the same calls, so every call has the median of its times over the runs: that a busy machine interrupts some of them changes nothing. The difference to runs that do not watch is told, too; it is smaller than the noise of
a busy machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.operators.balance import Balance
from watersmeet.operators.join import JoinUnits
from watersmeet.plan.options import Options
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.in_process import LocalRun
from watersmeet.sql.parse import parse
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.trials.trial import open_session

QUERY = "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.key = b.key WINDOW = {} MICROSECONDS"
SPACING_US = 100
HOT = 7


@dataclass(frozen=True)
class Load:
    """Batches of so many tuples per stream, of which a share has the hot key in the middle third."""

    rows: int
    batches: int
    share: float
    window_us: int

    @property
    def skewed(self) -> range:
        """The batches with the hot key, less the first ones, in which units have not yet been told."""
        return range(self.batches // 3 + 5, 2 * self.batches // 3)


@dataclass(frozen=True)
class Measured:
    """One run."""

    results: int
    rows_per_s: float
    """In the skewed batches."""
    allowed_per_s: float
    """The same, as the units' CPU time would allow on two cores."""
    busiest: float
    """The busiest unit's rows over the mean: the worst of the skewed batches."""
    steady_rows_per_s: float
    """In the uniform batches before."""
    units_at_end: int
    """That keys are spread over after the last batch; 1: plain hash routing."""


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream and batch.", min=100)] = 20_000,
    batches: Annotated[int, typer.Option(help="Micro-batches.", min=24)] = 24,
    share: Annotated[float, typer.Option(help="Tuples that have the hot key.", min=0.0, max=1.0)] = 0.5,
    window_ms: Annotated[int, typer.Option(help="The window.", min=1)] = 1000,
    units: Annotated[int, typer.Option(help="Units.", min=2)] = 8,
    repeat: Annotated[int, typer.Option(help="Runs of each, in turn.", min=1)] = 1,
    watching: Annotated[bool, typer.Option(help="What watching costs a uniform workload, in process.")] = False,
) -> None:
    """Rows/s and balance with a hot key, without options and with plain hash routing."""
    load = Load(rows, batches, 0.0 if watching else share, window_ms * 1000)
    if watching:
        measure_watching(load, units, max(repeat, 5))
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session("rounds", 2, "4g", {})
    runs: dict[str, list[Measured]] = {"auto": [], "hash": []}
    with tempfile.TemporaryDirectory(prefix="watersmeet-hot-") as scratch:
        want = _generate(load, Path(scratch))
        _run(spark, Path(scratch), load, "hash", units, "warm")
        for number in range(repeat):
            for routing in runs if number % 2 == 0 else reversed(runs):
                runs[routing].append(_run(spark, Path(scratch), load, routing, units, f"{routing}{number}"))
    spark.stop()
    right = all(run.results == want for found in runs.values() for run in found)
    Console().print(_show(load, units, runs))
    Console().print(f"{want:,} results, as counted apart" if right else "[red]results differ from those counted apart")
    if not right:
        raise typer.Exit(1)


def _show(load: Load, units: int, runs: dict[str, list[Measured]]) -> Table:
    title = f"2 x {load.rows:,} tuples a batch, {load.share:.0%} of them on one key in the middle third, {units} units"
    table = Table(title=title, title_justify="left")
    table.add_column("routing")
    for column in ("rows/s, skewed", "by CPU", "busiest / mean, worst", "rows/s, uniform", "units of a key at the end"):
        table.add_column(column, justify="right")
    for routing, found in runs.items():
        table.add_row(
            routing,
            f"{median(r.rows_per_s for r in found):,.0f}",
            f"{median(r.allowed_per_s for r in found):,.0f}",
            f"{max(r.busiest for r in found):.2f}",
            f"{median(r.steady_rows_per_s for r in found):,.0f}",
            str(max(r.units_at_end for r in found)),
        )
    return table


def _generate(load: Load, root: Path) -> int:
    """Write the files of both streams; how many results their join has."""
    whole = make_streams(load)
    for name, stream in whole.items():
        (root / name).mkdir()
        for batch in range(load.batches):
            pq.write_table(stream.slice(batch * load.rows, load.rows), root / name / f"{batch:05}.parquet")
    return count_pairs(whole["a"], whole["b"], load.window_us)


def make_streams(load: Load) -> dict[str, pa.Table]:
    """Both streams, whole."""
    whole = {}
    for seed, name in enumerate("ab", start=1):
        draw, number = np.random.default_rng(seed), np.arange(load.batches * load.rows)
        batch = number // load.rows
        is_skewed = (load.batches // 3 <= batch) & (batch < 2 * load.batches // 3)
        key = np.where(
            is_skewed & (draw.random(len(number)) < load.share), HOT, draw.integers(100, 100_000, len(number))
        )
        ts = pa.array(START_US + number * SPACING_US, pa.timestamp("us", tz="UTC"))
        whole[name] = pa.table({"id": number, "key": key, "ts": ts})
    return whole


def count_pairs(a: pa.Table, b: pa.Table, window_us: int) -> int:
    """Pairs with one key within the window: for every tuple of a those of b between two places of (key, time).

    >>> one = pa.table({"key": [1, 1, 2], "ts": pa.array([START_US, START_US + 5, START_US + 5], pa.timestamp("us", tz="UTC"))})
    >>> count_pairs(one, one, 4), count_pairs(one, one, 5)
    (3, 5)
    """
    keys, times = ([np.asarray(t.column(c).cast(pa.int64())) for t in (a, b)] for c in ("key", "ts"))
    span = 2 * window_us + int(max(t.max() for t in times)) - START_US + 1
    mine, its = (k * span + t - START_US + window_us for k, t in zip(keys, times, strict=True))
    its.sort()
    ends = np.searchsorted(its, mine + window_us, side="right") - np.searchsorted(its, mine - window_us, side="left")
    return int(ends.sum())


def measure_watching(load: Load, units: int, repeat: int) -> None:
    """What watching takes of a uniform workload in this process, and how such runs compare with plain hash routing."""
    seconds, calls = dict[str, list[float]]({"auto": [], "hash": []}), list[list[float]]()
    for number in range(repeat + 1):
        for routing in seconds if number % 2 == 0 else reversed(seconds):
            run = _prepare(load, routing, units)
            with time_watching() as spent:
                began = time.process_time()
                run.run(load.rows)
                whole = time.process_time() - began
            if number:  # the first one compiles
                seconds[routing].append(whole)
                calls += [spent] if routing == "auto" else []
    watching, whole = float(np.median(calls, axis=0).sum()), median(seconds["auto"])
    least = {routing: min(found) / load.batches * 1000 for routing, found in seconds.items()}
    Console().print(
        f"2 x {load.rows:,} uniform tuples a batch, {units} units, {load.batches} batches: {watching / whole:.2%} of the CPU time is watching ({watching / load.batches * 1000:.2f} of {whole / load.batches * 1000:.2f} ms a batch); "
        f"least of {repeat} runs, watched {least['auto']:.2f} ms of CPU a batch, hash {least['hash']:.2f} ms",
        soft_wrap=True,
    )


def _prepare(load: Load, routing: str, units: int) -> LocalRun:
    tables = make_streams(load)
    specs = {n: StreamSpec(n, {"id": "bigint", "key": "bigint", "ts": "timestamp"}, "ts", 0) for n in tables}
    options = Options(routing=routing, units=units)
    return LocalRun(parse(QUERY.format(load.window_us), specs), tables, options, cores=units)


@contextmanager
def time_watching() -> Iterator[list[float]]:
    """The seconds of every call of what watches, while the context is open. By the wall clock; the thread's CPU clock tells of several times as much, and why is not known."""
    spent: list[float] = []
    watches = ((JoinUnits, "_watch"), (Balance, "settle"))
    plain = [getattr(owner, name) for owner, name in watches]

    def measure(called: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return called(*args, **named)
            finally:
                spent.append(time.perf_counter() - began)

        return call

    try:
        for (owner, name), called in zip(watches, plain, strict=True):
            setattr(owner, name, measure(called))
        yield spent
    finally:
        for (owner, name), called in zip(watches, plain, strict=True):
            setattr(owner, name, called)


def _run(spark: Any, root: Path, load: Load, routing: str, units: int, name: str) -> Measured:
    frames = {}
    for stream in "ab":
        reader = spark.readStream.schema("id bigint, key bigint, ts timestamp").option("maxFilesPerTrigger", 1)
        frames[stream] = wm.Stream(reader.parquet(str(root / stream)), time="ts")
    query = wm.sql(QUERY.format(load.window_us), frames, routing=routing, units=units)
    handle = query.start(sink="noop", checkpoint=str(root / f"checkpoint-{name}"), trigger="availableNow")
    handle.await_termination()
    told = [figures.progress() for figures in handle._run.told]
    latest = handle._run.latest
    assert latest is not None
    skewed = [p for p in told if p.batch_id in load.skewed]
    steady = [p for p in told if 5 <= p.batch_id < load.batches // 3]
    return Measured(
        sum(p.results for p in told),
        sum(p.input_rows for p in skewed) / sum(p.seconds for p in skewed),
        sum(p.input_rows for p in skewed) / sum(_shortest(p.unit_seconds) for p in skewed),
        max(max(p.unit_rows.values()) * units / sum(p.unit_rows.values()) for p in skewed),
        sum(p.input_rows for p in steady) / sum(p.seconds for p in steady),
        max((len(hot["spread"]) for hot in latest.spread.get("next", ())), default=1),
    )


def _shortest(unit_seconds: dict[int, float]) -> float:
    """How long a batch takes on two cores at least."""
    return max(max(unit_seconds.values()), sum(unit_seconds.values()) / 2)
