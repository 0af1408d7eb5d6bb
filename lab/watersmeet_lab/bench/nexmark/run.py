"""`watersmeet bench nexmark`: Nexmark's joins on both runtimes, and on Spark's own streaming where it can run them.

Each trial is a fresh process; systems alternate inside a query, and with `repeat` the order turns. All of them read the same files,
one of each stream per micro-batch, and write Parquet. Results are compared with DuckDB's as bags before a time is believed.

Figures are rows that the query reads, of all its streams, over time: of a micro-batch (steady: the median of the last half), and of all.
"""

from __future__ import annotations

import json as json_format
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pyarrow.parquet as pq
import typer
from rich.console import Console

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.data import default_folder
from watersmeet_lab.bench.nexmark.answers import answer, compare
from watersmeet_lab.bench.nexmark.events import CLOSINGS, Events, generate
from watersmeet_lab.bench.nexmark.generator import VERSION
from watersmeet_lab.bench.nexmark.queries import QUERIES, NexmarkQuery
from watersmeet_lab.bench.nexmark.report import NexmarkOutcome, measure, render
from watersmeet_lab.bench.nexmark.trial import ROWS, Trial
from watersmeet_lab.bench.trials.process import run_apart
from watersmeet_lab.bench.trials.systems import COMPARED, System

Name = TypeVar("Name", bound=str)
_WARMUP = Events(count=20_000, files=2)


def command(
    events: Annotated[int, typer.Option(help="How many; 10,000 are a second.", min=1000)] = 500_000,
    files: Annotated[int, typer.Option(help="Of each stream; one is a micro-batch.", min=2)] = 10,
    query: Annotated[list[str] | None, typer.Option(help=f"{', '.join(QUERIES)}. Repeatable. Default: all.")] = None,
    system: Annotated[list[str] | None, typer.Option(help=f"{', '.join(COMPARED)}. Repeatable. Default: all.")] = None,
    repeat: Annotated[int, typer.Option(help="Trials of each system per query, in turning order.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Keep generator and events in this folder.")] = None,
) -> None:
    """Rows per second of Nexmark's joins, on watersmeet and on Spark's own streaming, answers checked with DuckDB."""
    console = Console()
    with console.status("starting") as status:
        found = run(
            Events(events, files),
            [QUERIES[name] for name in _choose(query, tuple(QUERIES), "--query")],
            _choose(system, COMPARED, "--system"),
            repeat,
            data or default_folder(),
            json,
            status.update,
        )
    console.print(render(found, events))
    if not all(outcome.comparison.right for outcome in found):
        raise typer.Exit(1)


def run(
    events: Events,
    queries: Sequence[NexmarkQuery],
    systems: Sequence[System],
    repeat: int,
    root: Path,
    json: Path | None,
    say: Callable[[str], None],
) -> list[NexmarkOutcome]:
    """Generate, run, verify."""
    folder, warmup = generate(events, root, say), generate(_WARMUP, root, say)
    found: list[NexmarkOutcome] = []
    where = machine.describe()
    for query in queries:
        for repetition in range(repeat):
            shift = repetition % len(systems)
            for system in (*systems[shift:], *systems[:shift]):
                if query.spark or not system.startswith("spark"):
                    say(f"{query.name}: {system}, trial {repetition + 1}")
                    trial = Trial(system, query.name, str(folder.absolute()), str(warmup.absolute()))
                    found.append(_observe(trial, query, folder, repetition))
                    if json:
                        _write_raw(json, events, where, found)
    return found


def _observe(trial: Trial, query: NexmarkQuery, folder: Path, repetition: int) -> NexmarkOutcome:
    with tempfile.TemporaryDirectory(prefix="watersmeet-trial-") as scratch:
        title = f"{trial.system}, {query.name}"
        seen, peak = run_apart("watersmeet_lab.bench.nexmark.trial", asdict(trial), title, Path(scratch))
        compared = compare(Path(scratch) / "measured" / ROWS, answer(query, folder))
    steady, total = measure(seen, _count_rows(query, folder))
    return NexmarkOutcome(query.name, trial.system, repetition, compared, steady, total, seen["wall_s"], peak)


def _count_rows(query: NexmarkQuery, folder: Path) -> int:
    """Rows of the streams that a query reads, closing ones left out."""
    files = (file for stream in query.reads for file in sorted((folder / stream).glob("part-*.parquet"))[:-CLOSINGS])
    return sum(pq.read_metadata(file).num_rows for file in files)


def _choose(names: Sequence[str] | None, known: Sequence[Name], option: str) -> list[Name]:
    if unknown := set(names or ()) - set(known):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not among {', '.join(known)}", param_hint=option)
    return [name for name in known if not names or name in names]


def _write_raw(path: Path, events: Events, where: Mapping[str, Any], found: Sequence[NexmarkOutcome]) -> None:
    raw = {
        "generator": VERSION,
        "events": asdict(events),
        "machine": where,
        "outcomes": [{**asdict(outcome), "right": outcome.comparison.right} for outcome in found],
    }
    path.write_text(json_format.dumps(raw, indent=1))
