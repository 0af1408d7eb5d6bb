"""`watersmeet bench theta`: a join without an equality against the equality join, on the same files.

Two streams of the spine's benchmark are joined on equal keys, and on keys at most one apart, which has three times the
results. Each trial is a fresh process; conditions and runtimes alternate; every answer is checked with DuckDB. Spark's own
stream-stream join is not here: it refuses a join without an equality.
"""

from __future__ import annotations

import json as json_format
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.answer import Condition, answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.spark import FILES, SEED, WINDOW_US, observe
from watersmeet_lab.bench.trials.measure import Case, Outcome
from watersmeet_lab.bench.trials.systems import System
from watersmeet_lab.bench.trials.trial import Trial

RUNTIMES: tuple[System, ...] = ("watersmeet", "rounds")
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
Found = dict[tuple[System, Condition], list[Outcome]]


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=1000)] = 1_000_000,
    files_per_trigger: Annotated[int, typer.Option(help="Of 20 files each.", min=1, max=20)] = 1,
    repeat: Annotated[int, typer.Option(help="Trials of each, in turn.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Keep the generated streams in this folder.")] = None,
) -> None:
    """Rows per second of a band join against the equality join on the same files, on both runtimes."""
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
            for condition in CONDITIONS:
                say(f"{system}, {condition}, trial {repetition + 1}")
                expected = answer(folder, 2, case.window_us, condition)
                paths = str(folder.absolute()), str(warmup.absolute())
                trial = Trial(system, 2, case.files_per_trigger, case.window_us, *paths, condition=condition)
                with tempfile.TemporaryDirectory(prefix="watersmeet-trial-") as scratch:
                    seen = observe(trial, case, repetition, Path(scratch), expected)
                found.setdefault((system, condition), []).append(seen)
    return found


def _steady(outcomes: list[Outcome]) -> float:
    return statistics.median(o.steady for o in outcomes)


def _show(console: Console, case: Case, found: Found) -> None:
    table = Table(title=case.title, title_justify="left")
    for column in ("", *("dataframe()" if r == "watersmeet" else "start()" for r in RUNTIMES)):
        table.add_column(column, justify="right" if column else "left")
    for condition, name in zip(CONDITIONS, ("equal keys", "keys at most 1 apart"), strict=True):
        table.add_row(f"{name}: rows/s, steady", *(f"{_steady(found[r, condition]):,.0f}" for r in RUNTIMES))
        table.add_row(f"{name}: results", *(f"{found[r, condition][0].answer.count:,}" for r in RUNTIMES))
    ratios = [_steady(found[r, "band"]) / _steady(found[r, "equal"]) for r in RUNTIMES]
    table.add_row("band / equal", *(f"{ratio:.2f}" for ratio in ratios))
    right = {r: all(o.right for c in CONDITIONS for o in found[r, c]) for r in RUNTIMES}
    table.add_row("answers are DuckDB's", *("yes" if right[r] else "NO" for r in RUNTIMES))
    console.print(table)


def _raw(case: Case, found: Found) -> dict[str, object]:
    trials = [
        {"system": s, "condition": c, "steady": o.steady, "total": o.total, "right": o.right, "count": o.answer.count}
        for (s, c), outcomes in found.items()
        for o in outcomes
    ]
    return {"case": case.title, "seed": SEED, "machine": machine.describe(), "trials": trials}
