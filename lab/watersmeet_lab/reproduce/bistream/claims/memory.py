"""Section 6.2, figure 6, with equations 1 and 2: what the models store.

The maximum processing volume is read off the average memory of a unit, as figure 6 is: the number of input tuples at
which the join-matrix holds what the join-biclique holds at the end.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.reproduce.bistream.cluster import Outcome
from watersmeet_lab.reproduce.bistream.equations import memory_of_biclique, memory_of_matrix
from watersmeet_lab.reproduce.bistream.lab import Lab
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, furthest, shorts, verdict

TOLERANCE = 0.01
WINDOWS_S = (180, 300, 480)
"""Figure 6b's windows of 3, 5 and 8 minutes."""
HISTORY_S = 3 * WINDOWS_S[-1]
SLACK = 1.15
"""Retained rows over living rows: dead ones may be a tenth, and a batch comes on top."""


def check_full_history(lab: Lab) -> list[Claim]:
    """Equations 1 and 2 and figure 6a."""
    stored = {q: {m: lab.outcome(q, m) for m in ("JB16", "JM16")} for q in lab.queries}
    return [_equations(lab, stored), _saturation(stored)]


def deviation(lab: Lab, outcome: Outcome) -> float:
    """How far the bytes that units store are from equation 1 or 2, relatively."""
    model, cluster = outcome.model, lab.cluster(outcome.feed.query.name, outcome.model.name)
    r, s = (model.relation(w.num_rows, size) for w, size in zip(cluster.wires, cluster.tuple_bytes, strict=True))
    wanted = memory_of_matrix(r, s) if model.is_matrix else memory_of_biclique(r, s)
    return outcome.last("stored_bytes") / wanted - 1


def _equations(lab: Lab, stored: dict[str, dict[str, Outcome]]) -> Claim:
    copies = {f"{q} {m}": o.last("stored_rows") / o.feed.rows for q, by in stored.items() for m, o in by.items()}
    apart = {f"{q} {m}": deviation(lab, o) for q, by in stored.items() for m, o in by.items()}
    return Claim(
        "JB stores every tuple once; JM stores it sqrt(x) times",
        "4.1, equations 1 and 2",
        "W_bi = |R| + |S| in bytes; W_mat = n |R| + m |S|",
        f"stored rows per input tuple: {each(copies)}; stored bytes are within {furthest(apart.values())} of the equations",
        verdict([abs(d) <= TOLERANCE for d in apart.values()]),
        raw={"copies": copies, "deviation": apart},
    )


def _saturation(stored: dict[str, dict[str, Outcome]]) -> Claim:
    ratios: dict[str, float] = {}
    series: dict[str, tuple[list[int], list[float]]] = {}
    for q, by in stored.items():
        levels = {m: o.over_time("stored_bytes").mean(axis=1) for m, o in by.items()}
        volumes = [b.volume for b in by["JM16"].batches]
        reached = float(np.interp(levels["JB16"][-1], [0.0, *levels["JM16"]], [0, *volumes]))
        ratios[q] = by["JB16"].feed.rows / reached
        series |= {f"{q} {m}": (volumes, list(level / 1000)) for m, level in levels.items()}
    plot = Plot("figure-06a-memory", "Figure 6a: full history, average memory of a unit", "input tuples", "kB", series)
    return Claim(
        "At equal memory JB16 processes several times JM16's volume",
        "6.2, figure 6a",
        "Q7: 19M tuples against 5.8M (3.3 times); Q5 and Band alike",
        f"maximum processing volume of JB16 over JM16's, same memory: {each(ratios)}",
        verdict([r >= 3.3 for r in ratios.values()]),
        raw={"ratios": ratios},
        plots=(plot,),
    )


