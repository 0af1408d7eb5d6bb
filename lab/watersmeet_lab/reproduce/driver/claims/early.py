"""Table 5 and figures 6 to 8: when results come, and when the input is consumed."""

from __future__ import annotations

import numpy as np

from watersmeet.plan.options import POLICIES
from watersmeet_lab.reproduce.driver.claims.times import average
from watersmeet_lab.reproduce.driver.lab import GRID, Lab, Timed
from watersmeet_lab.reproduce.driver.paper import FIXED, SHORT, SPANS, TABLE_5
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, verdict

BAR = 0.8
"""At half of timestamp's time initial output size has produced at least this much."""


def check_table_5(lab: Lab) -> list[Claim]:
    """A row for every policy; curves are of runs that look at the clock 24 times a batch."""
    found = [lab.paper(span, in_pieces=True) for span in (0, 1)]
    claims = []
    for policy in FIXED:
        here = [average(f, lambda t, p=policy: t.average_share(p), policy) for f in found]  # type: ignore[misc]
        theirs = TABLE_5["average"][policy]
        holds = {
            "timestamp": [0.4 <= h <= 0.6 for h in here],
            "round_robin": [0.4 <= h <= 0.7 for h in here],
            "consumption_rate": [h < 0.5 for h in here],
            "initial_output_size": [h >= BAR for h in here],
            "output_rate": [h >= 0.75 for h in here],
        }[policy]
        claims.append(
            Claim(
                f"Results that {SHORT[policy]} has produced at half of timestamp's time"
                + (f": at least {BAR}" if policy == "initial_output_size" else ""),
                "table 5",
                f"average {theirs[0]} and {theirs[1]}; " + _rows(TABLE_5, policy),
                _first_share(found, policy),
                verdict(holds),
                times=f"average {here[0]:.2f} and {here[1]:.2f}; " + _list_measured(found, policy),
                raw={s: {d: t.average_share(policy) for d, t in f.items()} for s, f in zip(SPANS, found, strict=True)},
                plots=_curves(found) if policy == "initial_output_size" else (),
            )
        )
    return [*claims, _consumption(found)]


def _rows(table, policy: str) -> str:  # type: ignore[no-untyped-def]
    return ", ".join(
        f"{d} {' '.join(f'{v:.2f}' for v in row[policy]) if policy in row else '-'}"
        for d, row in table.items()
        if d != "average"
    )


def _list_measured(found: list[dict[str, Timed]], policy) -> str:  # type: ignore[no-untyped-def]
    return ", ".join(f"{d} {' '.join(f'{f[d].average_share(policy):.2f}' for f in found)}" for d in found[0])


def _first_share(found: list[dict[str, Timed]], policy) -> str:  # type: ignore[no-untyped-def]
    """Of a batch's results, what the first third of its tuples makes."""
    shares = []
    for f in found:
        values = []
        for t in f.values():
            for curve in t.outcomes[policy][0].curves[t.kept]:
                if curve[1, -1]:
                    values.append(np.interp(curve[2, -1] / 3, curve[2], curve[1]) / curve[1, -1])
        shares.append(float(np.mean(values)))
    return f"the first third of a batch's tuples makes {shares[0]:.2f} and {shares[1]:.2f} of its results"


def _consumption(found: list[dict[str, Timed]]) -> Claim:
    """When half of the input is consumed: the area is what waits."""
    at: dict[str, list[float]] = {}
    for p in POLICIES:
        at[p] = [average(f, lambda t, p=p: t.average_share(p, 0.5, what=1)) for f in found]  # type: ignore[misc]
    order = [p for p in FIXED if p != "round_robin"]
    return Claim(
        "Initial output size consumes the input even earlier than consumption rate, since it is faster",
        "4.2, discussion",
        "due to its low running times it consumes the input buffers earlier than even consumption rate",
        "tuples consumed are the same at the end of every batch",
        verdict([i >= c for i, c in zip(at["initial_output_size"], at["consumption_rate"], strict=True)]),
        times="share of tuples consumed at half of timestamp's time, 0.1M and 1M: "
        + ", ".join(f"{SHORT[p]} {at[p][0]:.2f} {at[p][1]:.2f}" for p in (*order, "auto")),
        raw=at,
    )


def _curves(found: list[dict[str, Timed]]) -> tuple[Plot, ...]:
    """Figures 6 (I to III), 7 and 8 (first and second half of IV to VI)."""
    plots = []
    for span, f in zip(SPANS, found, strict=True):
        for d, t in f.items():
            middle = (t.kept.start + len(t.case.cuts)) // 2
            halves = {"": t.kept}
            if d in ("IV", "V", "VI"):
                halves = {"first half": slice(t.kept.start, middle), "second half": slice(middle, None)}
            for half, batches in halves.items():
                series = {SHORT[p]: (GRID, np.nanmean(t.shares[p][batches, 0], axis=0)) for p in POLICIES}
                name = f"production_{d}_{span}{'_' + half.replace(' ', '_') if half else ''}"
                title = f"Data set {d}, batches of {span} time units{', ' + half if half else ''}"
                plots.append(Plot(name, title, "timestamp's time of a batch", "share of results", series, marks=False))
    return tuple(plots)
