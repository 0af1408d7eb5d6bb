"""How a reproduction is run and shown, whichever paper it is of: progress, JSON, the table, figures.

Invariant: the file is written before anything is printed or drawn, so a plot that fails loses no figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from watersmeet.cli.failure import reported
from watersmeet.reproduce.plot import draw
from watersmeet.reproduce.report import Reproduction

Json = Annotated[Path | None, typer.Option(help="Write everything to this file.")]
Plots = Annotated[Path | None, typer.Option(help="Draw the figures into this folder (needs matplotlib).")]


def show(reproduce: Callable[[Callable[[str], None]], Reproduction], json: Path | None, plots: Path | None) -> None:
    """Run it, saying what it is at, and show what was found."""
    console = Console()
    with reported():
        with console.status("starting") as status:
            found = reproduce(status.update)
        if json:
            found.write(json)
        console.print(found.render())
        if plots:
            for path in draw((p for c in found.claims for p in c.plots), plots):
                console.print(f"drew {path}", highlight=False, soft_wrap=True)
