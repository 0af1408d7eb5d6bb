"""`watersmeet reproduce bistream`: every claim of the evaluation, answers first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.data import default_folder
from watersmeet_lab.reproduce.bistream.claims import aggregation, bandwidth, capacity, elasticity, memory, work
from watersmeet_lab.reproduce.bistream.data import generate, generator_version
from watersmeet_lab.reproduce.bistream.lab import FULL, QUICK, Lab, Size
from watersmeet_lab.reproduce.report import Claim, Json, Plots, Reproduction, show

PAPER = "BiStream: Lin, Ooi, Wang, Yu, Scalable Distributed Stream Join Processing (SIGMOD 2015)"
_MEASURES: tuple[Callable[[Lab], list[Claim]], ...] = (
    memory.check_full_history, memory.check_windows, work.check_throughput, work.check_latency, capacity.check_scalability, capacity.check_scaling_gain,
    elasticity.check_elasticity, bandwidth.check_bandwidth, aggregation.check_aggregation, capacity.check_largest_window,
)  # fmt: skip


def reproduce(size: Size, data: Path, say: Callable[[str], None] = lambda line: None) -> Reproduction:
    """Generate, run, verify, count."""
    say("TPC-H data")
    lab = Lab(generate(size.dataset, data), size, say)
    claims = [claim for measure in _MEASURES for claim in measure(lab)]
    described = {**machine.describe(), "tpchgen": generator_version()}
    return Reproduction(PAPER, _describe_setting(lab), described, [_answers(lab), *claims])


def command(
    quick: Annotated[bool, typer.Option(help="Under a minute: smaller streams, nothing repeated.")] = False,
    json: Json = None,
    plots: Plots = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep TPC-H streams here. Default: the user's cache folder.", show_default=False)
    ] = None,
) -> None:
    """BiStream's evaluation in process: counts against the paper's claims, answers checked with DuckDB."""
    show(lambda say: reproduce(QUICK if quick else FULL, data or default_folder(), say), json, plots)


def _answers(lab: Lab) -> Claim:
    models = sorted({m for _, m, _ in lab.verified})
    results = sum(a.results for a in lab.verified.values())
    return Claim(
        "Every model gives the same, right results",
        "3.2.3, 6.1",
        "order-consistent protocol: no missed and no duplicated joins",
        f"{len(lab.verified)} runs of Q5, Q7 and Band over {', '.join(models)}, full history and windows:"
        f" {results:,} results, count and checksum equal DuckDB's in all",
        "yes",
        raw={" / ".join(k): list(a) for k, a in lab.verified.items()},
    )


def _describe_setting(lab: Lab) -> tuple[str, ...]:
    rows = ", ".join(f"{q} {lab.feed(q).rows:,}" for q in lab.queries)
    return (
        "Scaled down: logical units of one process in place of 40 servers; no network, no Storm, no disk. Units run in turn; times are CPU seconds.",
        f"TPC-H scale factor {lab.size.dataset.scale:g}, all suppliers and one of {lab.size.dataset.parts} parts of lineitem; input tuples: {rows}.",
        "Q5: (region, nation, supplier) with lineitem on suppkey; Q7: (nation, supplier) with lineitem on suppkey; Band as printed. Projected, and selected, before feeding.",
        "Compiled kernels probe millions of tuples a second, so the fixed cost of a batch weighs more here than in the paper: counts separate the models further than times.",
    )
