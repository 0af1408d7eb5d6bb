"""What `bench nexmark` found: figures of a trial, and one table for all queries.

A ratio is the median of `start()` over the better of Spark's stores, and is formed only of right answers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.memory import Peak
from watersmeet_lab.bench.nexmark.answers import Comparison
from watersmeet_lab.bench.nexmark.queries import QUERIES
from watersmeet_lab.bench.trials.measure import Batch, steady
from watersmeet_lab.bench.trials.systems import System

TITLES: Mapping[System, str] = {
    "watersmeet": "dataframe()",
    "rounds": "start()",
    "spark-rocksdb": "Spark, RocksDB",
    "spark-default": "Spark, default store",
}
_FEW = 20
"""Rows of a micro-batch that has read closing files only, or nothing, are fewer."""


@dataclass(frozen=True)
class NexmarkOutcome:
    """What one trial showed."""

    query: str
    system: System
    repetition: int
    comparison: Comparison
    steady: float
    total: float
    wall_s: float
    peak: Peak


def measure(seen: Mapping[str, Any], rows: int) -> tuple[float, float]:
    """Rows per second in the middle of a run, and over all of it. Spark counts a stream that is read twice as two, so `rows` says how many there are.

    >>> batch = {"numInputRows": 50, "durationMs": {"triggerExecution": 500}}
    >>> measure({"wall_s": 2.0, "progress": [batch, batch, {**batch, "numInputRows": 2}]}, 60)
    (60.0, 30.0)
    """
    full = [event for event in seen["progress"] if event["numInputRows"] >= _FEW]
    batches = [Batch(rows // len(full), event["durationMs"]["triggerExecution"]) for event in full]
    return steady(batches), rows / seen["wall_s"]


def render(found: Sequence[NexmarkOutcome], events: int) -> RenderableType:
    """One table, why Spark's cells are empty, and what was run where."""
    systems = [system for system in TITLES if any(outcome.system == system for outcome in found)]
    table = Table(title=f"Nexmark, {events:,} events: rows/s, steady", title_justify="left", title_style="bold")
    for column in ("query", "results", *(TITLES[system] for system in systems), "start() / Spark", "as DuckDB"):
        table.add_column(column, justify="left" if column == "query" else "right")
    names = list(dict.fromkeys(outcome.query for outcome in found))
    for name in names:
        table.add_row(*_cells(name, [outcome for outcome in found if outcome.query == name], systems))
    where = machine.describe()
    lines = [f"{name}: Spark has no such query: {QUERIES[name].refusal}." for name in names if QUERIES[name].refusal]
    lines.append(f"{where['cores']} cores, {where['processor']}, {where['memory']}; commit {where['commit']}")
    return Group(table, *(Text(line, style="dim") for line in lines))


def _cells(name: str, outcomes: Sequence[NexmarkOutcome], systems: Sequence[System]) -> list[str]:
    rates = {system: _steady([outcome for outcome in outcomes if outcome.system == system]) for system in systems}
    peers = [rate for system, rate in rates.items() if system.startswith("spark") and rate]
    ours = rates.get("rounds")
    return [
        f"{name} {QUERIES[name].title}",
        f"{outcomes[-1].comparison.expected:,}",
        *("" if rate is None else f"{rate:,.0f}" for rate in rates.values()),
        f"{ours / max(peers):.2f}" if ours and peers else "",
        "yes" if all(outcome.comparison.right for outcome in outcomes) else "[red]NO[/]",
    ]


def _steady(outcomes: Sequence[NexmarkOutcome]) -> float | None:
    """The median, if all answers are right."""
    if not outcomes or not all(outcome.comparison.right for outcome in outcomes):
        return None
    return statistics.median(outcome.steady for outcome in outcomes)
