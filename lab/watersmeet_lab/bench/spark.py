"""`watersmeet bench spark`: watersmeet and Spark's own stream-stream join on the same files and cores.

k streams (k = 2 or 3) are joined on an equal key, every pair within the window, with one and with five files per
trigger. Each trial is a fresh process; systems alternate inside a case, and with `repeat` the order turns.

Zipf keys (theta 0.9) multiply the results: 76 times uniform's for two streams, tens of thousands of times for three. At
the full size that would be 153 million and 10^11 results, and Spark's default provider scans a hot key's whole batch
for every row. So the zipf cases have a tenth of the rows, and the 3-way one a window of 100 ms: 14.6 and 1.0 million
results when 1,000,000 rows are asked for.

`join` asks for left outer joins, which Spark has, too, of two streams.

`shape` asks for settled runs instead, with both sinks if none is named: see `trials.settled`.

`growth` asks whether a long history slows a system down: ten times the rows and files, and rows/s after a tenth of them
against rows/s at the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.answer import Answer, Kind, answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.trials.measure import Case, Outcome, outcome
from watersmeet_lab.bench.trials.process import run_apart
from watersmeet_lab.bench.trials.report import Report
from watersmeet_lab.bench.trials.settled import SHAPES, Runs, render
from watersmeet_lab.bench.trials.systems import COMPARED, SYSTEMS, System
from watersmeet_lab.bench.trials.trial import SINKS, Sink, Trial

Law = Literal["uniform", "zipf", "both"]
Joins = Literal["inner", "left", "both"]

FILES = 20
WINDOW_US = 10_000_000
ZIPF_3WAY_WINDOW_US = 100_000
SEED = 1
_WARMUP = Dataset(rows=20_000, files=4, seed=2)


def run(
    rows: int = 1_000_000,
    ways: Sequence[int] | None = None,
    files_per_trigger: Sequence[int] | None = None,
    keys: Law = "both",
    systems: Sequence[System] = COMPARED,
    repeat: int = 1,
    json: Path | None = None,
    quick: bool = False,
    growth: bool = False,
    data: Path | None = None,
    join: Joins = "inner",
    sink: Sink = "noop",
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Generate, run, verify, report. `data` keeps the generated files for the next time; `say` hears of each step.

    By default 2-way and 3-way, with one and with five files per trigger. quick: 100,000 rows in 5 files, uniform keys, and
    by default 2-way with one file per trigger. growth: 10 times the rows and files.
    """
    if quick:
        rows, keys = min(rows, 100_000), "uniform"
    ways = ways or ((2,) if quick else (2, 3))
    files_per_trigger = files_per_trigger or ((1,) if quick else (1, 5))
    files = 5 if quick else FILES
    factor = 10 if growth else 1
    kinds: tuple[Kind, ...] = ("inner", "left") if join == "both" else (join,)
    cases = list(_cases(rows * factor, files * factor, ways, files_per_trigger, keys, kinds))
    report = Report(seed=SEED, machine=machine.describe(), growth=growth)
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as scratch:
        root = data or Path(scratch)
        for case in cases:
            for repetition in range(repeat):
                for system in _turn(systems, repetition):
                    report.outcomes.append(_try(case, system, repetition, root, sink, say))
                    if json:
                        report.write(json)
    return report


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=1000)] = 1_000_000,
    ways: Annotated[
        list[int] | None, typer.Option(help="How many streams: 2, 3. Repeatable. Default: both.", min=2, max=3)
    ] = None,
    files_per_trigger: Annotated[
        list[int] | None, typer.Option(help="Of 20 files each. Repeatable. Default: 1 and 5.", min=1, max=20)
    ] = None,
    keys: Annotated[Law, typer.Option(help="How keys are distributed.")] = "both",
    system: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(SYSTEMS)}. Repeatable. Default: all but connect.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Trials of each system per case, in turning order.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="About a minute: 2-way, 100,000 rows, uniform keys.")] = False,
    growth: Annotated[bool, typer.Option(help="Ten times the history: rows/s early against late.")] = False,
    data: Annotated[Path | None, typer.Option(help="Keep the generated streams in this folder.")] = None,
    join: Annotated[Joins, typer.Option(help="Inner joins, left outer joins of two streams, or both.")] = "inner",
    sink: Annotated[
        Sink | None,
        typer.Option(
            help="Where results go: nowhere, or to a folder of Parquet files. Default: noop, and both for settled runs."
        ),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help=f"Settled runs: {', '.join(SHAPES)}. Repeatable.")] = None,
    batches: Annotated[int, typer.Option(help="Micro-batches of a settled run.", min=9)] = 300,
    minutes: Annotated[
        float | None, typer.Option(help="A settled trial is stopped after so many minutes.", min=0.1)
    ] = None,
    into: Annotated[Path, typer.Option(help="Files of settled trials; what is there is not run again.")] = Path(
        "settled"
    ),
) -> None:
    """Rows per second of watersmeet against Spark's own stream-stream join, answers checked with DuckDB."""
    console = Console()
    if shape:
        _run_settled(
            console, shape, (sink,) if sink else SINKS, _choose_systems(system), repeat, batches, minutes, into, data
        )
        return
    with console.status("starting") as status:
        report = run(
            rows=rows,
            ways=ways,
            files_per_trigger=files_per_trigger,
            keys=keys,
            systems=_choose_systems(system),
            repeat=repeat,
            json=json,
            quick=quick,
            growth=growth,
            data=data,
            join=join,
            sink=sink or "noop",
            say=status.update,
        )
    console.print(report.render())
    if not report.right:
        raise typer.Exit(1)


