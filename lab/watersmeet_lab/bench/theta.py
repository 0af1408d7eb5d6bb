"""`watersmeet bench theta`: a join without an equality against the equality join, on the same files.

Two streams of the spine's benchmark are joined on equal keys, and on keys at most one apart, which has three times the
results; and an anti join asks which tuples have nobody at most one apart. Each trial is a fresh process; joins and runtimes alternate; every
answer is checked with DuckDB. Spark's own stream-stream join is not here: it refuses a join without an equality.
"""

from __future__ import annotations

import json as json_format
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.answer import Condition, Kind, answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.spark import FILES, SEED, WINDOW_US, observe
from watersmeet_lab.bench.trials.measure import Case, Outcome
from watersmeet_lab.bench.trials.systems import System
from watersmeet_lab.bench.trials.trial import Trial

RUNTIMES: tuple[System, ...] = ("watersmeet", "rounds")
JOINS: dict[str, tuple[Condition, Kind]] = {
    "equal keys": ("equal", "inner"),
    "keys at most 1 apart": ("band", "inner"),
    "none at most 1 apart": ("band", "anti"),
}
Found = dict[tuple[System, str], list[Outcome]]
"""Outcomes by system and join."""


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=1000)] = 1_000_000,
    files_per_trigger: Annotated[int, typer.Option(help="Of 20 files each.", min=1, max=20)] = 1,
    repeat: Annotated[int, typer.Option(help="Trials of each, in turn.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Keep the generated streams in this folder.")] = None,
) -> None:
    """Rows per second of a band join and an anti join against the equality join on the same files, on both runtimes."""
    console = Console()
    case = Case("uniform", 2, rows, FILES, files_per_trigger, WINDOW_US)
    with console.status("starting") as status, tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as scratch:
        found = run(case, repeat, data or Path(scratch), status.update)
    _show(console, case, found)
    if json:
        json.write_text(json_format.dumps(_raw(case, found), indent=1))
    if not all(o.right for outcomes in found.values() for o in outcomes):
        raise typer.Exit(1)


def run(case: Case, repeat: int, root: Path, say: Callable[[str], None]) -> Found:
    """All trials of a case."""
    folder = generate(Dataset(case.rows, case.files, case.keys, SEED), 2, root)
    warmup = generate(Dataset(rows=20_000, files=4, seed=2), 2, root)
    found: Found = {}
    for repetition in range(repeat):
        for system in RUNTIMES:
            for name, (condition, kind) in JOINS.items():
                say(f"{system}, {name}, trial {repetition + 1}")
                asked = replace(case, kind=kind)
                question = replace(asked.question, condition=condition)
                expected = answer(folder, question)
                trial = Trial(system, question, case.files_per_trigger, str(folder.absolute()), str(warmup.absolute()))
                with tempfile.TemporaryDirectory(prefix="watersmeet-trial-") as scratch:
                    seen = observe(trial, asked, repetition, Path(scratch), expected)
                found.setdefault((system, name), []).append(seen)
    return found


def _steady(outcomes: list[Outcome]) -> float:
    return statistics.median(o.steady for o in outcomes)


def _show(console: Console, case: Case, found: Found) -> None:
    table = Table(title=case.title, title_justify="left")
    for column in ("", *("dataframe()" if r == "watersmeet" else "start()" for r in RUNTIMES)):
        table.add_column(column, justify="right" if column else "left")
    for name in JOINS:
        table.add_row(f"{name}: rows/s, steady", *(f"{_steady(found[r, name]):,.0f}" for r in RUNTIMES))
        table.add_row(f"{name}: results", *(f"{found[r, name][0].answer.count:,}" for r in RUNTIMES))
    equal, band, anti = JOINS
    for title, ours, other in (("band / equal", band, equal), ("anti / inner, band", anti, band)):
        table.add_row(title, *(f"{_steady(found[r, ours]) / _steady(found[r, other]):.2f}" for r in RUNTIMES))
    right = {r: all(o.right for name in JOINS for o in found[r, name]) for r in RUNTIMES}
    table.add_row("answers are DuckDB's", *("yes" if right[r] else "NO" for r in RUNTIMES))
    console.print(table)


def _raw(case: Case, found: Found) -> dict[str, object]:
    trials = [
        {"system": s, "join": name, "steady": o.steady, "total": o.total, "right": o.right, "count": o.answer.count}
        for (s, name), outcomes in found.items()
        for o in outcomes
    ]
    return {"case": case.title, "seed": SEED, "machine": machine.describe(), "trials": trials}