def check_windows(lab: Lab) -> list[Claim]:
    """Figure 6b."""
    rate = lab.feed("Q5").rows / HISTORY_S
    runs = {w: lab.run(lab.feed("Q5", rate, w), "JB16", lab.size.window_batches) for w in WINDOWS_S}
    memory = {f"{w // 60} minutes": o.over_time("stored_bytes") / 1000 for w, o in runs.items()}
    at = list(_seconds(runs[WINDOWS_S[0]]) / 60)
    series = {name: (at, list(kb.mean(axis=1))) for name, kb in memory.items()}
    series |= {f"{name}, one unit": (at, list(kb[:, 0])) for name, kb in memory.items()}
    plot = Plot(
        "figure-06b-windows",
        "Figure 6b: JB16, Q5, memory of a unit under windows",
        "minutes",
        "kB",
        series,
        marks=False,
    )
    return [_claim_bound(runs, rate, plot), _saw_tooth(runs)]


def _claim_bound(runs: dict[int, Outcome], rate: float, plot: Plot) -> Claim:
    peaks = {w: _steady(o, w).max() / (rate * w) for w, o in runs.items()}
    means = {w: float(_steady(o, w).mean()) for w, o in runs.items()}
    levels = list(means.values())
    return Claim(
        "Under a window memory is bounded after one window, and a longer window needs more",
        "6.2, figure 6b",
        "bounded for 3, 5 and 8 minutes, the longest highest",
        f"most rows retained over rows in the window: {each({f'{w // 60} min': p for w, p in peaks.items()})};"
        f" mean rows retained: {shorts({f'{w // 60} min': m for w, m in means.items()})}",
        verdict([levels == sorted(levels)], main=max(peaks.values()) <= SLACK),
        raw={"peak_over_living": peaks, "mean_rows": means, "rate": rate},
        plots=(plot,),
    )


def _saw_tooth(runs: dict[int, Outcome]) -> Claim:
    teeth = {f"{w // 60} min": _teeth(o, w) for w, o in runs.items()}
    depth, batches, every = ({name: t[i] for name, t in teeth.items()} for i in range(3))
    segments = {f"{w // 60} min": float(o.over_time("segments")[-1].mean()) for w, o in runs.items()}
    return Claim(
        "Data go in whole sub-indexes, not tuple by tuple: a unit's memory is a saw-tooth",
        "3.3 and 6.2, figure 6b",
        "ripples; the archive period is a tenth of the window",
        f"a unit discards every {each(every, '{:.3f}')} windows, each time {each(depth, '{:.1%}')} of its rows,"
        f" which {each(batches, '{:.1f}')} batches had brought; it has {each(segments, '{:.0f}')} sub-indexes",
        verdict([all(0.01 <= d <= 0.12 for d in depth.values())], main=all(n >= 2 for n in batches.values())),
        raw={"share_of_rows": depth, "batches": batches, "every_windows": every, "segments": segments},
    )


def _teeth(outcome: Outcome, window_s: int) -> tuple[float, float, float]:
    """Of what a unit discards at once, in the steady state: the share of its rows, the number of batches, windows between."""
    stored, entered = outcome.over_time("stored_rows"), outcome.over_time("entered")
    gone = (stored[:-1] + entered[1:] - stored[1:])[_seconds(outcome)[1:] > 1.1 * window_s]
    held = stored[:-1][_seconds(outcome)[1:] > 1.1 * window_s]
    times = gone > 0
    between = outcome.feed.seconds / len(outcome.batches) / times.mean() / window_s
    return float(np.mean(gone[times] / held[times])), float(gone[times].mean() / entered.mean()), float(between)


def _steady(outcome: Outcome, window_s: int) -> np.ndarray:
    """Rows stored in all units, from one window and a tenth on."""
    return np.asarray(outcome.over_time("stored_rows").sum(axis=1)[_seconds(outcome) > 1.1 * window_s])


def _seconds(outcome: Outcome) -> np.ndarray:
    """The time at the end of every batch."""
    return np.arange(1, len(outcome.batches) + 1) * outcome.feed.seconds / len(outcome.batches)
