"""`watersmeet reproduce semijoin`: every claim of the evaluation, answers first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from watersmeet_lab.bench import machine
from watersmeet_lab.reproduce.report import Claim, Json, Plots, Reproduction, show
from watersmeet_lab.reproduce.semijoin.claims import delays, figure7, plans, table3
from watersmeet_lab.reproduce.semijoin.lab import FULL, QUICK, Lab, Size

PAPER = "Semijoins: Tran, Lee, Distributed stream join query processing with semijoins (Distributed and Parallel Databases, 2010)"
_MEASURES: tuple[Callable[[Lab], list[Claim]], ...] = (
    delays.check_answers, delays.check_delays, figure7.check_figure7, plans.check_one_in_ten, table3.check_table3, plans.check_figure9, plans.check_figure10,
)  # fmt: skip


def reproduce(size: Size, say: Callable[[str], None] = lambda line: None) -> Reproduction:
    """Generate, run, verify, count."""
    say("calibrating")
    lab = Lab(size, say)
    claims = [claim for measure in _MEASURES for claim in measure(lab)]
    return Reproduction(
        PAPER, _describe_setting(lab), {**machine.describe(), "per_tuple_s": vars(lab.per_tuple)}, claims
    )


def command(
    quick: Annotated[
        bool, typer.Option(help="A few minutes: fewer queries, of three streams, and shorter streams.")
    ] = False,
    json: Json = None,
    plots: Plots = None,
) -> None:
    """Tran and Lee's evaluation in process: shipments and bytes counted against the paper's claims, answers checked with DuckDB."""
    show(lambda say: reproduce(QUICK if quick else FULL, say), json, plots)


def _describe_setting(lab: Lab) -> tuple[str, ...]:
    c = lab.per_tuple
    return (
        "Execution time = measured processing + latency * shipments + bytes / bandwidth, per second of arrival, after windows have filled; 25 ms,"
        " 1,024 kbit/s, intervals of 100 ms and a delta of 80 ms unless varied. No virtual machines: the engine of sites runs over simulated lines; the items of its letters are the shipments.",
        f"Streams: uniform values, regular arrival, nested domains; payloads are sizes only. Random queries of {lab.size.streams} streams pick every parameter from table 2, windows from {', '.join(map(str, lab.size.windows_ms))} ms.",
        f"Calibrated seconds per tuple: c_p {c.probe:.1e}, c_u {c.update:.1e}, c_h {c.hash:.1e}, c_i {c.insert:.1e}. Probing is by hash, where the"
        " paper has nested loops, so processing is a small part of every time.",
    )
