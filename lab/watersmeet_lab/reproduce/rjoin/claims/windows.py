"""Figures 7 and 8: windows bound what is stored, and what a tuple costs."""

from __future__ import annotations

import numpy as np

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, shorts, verdict
from watersmeet_lab.reproduce.rjoin.claims.growth import alike, rises
from watersmeet_lab.reproduce.rjoin.claims.nodes import loads
from watersmeet_lab.reproduce.rjoin.lab import Course, Lab

FLAT = 1.25
"""The mean over the second half of what follows the first two windows, against the mean over the first half."""
ENOUGH, LONG = 10, 20
"""So many windows must follow the first two before halves are compared, and so many has the run of the narrowest one. Values are skewed, so what a window holds varies by a factor of three: halves of three windows differ by a third where halves of ten differ by a tenth."""


def check_windows(lab: Lab) -> list[Claim]:
    n = lab.size.tuples
    found = {w: lab.course(lab.workload(window=w), (n,)) for w in lab.size.windows}
    narrowest = lab.size.windows[0]
    last = max(n, LONG * narrowest)
    workload = lab.workload(window=narrowest, tuples=last)
    long, control = (lab.course(workload, (last,), expires=expires) for expires in (True, False))
    return [_traffic(lab, found), _cumulative(lab, found), claim_bound({**found, narrowest: long}, narrowest, control)]


def _traffic(lab: Lab, found: dict[int, Course]) -> Claim:
    messages = {f"{w}:": c.last.messages / c.last.tuples for w, c in found.items()}
    named = {f"W = {w}": c.last for w, c in found.items()}
    series = {"messages per tuple": (list(found), list(messages.values()))}
    return Claim(
        "Larger windows need more traffic; load is spread in the same pattern",
        "8, figure 7",
        "an increase in traffic for larger windows; load distributed with the same pattern",
        f"W in tuples, messages per tuple: {shorts(messages)}",
        verdict([rises(list(messages.values())), alike(named)]),
        raw={"messages": messages},
        plots=(Plot("figure-7a-windows", "Figure 7(a): traffic by window", "W", "messages per tuple", series), *loads("7", "by window", named)),
    )  # fmt: skip


def _cumulative(lab: Lab, found: dict[int, Course]) -> Claim:
    total = {f"{w}:": float(c.processing[-1]) for w, c in found.items()}
    stored = {f"{w}:": float(c.rows[-1]) for w, c in found.items()}
    steady = {}
    for w, c in found.items():
        load = np.diff([0, *c.processing])[2 * w :]
        if len(load) >= 2 * w:
            steady[f"{w}:"] = float(load[len(load) // 2 :].mean() / load[: len(load) // 2].mean())
    step = max(lab.size.tuples // 100, 1)
    at = list(range(1, lab.size.tuples + 1, step))
    series = {f"W = {w}": (at, c.processing[::step][: len(at)]) for w, c in found.items()}
    rows = {f"W = {w}": (at, c.rows[::step][: len(at)]) for w, c in found.items()}
    return Claim(
        "Windows keep the cost of a tuple steady",
        "5, 8, figure 8",
        "with smaller windows rewritten queries are dropped, so there is significantly less to store and to process",
        f"processing load of all tuples, by W: {shorts(total)}; rewritten queries made: {shorts(stored)}; load of a tuple, second half over first half"
        f" after two windows: {each(steady)}",
        verdict([rises(list(total.values())), rises(list(stored.values())), *(s <= FLAT for s in steady.values())]),
        raw={"processing": total, "made": stored, "steady": steady},
        plots=(
            Plot("figure-8a-processing", "Figure 8(a): cumulative query processing load", "tuples", "load", series, marks=False),
            Plot("figure-8b-storage", "Figure 8(b): cumulative storage load", "tuples", "rewritten queries", rows, marks=False),
        ),
    )  # fmt: skip


def find_growth(course: Course, window: int) -> float | None:
    """What is stored after two windows: the mean over the second half of that time against the first; None if there is too little of it."""
    after = [v for n, v in course.live.items() if n >= 2 * window]
    if len(after) < 4 or max(course.live) < (2 + ENOUGH) * window:
        return None
    return float(np.mean(after[len(after) // 2 :])) / max(float(np.mean(after[: len(after) // 2])), 1.0)


def claim_bound(found: dict[int, Course], narrowest: int, control: Course) -> Claim:
    """The state is flat where nodes drop what windows have passed; the control, a run in which they do not, must not be."""
    growth = {f"{w}:": find_growth(c, w) for w, c in found.items()}
    flat = {name: g for name, g in growth.items() if g is not None}
    kept = {f"{w}:": float(max(c.live.values())) for w, c in found.items()}
    without = find_growth(control, narrowest)
    series = {f"W = {w}": (list(c.live), list(c.live.values())) for w, c in found.items()}
    return Claim(
        "Windows bound the state: stored rewritten queries are flat after W",
        "5",
        "windows act as garbage collection and keep resource usage steady",
        f"most rewritten queries stored at any time, by W: {shorts(kept)}; mean over the second half of what follows 2 W, against the first half: {each(flat)};"
        f" without expiry, W = {narrowest}: {'too few tuples to say' if without is None else f'{without:.2f}'}",
        verdict([bool(flat) and all(v <= FLAT for v in flat.values()), rises(list(kept.values())), without is not None and without > FLAT]),
        raw={"flat": flat, "most": kept, "without_expiry": without, "live": {w: c.live for w, c in found.items()}},
        plots=(Plot("windows-bound-the-state", "Rewritten queries stored", "tuples", "rewritten queries", series, marks=False),),
    )  # fmt: skip
