"""Section 5.3, figure 14: the path join of four streams, there or back, by NLW with the directed period and by LCA.

    NLW    two queries, one for each direction; a tuple probes along the path, and the second one leaves out what the first
           has found: what happened at one instant
    LCA    one sweep over the closed graph of both directions; what it finds is refined

A hop takes a second at most. Rates vary little (950 to 1,050 tuples per second) or much (100 to 1,000). How many candidates
LCA has to refine depends on how many values there are, so several numbers are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from watersmeet.kernels.problem import TIMES
from watersmeet.query.window import Edge, WindowGraph, directed_edges
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, Verdict, each, shorts
from watersmeet_lab.reproduce.wjoin.data import Feed, exponential
from watersmeet_lab.reproduce.wjoin.lab import Lab, Run, problem

STOPS = ("a", "b", "c", "d")
RATES = {"small": (1000, 950, 1050, 1000), "large": (1000, 464, 215, 100)}
"""Variation to tuples per second; the large ones are evenly spaced by their ratio."""
Costs = dict[tuple[str, int], dict[str, Run]]
"""Variation and number of values to runs by kernel."""


def check_path(lab: Lab) -> list[Claim]:
    """Both halves of the figure."""
    rows = lab.size.rows // 2
    costs: Costs = {}
    for variation, rates in RATES.items():
        for domain in lab.size.more_values:
            feed = exponential(rates, rows, domain, lab.size.seeds[0])
            costs[variation, domain] = {"nlw": run_pipeline(lab, feed, "nlw"), "hw": run_pipeline(lab, feed, "hw"), "lca": run_sweep(lab, feed)}  # fmt: skip
    return [
        _claim(
            lab, costs, "small", "Where rates vary little, pipelined NLW is ahead of LCA", "nlw", "lca", _plots(costs)
        ),
        _claim(lab, costs, "large", "Where rates vary much, LCA is ahead of pipelined NLW", "lca", "nlw", ()),
    ]


def both_ways(window_us: int) -> WindowGraph:
    """One stop after the other, from either end, each at most so long after the one before."""

    def chain(stops: tuple[str, ...]) -> list[Edge]:
        return [edge for x, y in pairwise(stops) for edge in directed_edges(x, y, window_us, "")]

    return WindowGraph.either(STOPS, [chain(STOPS), chain(STOPS[::-1])])


def run_pipeline(lab: Lab, feed: Feed, kernel: str) -> Run:
    """The union of two directed queries, each probing along the path."""
    n, graph = feed.streams, both_ways(lab.size.window_us)
    along = tuple((d, *range(d + 1, n), *range(d - 1, -1, -1)) for d in range(n))
    runs = []
    for number, way in enumerate(graph.alternatives):
        directed_query = replace(problem(feed, _bounds(way)), order=along)
        again = Refinement(feed, graph.alternatives[:1], negated=True) if number else None
        run = lab.measure(kernel, directed_query, keep=again)
        runs.append(run if again is None else again.count(run))
    both = runs[0].plus(runs[1])
    lab.check(both, feed, [_bounds(way) for way in graph.alternatives])
    return both


def run_sweep(lab: Lab, feed: Feed) -> Run:
    """LCA over the hull of both directions, then every candidate against both."""
    graph = both_ways(lab.size.window_us)
    refine = Refinement(feed, graph.alternatives)
    run = refine.count(lab.measure("lca", problem(feed, _bounds(graph)), keep=refine))
    lab.check(run, feed, [_bounds(way) for way in graph.alternatives])
    return run


class Refinement:
    """Candidates against the directions of a path, hop by hop; what is compared is counted.

    A hop takes two comparisons, the second only where the first holds; what fails a hop is asked no more of that direction, what passes a direction is not asked of the next.
    """

    def __init__(self, feed: Feed, ways: Sequence[WindowGraph], *, negated: bool = False) -> None:
        self.feed, self.ways, self.negated = feed, ways, negated
        self.compared = 0

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Which of the candidates, row numbers by stream, go on."""
        times = [ts[idx] for ts, idx in zip(self.feed.ts, rows, strict=True)]
        passed = np.zeros(rows.shape[1], np.bool_)
        for way in self.ways:
            asked = np.flatnonzero(~passed)
            bounds = _bounds(way)
            for a, b in pairwise(range(len(STOPS))):
                apart = times[b][asked] - times[a][asked]
                for is_after in (True, False):
                    self.compared += len(apart)
                    kept = apart >= -bounds[b, a] if is_after else apart <= bounds[a, b]
                    apart, asked = apart[kept], asked[kept]
            passed[asked] = True
        return passed ^ self.negated

    def count(self, run: Run) -> Run:
        """A run with what its refinement has compared."""
        counts = run.counts.copy()
        counts[TIMES] += self.compared
        return replace(run, counts=counts)


def _bounds(graph: WindowGraph) -> np.ndarray:
    return np.array(graph.bounds, np.int64)


def _claim(
    lab: Lab, costs: Costs, variation: str, claim: str, ahead: str, behind: str, plots: tuple[Plot, ...]
) -> Claim:
    by = {domain: costs[variation, domain] for domain in lab.size.more_values}
    counted = {f"{d}": r[behind].comparisons / r[ahead].comparisons for d, r in by.items()}
    timed = {f"{d}": r[behind].service_us / r[ahead].service_us for d, r in by.items()}
    absolute = {f"{k} {d}": r[k].comparisons for d, r in by.items() for k in ("nlw", "lca")}
    hashed = {f"{d}": r["hw"].comparisons for d, r in by.items()}
    return Claim(
        claim,
        f"5.3, figure 14, {variation} variation",
        f"{ahead.upper()} performs best",
        f"{behind.upper()}'s comparisons over {ahead.upper()}'s, by number of values: {each(counted)}; per tuple: {shorts(absolute)};"
        f" pipelined HW, which has an equality to use: {shorts(hashed)}",
        _holds([counted[d] > 1 and timed[d] > 1 for d in counted]),
        times=f"{behind.upper()}'s service time over {ahead.upper()}'s: {each(timed)}",
        raw={
            f"{k} {d}": [r[k].comparisons, r[k].tests, r[k].service_us, r[k].answer.results]
            for d, r in by.items()
            for k in r
        },
        plots=plots,
    )


def _holds(parts: list[bool]) -> Verdict:
    return "yes" if all(parts) else "partly" if any(parts) else "no"


def _plots(costs: Costs) -> tuple[Plot, ...]:
    plots = []
    kinds = (("comparisons", "comparisons per tuple", "comparisons"), ("service", "us per tuple", "service_us"))
    for name, unit, of in kinds:
        series = {}
        for kernel in ("nlw", "lca"):
            for variation in RATES:
                points = [(d, getattr(by[kernel], of)) for (v, d), by in costs.items() if v == variation]
                series[f"{kernel.upper()}, {variation} variation"] = tuple(zip(*points, strict=True))
        plots.append(
            Plot(f"figure-14-{name}", "Figure 14: a path of four streams", "number of values", unit, series, log=True)
        )
    return tuple(plots)
