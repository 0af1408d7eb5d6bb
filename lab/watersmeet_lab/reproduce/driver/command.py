"""`watersmeet reproduce driver`: every claim of the evaluation, answers first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from watersmeet_lab.bench import machine
from watersmeet_lab.reproduce.driver.claims import data, early, more, text, times
from watersmeet_lab.reproduce.driver.lab import FULL, QUICK, Lab, Size
from watersmeet_lab.reproduce.report import Claim, Json, Plots, Reproduction, show

PAPER = "Valsomatzis, Gounaris: Driver Input Selection for Main-Memory Multi-Way Joins (SAC 2013)"
_MEASURES: tuple[Callable[[Lab], list[Claim]], ...] = (
    data.check_selectivities,
    times.check_table_4,
    early.check_table_5,
    text.check_text,
    more.check_auto,
)


def reproduce(size: Size, say: Callable[[str], None] = lambda line: None) -> Reproduction:
    """Generate, run, verify, count."""
    lab = Lab(size, say)
    claims = [claim for measure in _MEASURES for claim in measure(lab)]
    return Reproduction(PAPER, _describe_setting(size), machine.describe(), [data.check_answers(lab), *claims])


def command(
    quick: Annotated[bool, typer.Option(help="Seconds: small streams, nothing repeated; times mean nothing.")] = False,
    json: Json = None,
    plots: Plots = None,
) -> None:
    """Driver input selection on MJoin in process: probes and times of every policy, answers checked."""
    show(lambda say: reproduce(QUICK if quick else FULL, say), json, plots)


def _describe_setting(size: Size) -> tuple[str, ...]:
    said = (
        "One thread; all policies run one compiled tuple-at-a-time loop and differ in the order of tuples only. Statistics are measured"
        " in the batches before, none is given.",
        f"Times are CPU seconds of processing, medians of {size.repeats} alternating runs, over the last four fifths of the batches; merging streams"
        " into timestamp's order is not timed.",
        "The paper shows no consumption rate for I to IV, where all streams have the same selectivity: there measured selectivities"
        " differ by chance, and so does the order.",
    )
    small = (
        f"Scaled down: one in {size.scale} tuples, {size.batches[0]} and {size.batches[1]} batches in place of 100 and 10.",
    )
    return said if size.scale == 1 else (*said, *small)
