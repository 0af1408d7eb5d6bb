"""Section 5.3, figure 13: the global against the local conservative approach, four streams at 1,000 tuples per second.

All windows are 0.8 s (then 0.1 s), but that of one pair is 1 s. GCA sweeps with 1 s for all; LCA with 1 s for that pair's
streams. Windows are taken as written, as the paper does; watersmeet closes them first, and the pair of 1 s beside windows of
0.1 s is 0.2 s then: that is reported beside it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, shorts, verdict
from watersmeet_lab.reproduce.wjoin.data import Feed, exponential
from watersmeet_lab.reproduce.wjoin.lab import Lab, Run, uniform

NARROW = {"0.8 s": 0.8, "0.1 s": 0.1}
GLOBAL, LOCAL = "gca(mw)", "lca"


def check_conservative(lab: Lab) -> list[Claim]:
    """Both settings of the figure."""
    feeds = [exponential([1000] * 4, lab.size.rows, lab.size.values, seed) for seed in lab.size.seeds]
    runs = {title: _runs(lab, feeds, _windows(lab, share, 1)) for title, share in NARROW.items()}
    closed = _runs(lab, feeds, _windows(lab, 0.1, 0.2))
    plots = tuple(
        Plot(f"figure-13-{name}", "Figure 13: one pair with a window of 1 s", "window of the other pairs", unit,
             {k.upper(): [_mean(by[k], of) for by in runs.values()] for k in (GLOBAL, LOCAL)}, "bars", tuple(NARROW))
        for name, unit, of in (("comparisons", "comparisons per tuple", "comparisons"), ("service", "us per tuple", "service_us"))
    )  # fmt: skip
    return [
        _claim("LCA is below GCA even where windows differ little", "0.8 s", 1.0, runs["0.8 s"], "", plots),
        _claim("LCA is far below GCA where windows differ much", "0.1 s", 0.5, runs["0.1 s"], _beside(closed), ()),
        _around(lab, feeds[0]),
    ]


def _around(lab: Lab, feed: Feed) -> Claim:
    """GCA around each of the three."""
    hi = _windows(lab, NARROW["0.8 s"], 1)
    runs = {kernel: lab.run(kernel, feed, hi) for kernel in ("gca(nlw)", "gca(mw)", "gca(hw)", LOCAL)}
    below = {k: runs[LOCAL].comparisons / r.comparisons for k, r in runs.items() if k != LOCAL}
    timed = {k: runs[LOCAL].service_us / r.service_us for k, r in runs.items() if k != LOCAL}
    return Claim(
        "LCA is below GCA whichever join is inside",
        "5.1, 5.3",
        "GCA applies any of NLW, HW and MW; LCA avoids its excessive comparisons",
        f"LCA's comparisons over those of GCA around each, windows of 0.8 s and 1 s: {each(below)}; per tuple: {shorts({k: r.comparisons for k, r in runs.items()})};"
        " all four give DuckDB's results",
        verdict([b < 1 for b in below.values()]),
        times=f"LCA's service time over theirs: {each(timed)}",
        raw={k: [r.comparisons, r.service_us, r.answer.results] for k, r in runs.items()},
    )


def _claim(
    claim: str, narrow: str, limit: float, runs: dict[str, list[Run]], beside: str, plots: tuple[Plot, ...]
) -> Claim:
    counted, timed = (_mean(runs[LOCAL], of) / _mean(runs[GLOBAL], of) for of in ("comparisons", "service_us"))
    mean = partial(each, form="{:.2f}")
    return Claim(
        claim,
        f"5.3, figure 13, windows of {narrow} and 1 s",
        "LCA outperforms GCA in both settings",
        f"LCA's comparisons over GCA's: {counted:.2f}; per tuple: {shorts({k: _mean(by, 'comparisons') for k, by in runs.items()})}{beside}",
        verdict([counted < limit, timed < limit]),
        times=f"LCA's service time over GCA's: {timed:.2f}; us per tuple: {mean({k: _mean(by, 'service_us') for k, by in runs.items()})}",
        raw={k: [[r.comparisons, r.service_us, r.answer.results] for r in by] for k, by in runs.items()},
        plots=plots,
    )


def _beside(closed: dict[str, list[Run]]) -> str:
    g, c = (_mean(closed[k], "comparisons") for k in (GLOBAL, LOCAL))
    return f"; with the windows closed first, as watersmeet does (1 s becomes 0.2 s): {shorts({GLOBAL: g, LOCAL: c})}, {c / g:.2f}"


def _runs(lab: Lab, feeds: list[Feed], hi: np.ndarray) -> dict[str, list[Run]]:
    return {kernel: [lab.run(kernel, feed, hi) for feed in feeds] for kernel in (GLOBAL, LOCAL)}


def _windows(lab: Lab, narrow: float, wide: float) -> np.ndarray:
    """One share of the size's window for all pairs but the first."""
    hi = uniform(4, round(narrow * lab.size.window_us))
    hi[0, 1] = hi[1, 0] = round(wide * lab.size.window_us)
    return hi


def _mean(runs: list[Run], of: str) -> float:
    return float(np.mean([getattr(r, of) for r in runs]))
