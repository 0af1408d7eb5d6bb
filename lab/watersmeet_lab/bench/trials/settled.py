"""Settled runs: hundreds of micro-batches of one shape, of which the last third counts. `watersmeet bench spark --shape NAME`.

A JVM compiles for minutes: over 120 micro-batches the same query went from 220,000 to 318,000 rows/s. So a figure from the first 20 tells of warm-up. Every trial is
a process of its own, and leaves a file of its own; one whose file is there is not run again, so a run that was stopped goes on. `minutes` ends trials of slow systems
before their files end; their answers are those of the micro-batches that they have completed.

    100k    2-way, 100,000 rows a micro-batch       heavy   2-way, Zipf keys: some 70 results a row
    500k    2-way, 500,000 rows                     small   2-way, 2 x 1,000 rows
    3-way   150,000 rows

Invariant: no ratio is formed with a trial whose answer is not DuckDB's.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.table import Table

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.answer import Question, answer
from watersmeet_lab.bench.data import Dataset, Keys, generate
from watersmeet_lab.bench.trials.process import run_apart
from watersmeet_lab.bench.trials.systems import System
from watersmeet_lab.bench.trials.trial import Sink, Trial

WINDOW_US = 10_000_000
OURS = ("watersmeet", "rounds")


@dataclass(frozen=True)
class Shape:
    """What comes in a micro-batch."""

    ways: int
    rows: int
    """Of each stream."""
    keys: Keys = "uniform"


SHAPES = {
    "100k": Shape(2, 50_000),
    "500k": Shape(2, 250_000),
    "3-way": Shape(3, 50_000),
    "heavy": Shape(2, 5_000, "zipf"),
    "small": Shape(2, 1_000),
}


@dataclass(frozen=True)
class Settled:
    """What one trial showed."""

    shape: str
    sink: Sink
    system: str
    repetition: int
    is_right: bool
    rows: int
    """Of a micro-batch."""
    median_ms: float
    p95_ms: float
    workers_mb: float
    """RSS of the Python workers at its highest, in the first seconds."""
    settled_mb: float
    """The same in the last third."""
    jvm_mb: float

    @property
    def rows_per_s(self) -> float:
        return self.rows * 1000 / self.median_ms


def settle(durations: Sequence[float]) -> tuple[float, float]:
    """The median and the 95th percentile of the last third.

    >>> settle([900, 800, 700, 600, 500, 400, 100, 110, 300])
    (110, 300)
    """
    last = sorted(durations[len(durations) * 2 // 3 :])
    return statistics.median(last), last[min(len(last) - 1, int(0.95 * len(last)))]


@dataclass(frozen=True)
class Runs:
    """All trials of an invocation, and the folder that has their files."""

    shapes: Sequence[str]
    sinks: Sequence[Sink]
    systems: Sequence[str]
    repeat: int
    batches: int
    into: Path
    data: Path
    seed: int = 1
    minutes: float | None = None
    """A trial is stopped after so many."""

    def trials(self) -> Iterator[tuple[str, Sink, int, str]]:
        """Systems alternate, and the order turns from repetition to repetition."""
        for shape, sink, repetition in product(self.shapes, self.sinks, range(self.repeat)):
            shift = repetition % len(self.systems)
            for system in (*self.systems[shift:], *self.systems[:shift]):
                yield shape, sink, repetition, system

    def run(self, say: Callable[[str], None]) -> list[Settled]:
        self.into.mkdir(parents=True, exist_ok=True)
        out = []
        for shape, sink, repetition, system in self.trials():
            file = self.into / f"{shape}-{self.batches}{self._until}-{sink}-{system}-{repetition}.json"
            if not file.exists():
                say(f"{shape}, {sink} sink: {system}, trial {repetition + 1}")
                raw = self._try(shape, sink, system)
                part = file.with_suffix(".part")
                part.write_text(json.dumps(raw))
                part.rename(file)
            out.append(read_trial(json.loads(file.read_text()), repetition))
        return out

    @property
    def _until(self) -> str:
        return "" if self.minutes is None else f"-{self.minutes:g}min"

    def generate(self, shape: Shape) -> tuple[Path, Path]:
        """The folders of a shape's streams, and of those that systems warm up with."""
        dataset = Dataset(shape.rows * self.batches, self.batches, shape.keys, self.seed)
        warmup = Dataset(4 * shape.rows, 4, shape.keys, self.seed + 1)
        folder, other = (generate(one, shape.ways, self.data).absolute() for one in (dataset, warmup))
        return folder, other

    def _try(self, name: str, sink: Sink, system: str) -> dict[str, Any]:
        shape, question = SHAPES[name], Question(SHAPES[name].ways, WINDOW_US)
        folder, warmup = self.generate(shape)
        with tempfile.TemporaryDirectory(prefix="watersmeet-settled-") as scratch:
            trial = Trial(cast(System, system), question, 1, str(folder), str(warmup), sink=sink, minutes=self.minutes)
            seen, peak = run_apart(
                "watersmeet_lab.bench.trials.trial", asdict(trial), f"{system}, {name}", Path(scratch)
            )
        complete = min(self.batches, seen["complete"])
        expected = answer(folder, question, None if complete == self.batches else complete)
        batches = [
            (e["numInputRows"], e["durationMs"]["triggerExecution"]) for e in seen["progress"] if e["numInputRows"]
        ]
        return {
            "shape": name,
            "sink": sink,
            "system": system,
            "batches": batches,
            "answer": seen["answer"],
            "expected": asdict(expected),
            "workers_rss": peak.workers_rss,
            "workers_settled_rss": peak.workers_settled_rss,
            "jvm_rss": peak.jvm_rss,
            "machine": machine.describe(),
        }