def _run_settled(
    console: Console,
    shapes: Sequence[str],
    sinks: Sequence[Sink],
    systems: Sequence[System],
    repeat: int,
    batches: int,
    minutes: float | None,
    into: Path,
    data: Path | None,
) -> None:
    if unknown := set(shapes) - set(SHAPES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not among {', '.join(SHAPES)}", param_hint="--shape")
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as scratch, console.status("starting") as status:
        runs = Runs(shapes, sinks, systems, repeat, batches, into, data or Path(scratch), SEED, minutes)
        found = runs.run(status.update)
    console.print(render(found))
    if not all(one.is_right for one in found):
        raise typer.Exit(1)


def _choose_systems(names: Sequence[str] | None) -> Sequence[System]:
    if unknown := set(names or ()) - set(SYSTEMS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not among {', '.join(SYSTEMS)}", param_hint="--system")
    return [name for name in SYSTEMS if name in (names or COMPARED)]


def _cases(
    rows: int,
    files: int,
    ways: Sequence[int],
    files_per_trigger: Sequence[int],
    keys: Law,
    kinds: Sequence[Kind] = ("inner",),
) -> Iterator[Case]:
    for law, count, triggered in product(("uniform", "zipf") if keys == "both" else (keys,), ways, files_per_trigger):
        for kind in kinds if count == 2 else ("inner",) if "inner" in kinds else ():
            if law == "uniform":
                yield Case("uniform", count, rows, files, triggered, WINDOW_US, kind)
            else:
                window_us = WINDOW_US if count == 2 else ZIPF_3WAY_WINDOW_US
                yield Case("zipf", count, rows // 10, files, triggered, window_us, kind)


def _turn(systems: Sequence[System], repetition: int) -> list[System]:
    shift = repetition % len(systems)
    return [*systems[shift:], *systems[:shift]]


def _try(case: Case, system: System, repetition: int, root: Path, sink: Sink, say: Callable[[str], None]) -> Outcome:
    say(f"{case.title}: generating")
    folder = generate(Dataset(case.rows, case.files, case.keys, SEED), case.ways, root)
    warmup = generate(_WARMUP, case.ways, root)
    say(f"{case.title}: DuckDB's answer")
    expected = answer(folder, case.question)
    say(f"{case.title}: {system}, trial {repetition + 1}")
    paths = str(folder.absolute()), str(warmup.absolute())
    trial = Trial(system, case.question, case.files_per_trigger, *paths, sink=sink)
    with tempfile.TemporaryDirectory(prefix="watersmeet-trial-") as scratch:
        return observe(trial, case, repetition, Path(scratch), expected)


def observe(trial: Trial, case: Case, repetition: int, scratch: Path, expected: Answer) -> Outcome:
    """Run a trial in a process of its own."""
    seen, peak = run_apart("watersmeet_lab.bench.trials.trial", asdict(trial), f"{trial.system}, {case.title}", scratch)
    return outcome(case, trial.system, repetition, seen, expected, peak)
