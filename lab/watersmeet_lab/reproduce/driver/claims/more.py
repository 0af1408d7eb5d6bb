"""Beyond the paper: `auto` by an estimated cost, and 3 to 6 inputs."""

from __future__ import annotations

import numpy as np

from watersmeet.plan.options import POLICIES
from watersmeet_lab.reproduce.driver.lab import Lab, Timed
from watersmeet_lab.reproduce.driver.paper import FIXED, SHORT
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, verdict

BEHIND = 0.05
"""How far `auto` may be behind the best fixed policy."""


def check_auto(lab: Lab) -> list[Claim]:
    """On the paper's data sets, then on others."""
    paper = {f"{d}, {b} batches": t for span, b in enumerate(lab.size.batches) for d, t in lab.paper(span).items()}
    return [
        _against_best(
            "auto on data sets I to VI: never more than 5% behind the best fixed policy, on average", paper, False
        ),
        _against_best("auto with " + ", ".join(map(str, lab.size.inputs)) + " inputs", lab.beyond(), True),
    ]


def _against_best(claim: str, found: dict[str, Timed], plots: bool) -> Claim:
    behind = {name: _over_best(t) for name, t in found.items()}
    whole = {p: float(np.mean([t.normalise(p) for t in found.values()])) for p in POLICIES}
    best = min(FIXED, key=lambda p: whole[p])
    within = sum(v <= 1 + BEHIND for v in behind.values())
    probes = [
        t.count("auto", "probes") / min(t.count(p, "probes") for p in FIXED if p not in ("timestamp", "round_robin"))
        for t in found.values()
    ]
    choosing = np.median([np.median(t.outcomes["auto"][0].choosing) for t in found.values()]) * 1e6
    with_choice = float(np.mean([t.normalise("auto", choosing=True) for t in found.values()]))
    return Claim(
        claim,
        "5, future work",
        "when which policy wins is left to theory; only 3 inputs were tried",
        f"auto's probes over the fewest of any policy by buffer: mean {np.mean(probes):.4f}, most {max(probes):.4f}",
        verdict([whole["auto"] <= (1 + BEHIND) * whole[best]]),
        times=f"average over timestamp's: auto {whole['auto']:.3f}, best fixed ({SHORT[best]}) {whole[best]:.3f}; of {len(behind)} cases"
        f" auto is within 5% of the best of its case in {within}, at most {max(behind.values()) - 1:.0%} behind; with the choice,"
        f" {choosing:.0f} microseconds of Python a batch, {with_choice:.3f}",
        raw={"behind": behind, "normalised": whole, "probes": probes, "by_case": _by_case(found)},
        plots=(_plot(found),) if plots else (),
    )


def _over_best(timed: Timed) -> float:
    """auto's time over that of the best fixed policy of the case."""
    return timed.normalise("auto") / min(timed.normalise(p) for p in FIXED)


def _by_case(found: dict[str, Timed]) -> dict[str, dict[str, float]]:
    return {name: {p: t.normalise(p) for p in POLICIES} for name, t in found.items()}


def _plot(found: dict[str, Timed]) -> Plot:
    inputs = sorted({name[0] for name in found})
    series = {
        SHORT[p]: [float(np.mean([t.normalise(p) for name, t in found.items() if name[0] == n])) for n in inputs]
        for p in POLICIES
        if p != "timestamp"
    }
    return Plot(
        "inputs",
        "Running time over timestamp's by number of inputs",
        "inputs",
        "normalised time",
        series,
        "bars",
        tuple(inputs),
    )
