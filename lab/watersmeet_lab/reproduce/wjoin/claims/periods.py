"""Section 3: one period in place of the window constraints between all pairs, in a nested loop that does both.

Tuples come in the order of time. A new one meets stored tuples of one stream after another; what is chosen so far is checked against a stored tuple

    pair by pair    against every chosen tuple, not before and not after its window, until one is too far away
    by the period   [latest chosen - w, earliest chosen + w]: two comparisons, the second only where the first holds

Invariant: both keep the same candidates, and the results are those of DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet_lab.reproduce.report import Claim, each, verdict
from watersmeet_lab.reproduce.wjoin.answer import WrongAnswerError
from watersmeet_lab.reproduce.wjoin.data import Feed, exponential
from watersmeet_lab.reproduce.wjoin.lab import Lab, uniform

ROWS, IN_WINDOW = 300, 20
"""Tuples of a stream, and how many of them are in a window."""


@dataclass
class Compared:
    """What a run has compared, and found."""

    pairs: int = 0
    periods: int = 0
    results: int = 0


def check_periods(lab: Lab) -> list[Claim]:
    """The constraint between each pair adds comparisons, one period does not."""
    window_us, found = IN_WINDOW * 1000, dict[int, Compared]()
    for n in range(2, max(lab.size.streams, 4) + 1):
        lab.say(f"periods against pairs, {n} streams")
        feed = exponential([1000] * n, ROWS, 4, lab.size.seeds[0])
        found[n] = join(feed, window_us)
        right = lab.ask_duckdb(feed, [uniform(n, window_us)]).results
        if found[n].results != right:
            raise WrongAnswerError(f"periods, {n} streams: {found[n].results} results, and DuckDB has {right}")
    ratio = {str(n): c.pairs / c.periods for n, c in found.items()}
    rises = list(ratio.values()) == sorted(ratio.values())
    return [
        Claim(
            "The period of a combination spares the checks between all pairs",
            "2, 3.1",
            "a brute-force check of every pair adds C(N, 2) comparisons for each tuple; the period takes two",
            f"comparisons of times pair by pair over those with the period, by streams, 4 values: {each(ratio)}; {sum(c.results for c in found.values()):,} results, as many as DuckDB's",
            verdict([rises, ratio["4"] >= 1.5], main=all(r > 1 for n, r in ratio.items() if n != "2")),
            raw={str(n): vars(c) for n, c in found.items()},
        )
    ]


def join(feed: Feed, window_us: int) -> Compared:
    """All combinations within a window, counted twice."""
    out, streams = Compared(), feed.streams
    order = sorted((int(t), s, n) for s, ts in enumerate(feed.ts) for n, t in enumerate(ts))
    stored: list[list[tuple[int, int]]] = [[] for _ in range(streams)]
    for t, s, n in order:
        key = int(feed.keys[s][n])
        chosen = np.array([[t]])
        for other in (o for o in range(streams) if o != s):
            stored[other] = [row for row in stored[other] if row[0] >= t - window_us]
            chosen = _extend(out, chosen, np.array(stored[other], np.int64).reshape(-1, 2), key, window_us)
        out.results += len(chosen)
        stored[s].append((t, key))
    return out


def _extend(out: Compared, chosen: np.ndarray, rows: np.ndarray, key: int, window_us: int) -> np.ndarray:
    """Combinations with one more tuple: those of the key that are near all chosen ones."""
    times = rows[:, 0]
    near = np.ones((len(chosen), len(times)), np.bool_)
    for column in chosen.T:
        for holds in (times[None, :] >= column[:, None] - window_us, times[None, :] <= column[:, None] + window_us):
            out.pairs += int(near.sum())
            near &= holds
    after = times[None, :] >= (chosen.max(axis=1) - window_us)[:, None] if len(chosen) else near
    out.periods += near.size + int(after.sum())
    which, at = np.nonzero(near & (rows[:, 1] == key)[None, :])
    return np.column_stack([chosen[which], times[at]])
