"""`watersmeet bench choice`: is `auto` right? Every forced choice that can run a query, beside what `auto` makes of it, on more than 60 shapes.

Shapes with one unit force `kernel=`, those with several `routing=`. All run in process, from tables in memory to a table of results. A forced choice
that takes more than GIVEN_UP times as long as `auto` in its first run is not run again: it is not the best. The others run in turn, `repeat` times, and those that are
within CLOSE of the best twice as often again, or until each has run for LONG_ENOUGH seconds: noise only adds, and what takes milliseconds has most of it. The answer of every run, count and checksum, must be `auto`'s.

`--drawn N --seed S` takes N shapes that are drawn by chance instead, and `--longer K` streams K times as long: what a run costs once, such as planning, weighs less then, and a wrong choice more.

The figure is CPU time, the least of all runs of a choice. The bar: `auto` is within NEAR of the best in OFTEN of the shapes, and within FAR in all.
"""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.errors import OptionError
from watersmeet_lab.bench.drawn_shapes import draw_shapes
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.shapes import Shape, list_shapes
from watersmeet_lab.bench.sweep import answer

SEED = 1
KERNELS = ("hw", "sorted", "nlw", "mw", "lca")
ROUTINGS = ("hash", "hypercube", "random", "range", "contrand", "matrix", "pipeline")
GIVEN_UP, CLOSE = 3.0, 1.6
LONG_ENOUGH, MOST_TURNS = 1.0, 60
NEAR, OFTEN, FAR = 1.25, 0.95, 2.0


@dataclass
class Outcome:
    """A shape's results, and CPU seconds of every choice that ran it."""

    shape: Shape
    results: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def best(self) -> str:
        return min(self.seconds, key=lambda choice: min(self.seconds[choice]))

    @property
    def ratio(self) -> float:
        """`auto` over the best."""
        return min(self.seconds["auto"]) / min(self.seconds[self.best])


def command(
    repeat: Annotated[int, typer.Option(help="Runs of each choice that is not given up.", min=1)] = 3,
    only: Annotated[str | None, typer.Option(help="Shapes whose names contain this.")] = None,
    drawn: Annotated[int, typer.Option(help="So many shapes, drawn by chance.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Of shapes that are drawn, and of all data.", min=0)] = SEED,
    longer: Annotated[int, typer.Option(help="Streams are so many times as long.", min=1)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file, shape by shape.")] = None,
) -> None:
    """`auto` over the best forced choice, in CPU time, shape by shape; every answer checked."""
    console = Console()
    shapes = [s for s in (draw_shapes(drawn, seed) if drawn else list_shapes()) if only is None or only in s.name]
    shapes = [replace(s, rows=longer * s.rows) for s in shapes]
    outcomes, machine = list[Outcome](), describe()
    with console.status("") as status:
        for shape in shapes:
            outcomes.append(measure(shape, repeat, seed, status.update))
            if json is not None:  # after every shape, so that a run that is stopped has not run in vain
                raw = {"seed": seed, "machine": machine, "shapes": [asdict(o) for o in outcomes]}
                json.write_text(json_format.dumps(raw, indent=1))
    console.print(_table(outcomes))
    near, worst = sum(o.ratio <= NEAR for o in outcomes), max(o.ratio for o in outcomes)
    holds = near >= OFTEN * len(outcomes) and worst <= FAR
    console.print(
        f"{near} of {len(outcomes)} shapes within {NEAR} of the best, worst {worst:.2f}: {'holds' if holds else 'does not hold'}"
    )
    if not holds:
        raise typer.Exit(1)


def measure(shape: Shape, repeat: int, seed: int, say: Callable[[str], None]) -> Outcome:
    """Check all answers, then time the choices in turn."""
    option, forced = ("kernel", KERNELS) if shape.units == 1 else ("routing", ROUTINGS)
    tables, text = shape.tables(seed), shape.sql()

    def run(choice: str) -> tuple[pa.Table, float]:
        began, chosen = time.process_time(), dict[str, Any]({option: choice})
        found = wm.local.run(text, tables, batch_rows=shape.batch_rows, units=shape.units, **chosen)
        return found, time.process_time() - began

    say(f"{shape.name}: auto")
    run("auto")  # compiles
    found, seconds = run("auto")
    right, outcome = answer(found), Outcome(shape, found.num_rows, {"auto": [seconds]})
    for choice in forced:
        say(f"{shape.name}: {choice}")
        try:
            found, seconds = run(choice)
        except OptionError:  # a choice that this query cannot have
            continue
        if answer(found) != right:
            raise SystemExit(f"{shape.name}: {choice} and auto differ, so there is nothing to time")
        outcome.seconds[choice] = [seconds]
    shortest = min(min(times) for times in outcome.seconds.values())
    for number in range(max(3 * repeat, min(MOST_TURNS, round(LONG_ENOUGH / shortest)))):
        least = {c: min(times) for c, times in outcome.seconds.items()}
        limit = GIVEN_UP * least["auto"] if number < repeat else max(CLOSE * min(least.values()), least["auto"])
        for choice in [c for c in least if least[c] <= limit]:
            outcome.seconds[choice].append(run(choice)[1])
    return outcome


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="CPU time of auto over that of the best choice", title_justify="left")
    for column in ("shape", "results", "auto, ms", "best", "ms", "ratio"):
        table.add_column(column, justify="left" if column in ("shape", "best") else "right", no_wrap=True)
    for o in outcomes:
        times = [f"{min(o.seconds[choice]) * 1000:.1f}" for choice in ("auto", o.best)]
        style = "red" if o.ratio > NEAR else None
        table.add_row(o.shape.name, f"{o.results:,}", times[0], o.best, times[1], f"{o.ratio:.2f}", style=style)
    return table
