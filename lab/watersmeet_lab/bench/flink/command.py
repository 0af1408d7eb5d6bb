"""`watersmeet bench flink`: `start()` and Flink's interval join on the same files and cores, in one run.

Flink comes from PyPI, into a virtualenv that the command makes (`install`). Shapes, sinks, files of trials and the table are those of `watersmeet bench spark --shape`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from watersmeet_lab.bench.data import default_folder
from watersmeet_lab.bench.flink.install import FLINK, InstallError, install
from watersmeet_lab.bench.flink.runs import SYSTEMS, FlinkRuns
from watersmeet_lab.bench.trials.settled import SHAPES, render

ALL = ("rounds", *SYSTEMS)


def command(
    shape: Annotated[list[str] | None, typer.Option(help=f"{', '.join(SHAPES)}. Repeatable. Default: 100k.")] = None,
    system: Annotated[list[str] | None, typer.Option(help=f"{', '.join(ALL)}. Repeatable. Default: all.")] = None,
    sink: Annotated[list[str] | None, typer.Option(help="noop, parquet. Repeatable. Default: both.")] = None,
    repeat: Annotated[int, typer.Option(help="Trials of each system, in turning order.", min=1)] = 1,
    batches: Annotated[int, typer.Option(help="Micro-batches of a run; Flink reads as many rows.", min=9)] = 300,
    into: Annotated[Path, typer.Option(help="Files of trials; what is there is not run again.")] = Path("settled"),
    data: Annotated[Path | None, typer.Option(help="Keep the generated streams in this folder.")] = None,
    environment: Annotated[
        Path | None, typer.Option(help="The virtualenv of Flink.", show_default="in the cache")
    ] = None,
) -> None:
    """Rows per second of start() against Flink's interval join, in heap and with RocksDB, answers checked with DuckDB."""
    shapes, systems = _choose("shape", shape or ["100k"], [*SHAPES]), _choose("system", system or [*ALL], [*ALL])
    sinks = _choose("sink", sink or ["noop", "parquet"], ["noop", "parquet"])
    console = Console()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as scratch, console.status("starting") as status:
        try:
            python = install(environment or default_folder() / f"flink-{FLINK}", status.update)
        except InstallError as error:
            console.print(f"[bold red]{error}")
            raise typer.Exit(2) from error
        runs = FlinkRuns(shapes, sinks, systems, repeat, batches, into, data or Path(scratch), python=python)  # type: ignore[arg-type]
        found = runs.run(status.update)
    console.print(render(found))
    if not all(one.is_right for one in found):
        raise typer.Exit(1)


def _choose(option: str, given: list[str], known: list[str]) -> list[str]:
    if unknown := set(given) - set(known):
        raise typer.BadParameter(
            f"{', '.join(sorted(unknown))}: not among {', '.join(known)}", param_hint=f"--{option}"
        )
    return [name for name in known if name in given]
