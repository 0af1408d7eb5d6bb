"""`watersmeet bench drivers`: what `driver=` is worth in the engine, on the paper's data sets I to VI and on Nexmark's join of three streams.

Everything runs in process, in batches of time, so that bursty streams burst: 100 batches of 0.1M time units and 10 of 1M for the paper's data, which join by a common attribute over their full history. The policies take turns, and the figure
is the least CPU time of a run over that of `auto`. Every answer, count and checksum, must be `auto`'s. `--spark` runs the paper's data under `start()` (`drivers.on_spark`).
"""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.drivers.data import DATASETS, TIME_UNITS, Dataset
from watersmeet_lab.bench.drivers.on_spark import OnSpark, measure_on_spark, show_on_spark
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.sweep import answer

SEED = 1
POLICIES = ("auto", "initial_output_size", "output_rate", "consumption_rate", "round_robin", "timestamp")
TEXT = "SELECT a.ts AS x, b.ts AS y, c.ts AS z FROM s a, t b, u c WHERE a.k = b.k AND b.k = c.k"
NEXMARK = "SELECT b.date_time AS x, p.id AS y, a.id AS z FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder"
"""Bids of people who sell: Nexmark's q23, less the columns that no join needs."""
NEXMARK_BATCHES = (100, 10)


@dataclass(frozen=True)
class Workload:
    """A query, its tables, and how long a batch is."""

    name: str
    text: str
    batch_s: float
    batches: int
    tables: Mapping[str, Any] = field(repr=False)


@dataclass
class Drove:
    """What the policies took on a workload, in CPU seconds."""

    name: str
    results: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, policy: str) -> float:
        return min(self.seconds[policy]) / min(self.seconds["auto"])


def command(
    repeat: Annotated[int, typer.Option(help="Runs of each policy.", min=1)] = 3,
    scale: Annotated[int, typer.Option(help="One in so many of the paper's tuples.", min=1)] = 10,
    only: Annotated[str | None, typer.Option(help="Workloads whose names contain this.")] = None,
    events: Annotated[Path | None, typer.Option(help="A folder of events that bench nexmark has made.")] = None,
    spark: Annotated[bool, typer.Option(help="The paper's data under start().")] = False,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
) -> None:
    """CPU time of every driver= over that of auto; every answer checked."""
    console, found = Console(), list[Drove | OnSpark]()
    workloads = [*list_paper(scale), *(list_nexmark(events) if events is not None else ())]
    workloads = [w for w in workloads if only is None or only in w.name]
    if spark:
        cases = [(w.name, w.text, w.tables, round(w.batch_s * 1e6), w.batches) for w in workloads if w.text == TEXT]
        on_spark = measure_on_spark(cases, POLICIES, repeat)
        found += on_spark
        console.print(show_on_spark(on_spark, POLICIES))
    else:
        with console.status("") as status:
            for workload in workloads:
                status.update(workload.name)
                found.append(measure(workload, repeat))
        console.print(_table([drove for drove in found if isinstance(drove, Drove)]))
    if json is not None:
        raw = {"seed": SEED, "scale": scale, "machine": describe(), "workloads": [asdict(f) for f in found]}
        json.write_text(json_format.dumps(raw, indent=1))


def list_paper(scale: int) -> Iterator[Workload]:
    """The paper's data sets, each in short batches and in long ones."""
    for dataset in DATASETS:
        tables = make_tables(dataset, scale)
        for batches in dataset.batches:
            yield Workload(f"{dataset.name}, {batches} batches", TEXT, TIME_UNITS / batches / 1e6, batches, tables)


def make_tables(dataset: Dataset, scale: int) -> dict[str, pa.Table]:
    """A data set's streams; a time unit is a microsecond."""
    drawn = zip(*dataset.generate(SEED, scale), strict=True)
    stamp = pa.timestamp("us", tz="UTC")
    made = [pa.table({"k": keys, "ts": pa.array(times + START_US, stamp)}) for keys, times in drawn]
    return dict(zip("stu", made, strict=True))


def list_nexmark(folder: Path) -> Iterator[Workload]:
    """The events of a folder, in short batches and in long ones."""
    read = {name: pq.read_table(folder / name) for name in ("bid", "person", "auction")}
    tables = {name: t.filter(pc.greater_equal(t.column(0), 0)) for name, t in read.items()}  # without those that close
    times = [table.column("date_time").cast(pa.int64()).to_numpy() for table in tables.values()]
    seconds = (max(t.max() for t in times) - min(t.min() for t in times)) / 1e6
    given = {name: wm.Stream(table, time="date_time", lateness="4 seconds") for name, table in tables.items()}
    for batches in NEXMARK_BATCHES:
        yield Workload(f"nexmark q23, {batches} batches", NEXMARK, seconds / batches, batches, given)


def measure(workload: Workload, repeat: int, policies: Sequence[str] = POLICIES) -> Drove:
    """Check all answers, then time the policies in turn."""

    def run(policy: str) -> tuple[pa.Table, float]:
        began, chosen = time.process_time(), dict[str, Any]({"driver": policy})
        found = wm.local.run(workload.text, workload.tables, batch_time=timedelta(seconds=workload.batch_s), **chosen)
        return found, time.process_time() - began

    right = run("auto")[0]  # compiles
    out = Drove(workload.name, right.num_rows)
    for number in range(repeat):
        for policy in policies:
            found, seconds = run(policy)
            if number == 0 and answer(found) != answer(right):
                raise SystemExit(f"{workload.name}: {policy} and auto differ, so there is nothing to time")
            out.seconds.setdefault(policy, []).append(seconds)
    return out


def _table(found: Sequence[Drove]) -> Table:
    table = Table(title="CPU time over that of auto", title_justify="left")
    for column in ("workload", "results", "auto, s", *(policy.replace("_", " ") for policy in POLICIES[1:])):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for drove in found:
        ratios = [f"{drove.ratio(policy):.2f}" for policy in POLICIES[1:]]
        table.add_row(drove.name, f"{drove.results:,}", f"{min(drove.seconds['auto']):.2f}", *ratios)
    return table
