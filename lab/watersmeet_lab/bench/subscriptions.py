"""`watersmeet bench subscriptions`: many registered queries over the same streams, on Spark, and the same queries as jobs of their own.

The workload of Idreos, Liarou, Koubarakis (2008), section 8 (`registered.workload`). Departs from the paper: queries have a
window. Without one, 1,000 tuples and 20,000 queries are expected to have 120 million answers, and what is measured is how
fast they are written.

Every run has a process of its own, and a warm-up in it. The number of separate jobs is doubled until a run fails or exceeds
a limit of time or memory. The answers of some queries are checked with DuckDB, as a count and a sum, before a figure is shown.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.registered.by_units import UnitsOutcome, compare, find_winner, show_units
from watersmeet_lab.bench.registered.systems import CHECKED, SYSTEMS, Outcome
from watersmeet_lab.bench.registered.trial import Trial, run
from watersmeet_lab.bench.registered.workload import write

MOST_JOBS = 1024


def command(
    sizes: Annotated[str, typer.Option(help="Numbers of registered queries.")] = "200,2000,20000",
    batches: Annotated[int, typer.Option(help="Micro-batches of each run.", min=4)] = 8,
    rows: Annotated[int, typer.Option(help="Tuples of a micro-batch, of all relations together.", min=100)] = 5_000,
    window: Annotated[int, typer.Option(help="Milliseconds; there are 1,000 tuples per second.", min=1)] = 50,
    jobs: Annotated[
        str, typer.Option(help="Numbers of queries that run as jobs of their own; 'auto' doubles until a limit is met.")
    ] = "auto",
    systems: Annotated[str, typer.Option(help=f"Of {', '.join(SYSTEMS)}.")] = ",".join(SYSTEMS),
    seconds: Annotated[float, typer.Option(help="The longest run, from the first start.", min=1)] = 180,
    memory: Annotated[float, typer.Option(help="GB of memory of JVM, workers and driver that a run may take.")] = 12,
    units: Annotated[
        str,
        typer.Option(
            help="Numbers of units, as 1,8,64: compare the shared plan with RJoin in process, by CPU time of units.",
            show_default=False,
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
    seed: Annotated[int, typer.Option(help="Of queries and tuples.")] = 1,
    raw: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
) -> None:
    """Tuples/s, memory and state of registered 4-way queries, and of the same queries as separate jobs."""
    named = [name for name in systems.split(",") if name]
    if unknown := set(named) - set(SYSTEMS):
        raise typer.BadParameter(
            f"{', '.join(sorted(unknown))}: not among {', '.join(SYSTEMS)}", param_hint="--systems"
        )
    if quick:
        sizes, jobs, rows = "20,200", "1,2", 1_000
    console = Console()
    if units:
        _compare_units(console, _numbers(units), _numbers(sizes), batches, rows, window, seed, raw)
        return
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        write(Path(scratch), batches, rows, seed)

        def try_count(system: str, count: int) -> Outcome:
            status.update(f"{system}, {count:,} queries")
            return run(Trial(system, count, scratch, window, batches, rows, seed, seconds, memory))

        for name in named:
            counts = jobs if SYSTEMS[name].apart else sizes
            found += (
                _double_jobs(name, try_count)
                if counts == "auto"
                else [try_count(name, int(n)) for n in counts.split(",") if n]
            )
    _show(console, found, batches * rows)
    if raw is not None:
        limits = {"seconds": seconds, "memory_gb": memory}
        said = {"seed": seed, "machine": describe(), "rows": rows, "batches": batches, "window_ms": window, **limits}
        raw.write_text(json.dumps({**said, "runs": [asdict(o) for o in found]}))
    if any(o.right is False for o in found):
        raise typer.Exit(1)


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _compare_units(
    console: Console, units: list[int], sizes: list[int], batches: int, rows: int, window: int, seed: int, raw: Path | None,
) -> None:  # fmt: skip
    """Both engines in process, by units."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        write(Path(scratch), batches, rows, seed)
        found: list[UnitsOutcome] = []
        for outcome in compare(Path(scratch), units, sizes, batches, window, seed):
            found.append(outcome)
            status.update(f"{outcome.queries:,} queries, {outcome.units} units: {outcome.engine} is done")
    console.print(show_units(found))
    console.print(find_winner(found), highlight=False, soft_wrap=True)
    if raw is not None:
        said = {"seed": seed, "machine": describe(), "rows": rows, "batches": batches, "window_ms": window}
        raw.write_text(json.dumps({**said, "winner": find_winner(found), "runs": [asdict(o) for o in found]}))


def _double_jobs(system: str, try_count: Callable[[str, int], Outcome]) -> Iterator[Outcome]:
    """1, 2, 4, ... jobs, up to the first run that a limit stops or that fails."""
    count = 1
    while count <= MOST_JOBS:
        outcome = try_count(system, count)
        yield outcome
        if outcome.stopped:
            return
        count *= 2


def _show(console: Console, runs: Sequence[Outcome], tuples: int) -> None:
    title = f"4-way queries over 10 relations, {tuples:,} tuples; answers of {CHECKED} queries of each run checked"
    table = Table(
        "", "queries", "tuples/s", "answers", "GB", "state", "add ms", "first s", "",
        title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
        caption="GB: JVM, workers and driver. state: rows. add: to register one, or to start it. first: micro-batch.",
        caption_justify="left",
    )  # fmt: skip
    table.columns[0].no_wrap = True
    for column in table.columns[1:-1]:
        column.justify, column.no_wrap = "right", True
    for o in runs:
        table.add_row(
            o.system, f"{o.queries:,}", _figure(o.rate), _figure(o.answers), f"{o.memory_bytes / 1e9:.1f}",
            f"{o.state_rows:,}", f"{o.adding_ms:,.1f}", f"{o.first_seconds:,.1f}",
            o.stopped or ("right" if o.right else "[red]wrong[/]"),
        )  # fmt: skip
    console.print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value else "-"
