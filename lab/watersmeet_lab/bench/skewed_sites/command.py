"""Which seeds are measured, and how they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.skewed_sites.best import find_best
from watersmeet_lab.bench.skewed_sites.workload import Workload, play

BOUND, NEEDED = 1.15, 0.9


def measure(workload: Workload, *, every: bool = False) -> dict[str, Any]:
    """One seed."""
    auto = play(workload, None, finish=True)
    right = workload.count_results()
    best, tried, error = find_best(workload, every=every)
    best = min(best, auto, key=lambda played: played.shipped.seconds)
    return {
        "seed": workload.seed,
        "streams": workload.streams,
        "sites": workload.sites,
        "is_right": auto.results == right,
        "results": right,
        "auto_s": auto.shipped.seconds,
        "best_s": best.shipped.seconds,
        "ratio": auto.shipped.seconds / best.shipped.seconds,
        "bytes_ratio": auto.shipped.bytes_per_s / best.shipped.bytes_per_s,
        "auto_bytes_per_s": auto.shipped.bytes_per_s,
        "best_bytes_per_s": best.shipped.bytes_per_s,
        "auto": auto.plan,
        "best": best.plan,
        "changes": auto.changes,
        "executed": tried,
        "reckoned": error,
    }


def command(
    seeds: Annotated[int, typer.Option(help="Seeds of two streams, and as many of three.", min=1)] = 20,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1000,
    streams: Annotated[str, typer.Option(help="2, 3, or both: 2,3.")] = "2,3",
    every: Annotated[bool, typer.Option(help="Execute all plans of two streams.")] = False,
    rare: Annotated[bool, typer.Option(help="The hot key of a stream comes rarely in others.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write JSON here.")] = None,
) -> None:
    """Counted cost of what `auto` runs over that of the best plan."""
    pa.set_cpu_count(1)
    console, found = Console(), list[dict[str, Any]]()
    for n in map(int, streams.split(",")):
        for seed in range(first, first + seeds):
            one = measure(Workload(seed, n, 2 if n == 2 or seed % 2 else 3, rare), every=every)
            found.append(one)
            console.print(
                f"{n} streams, {one['sites']} sites, seed {seed}: {one['ratio']:.3f} of the best (bytes {one['bytes_ratio']:.3f}),"
                f" {one['executed']} plans executed{'' if one['is_right'] else ', WRONG RESULTS'}",
                highlight=False,
            )
    console.print(_summarize(found))
    if output is not None:
        output.write_text(json.dumps({"machine": describe(), "seeds": found}, indent=1))
    if not all(one["is_right"] for one in found):
        raise typer.Exit(1)


def _summarize(found: list[dict[str, Any]]) -> Table:
    table = Table(title="counted cost of auto over that of the best plan", title_justify="left")
    for column in ("streams", "seeds", f"within {BOUND}", "by bytes alone", "worst", "verdict"):
        table.add_column(column, justify="right")
    for n in sorted({one["streams"] for one in found}):
        of = [one for one in found if one["streams"] == n]
        within, lean = (sum(one[name] <= BOUND for one in of) for name in ("ratio", "bytes_ratio"))
        verdict = "yes" if within >= NEEDED * len(of) and all(one["is_right"] for one in of) else "no"
        worst = max(one["ratio"] for one in of)
        table.add_row(str(n), str(len(of)), str(within), str(lean), f"{worst:.3f}", verdict)
    return table
