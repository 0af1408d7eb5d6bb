"""`watersmeet reproduce rjoin`: every figure of the evaluation, answers first."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Annotated

import typer

from watersmeet_lab.bench import machine
from watersmeet_lab.reproduce.report import Claim, Json, Plots, Reproduction, show, verdict
from watersmeet_lab.reproduce.rjoin.claims.choice import check_choice
from watersmeet_lab.reproduce.rjoin.claims.growth import check_growth
from watersmeet_lab.reproduce.rjoin.claims.ring import check_hops, check_id_movement
from watersmeet_lab.reproduce.rjoin.claims.theorems import check_theorems
from watersmeet_lab.reproduce.rjoin.claims.windows import check_windows
from watersmeet_lab.reproduce.rjoin.lab import FULL, QUICK, Lab, Size
from watersmeet_lab.reproduce.rjoin.workload import ATTRIBUTES, RELATIONS, VALUES, WARM_UP

PAPER = "RJoin: Idreos, Liarou, Koubarakis, Continuous Multi-Way Joins over Distributed Hash Tables (EDBT 2008)"
_MEASURES: tuple[Callable[[Lab], list[Claim]], ...] = (
    check_theorems,
    check_hops,
    check_choice,
    check_growth,
    check_windows,
    check_id_movement,
)


def reproduce(size: Size, say: Callable[[str], None] = lambda line: None) -> Reproduction:
    """Simulate, verify, count."""
    lab = Lab(size, say)
    claims = [claim for measure in _MEASURES for claim in measure(lab)]
    return Reproduction(PAPER, _describe_setting(lab), machine.describe(), [_answers(lab), *claims])


def command(
    quick: Annotated[bool, typer.Option(help="Seconds: fewer nodes, queries and tuples.")] = False,
    json: Json = None,
    plots: Plots = None,
) -> None:
    """RJoin's evaluation on a simulated ring: counts against the paper's claims, answers checked with DuckDB."""
    show(lambda say: reproduce(QUICK if quick else FULL, say), json, plots)


def _answers(lab: Lab) -> Claim:
    ended, found = [c for c in lab.courses if c.ended], list(lab.compared.values())
    seconds = max(c.seconds for c in lab.courses)
    usual = lab.course(lab.workload(), (lab.size.tuples,)).seconds
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Claim(
        "Every answer is found, and found once",
        "4, theorems 1 and 2",
        "eventual completeness, no accidental duplicates; here with messages of one tick",
        f"{len(found)} runs, the rows of every query against DuckDB's: {sum(c.rows for c in found):,} rows of {sum(c.queries for c in found):,} queries with answers,"
        f" {sum(c.missing for c in found):,} missing, {sum(c.extra for c in found):,} too many; {len(lab.courses) - len(ended)} runs were stopped and not compared",
        verdict([all(c.missing == 0 for c in found), all(c.extra == 0 for c in found)])
        if any(c.rows for c in found)
        else "no",
        times=f"{lab.size.nodes:,} nodes, {lab.size.queries:,} queries and {lab.size.tuples:,} tuples: {usual:.0f} s on one core;"
        f" longest of all runs {seconds:.0f} s; at most {megabytes:,.0f} MB",
        raw={name: vars(c) for name, c in lab.compared.items()},
    )


def _describe_setting(lab: Lab) -> tuple[str, ...]:
    s = lab.size
    return (
        f"{s.nodes:,} simulated nodes of a Chord ring in one process; {s.queries:,} queries and {s.tuples:,} tuples where a figure does not say otherwise;"
        f" {RELATIONS} relations of {ATTRIBUTES} attributes of {VALUES} values, theta 0.9.",
        f"{WARM_UP} tuples come before the queries, uncounted: from them nodes know rates, of which those of the last {WARM_UP} tuples count. The paper does not say.",
        "Every attribute ranks its values its own way, but in one row of figure 5: with one ranking for all, 8-way joins would have some 10^10 answers.",
        "A message is one rewritten query, question or answer, times its hops. Delta is unbounded here, so rewritten queries may wait at attribute level at any time.",
        f"A run that stores more than {s.most_rows:,} rewritten queries is stopped; what it counted is a lower bound.",
    )
