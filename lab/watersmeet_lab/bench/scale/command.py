"""`watersmeet bench scale`: what a micro-batch costs by its rows, units, payload and state, and how far the formula that follows holds.

The formula is fitted to batches of 1 to 16 units. Then batches of up to 1,000 units are run, too, and compared with it: they are run on this machine's cores, which
play all units, so their cost is that of the work and of the driver, not of the network.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from watersmeet.runtime.spark.session import available_cores
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.scale.formula import Formula, extrapolate, fit
from watersmeet_lab.bench.scale.points import Cost, Point, read_costs
from watersmeet_lab.bench.trials.process import run_apart

BASE = Point(20_000, 4, 100, 10)
FITTED = (
    *(Point(rows, 4, 100, 10) for rows in (1_000, 5_000, 20_000, 100_000, 250_000)),
    *(Point(20_000, units, 100, 10) for units in (1, 2, 8, 16)),
    *(Point(100_000, units, 100, 10) for units in (1, 16)),
    *(Point(20_000, 4, payload, 10) for payload in (1, 1_000)),
    Point(100_000, 4, 1_000, 10),
    *(Point(20_000, 4, 100, window_s) for window_s in (1, 60)),
    Point(100_000, 4, 100, 60),
)
FAR = tuple(Point(100_000, units, 100, 10, 10) for units in (64, 256, 1_000))
QUICK = (*(Point(rows, 2, 100, 10, 8) for rows in (1_000, 20_000)), Point(20_000, 8, 100, 10, 8))
PREDICTED = ((16, 16), (100, 100), (1_000, 100), (1_000, 1_000))
"""Units, and cores that they run on."""


def command(
    json_: Annotated[Path | None, typer.Option("--json", help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A few points only; about a minute.")] = False,
) -> None:
    """What a micro-batch of start() costs by rows, units, payload and state, as a fitted formula, and where it ends."""
    console = Console()
    near, far = (QUICK, ()) if quick else (FITTED, FAR)
    with tempfile.TemporaryDirectory(prefix="watersmeet-scale-") as scratch, console.status("measuring"):
        spec = {"points": [asdict(p) for p in (*near, *far)], "cores": available_cores(), "conf": {}}
        raw, _ = run_apart("watersmeet_lab.bench.scale.points", spec, "scale", Path(scratch))
    costs = read_costs(raw)  # type: ignore[arg-type]
    if json_ is not None:
        json_.write_text(json.dumps({"costs": raw, "machine": describe()}))
    show(console, costs[: len(near)], costs[len(near) :])


def show(console: Console, near: Sequence[Cost], far: Sequence[Cost]) -> None:
    """Print what was measured, the formula, and what it says of more units and cores."""
    total, driver = fit(near, lambda c: c.seconds), fit(near, lambda c: c.driver_s)
    console.print(_costs(near, total, "what the formula is fitted to"))
    if far:
        console.print(_costs(far, total, "beyond: measured here, and by the formula"))
    console.print(_coefficients(total, driver))
    if far:
        everything = fit([*near, *far], lambda c: c.driver_s)
        console.print(_predict(total, everything, max(near, key=lambda c: c.input_rows)))


def _costs(costs: Sequence[Cost], formula: Formula, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("rows", "units", "payload, B", "state rows", "ms a batch", "by the formula", "driver's CPU, ms"):
        table.add_column(name, justify="right")
    for c in costs:
        by = formula.seconds(c)
        table.add_row(
            f"{c.input_rows:,}",
            f"{c.point.units:,}",
            f"{c.point.payload:,}",
            f"{c.state_rows:,}",
            f"{c.seconds * 1000:,.0f}",
            f"{by * 1000:,.0f} ({by / c.seconds - 1:+.0%})",
            f"{c.driver_s * 1000:,.0f}",
        )
    return table


def _coefficients(total: Formula, driver: Formula) -> Table:
    table = Table(title="the formula: microseconds for", title_justify="left")
    for name in ("", "all of it", "the driver's Python"):
        table.add_column(name, justify="right" if name else "left")
    for name in {**total.of, **driver.of}:
        table.add_row(name, *(f"{f.of.get(name, 0.0) * 1e6:,.4g}" for f in (total, driver)))
    return table


def _predict(total: Formula, driver: Formula, like: Cost) -> Table:
    table = Table(title=f"by the formula, for batches of {like.input_rows:,} rows", title_justify="left")
    for name in ("units", "cores", "ms a batch", "rows/s", "ms of it the driver's"):
        table.add_column(name, justify="right")
    for units, cores in PREDICTED:
        seconds = extrapolate(total, driver, like, units, cores, available_cores())
        alone = extrapolate(total, driver, like, units, 10**9, available_cores())
        table.add_row(
            f"{units:,}",
            f"{cores:,}",
            f"{seconds * 1000:,.0f}",
            f"{like.input_rows / seconds:,.0f}",
            f"{alone * 1000:,.0f}",
        )
    return table