def read_trial(raw: Mapping[str, Any], repetition: int) -> Settled:
    """Figures of what a trial's file says."""
    median_ms, p95_ms = settle([ms for _, ms in raw["batches"]])
    return Settled(
        raw["shape"],
        raw["sink"],
        raw["system"],
        repetition,
        raw["answer"] == raw["expected"],
        int(statistics.median(rows for rows, _ in raw["batches"])),
        median_ms,
        p95_ms,
        raw["workers_rss"] / 2**20,
        raw["workers_settled_rss"] / 2**20,
        raw["jvm_rss"] / 2**20,
    )


def render(found: Sequence[Settled]) -> RenderableType:
    """A table for each shape and sink; ratios are of medians over trials."""
    return Group(*(_table(shape, sink, found) for shape, sink in dict.fromkeys((s.shape, s.sink) for s in found)))


def _table(shape: str, sink: Sink, found: Sequence[Settled]) -> Table:
    of: dict[str, list[Settled]] = {}
    for one in found:
        if (one.shape, one.sink) == (shape, sink):
            of.setdefault(one.system, []).append(one)
    table = Table(title=f"{shape}, {sink} sink, the last third", title_justify="left")
    table.add_column("")
    for name in (
        "rows/s",
        "median ms",
        "p95 ms",
        *(f"{own} / it" for own in OURS),
        "workers MB",
        "at most",
        "JVM MB",
        "answers",
    ):
        table.add_column(name, justify="right")
    for system, trials in of.items():
        table.add_row(
            system,
            f"{middle(trials, 'rows_per_s'):,.0f}",
            f"{middle(trials, 'median_ms'):,.0f}",
            f"{middle(trials, 'p95_ms'):,.0f}",
            *(ratio(of.get(own, ()), trials) for own in OURS),
            f"{max(t.settled_mb for t in trials):,.0f}",
            f"{max(t.workers_mb for t in trials):,.0f}",
            f"{max(t.jvm_mb for t in trials):,.0f}",
            "right" if all(t.is_right for t in trials) else "[red]wrong",
        )
    return table


def middle(trials: Sequence[Settled], figure: str) -> float:
    """The median of a figure over trials."""
    return float(statistics.median(getattr(trial, figure) for trial in trials))


def ratio(ours: Sequence[Settled], theirs: Sequence[Settled]) -> str:
    """Our rows/s over theirs; nothing without right answers of both."""
    if not ours or ours is theirs or not all(t.is_right for t in (*ours, *theirs)):
        return ""
    return f"{middle(ours, 'rows_per_s') / middle(theirs, 'rows_per_s'):.2f}"
