"""Sections 4.2 and 6.4, figures 10 and 15 to 17, equations 3 and 4, table 4: how much a cluster can hold as it grows.

A unit's memory is limited so that 64 units of the join-biclique are nearly full at the end of the streams; the maximum
processing volume is the number of input tuples when the first unit is full. Where tuples are stored comes from the router
(`routes.Storage`), and is checked against what units stored.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.reproduce.bistream.claims.memory import TOLERANCE, deviation
from watersmeet_lab.reproduce.bistream.equations import scaling_gain_of_column, scaling_gain_of_row
from watersmeet_lab.reproduce.bistream.lab import Lab
from watersmeet_lab.reproduce.bistream.routes import Storage
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, furthest, shorts, verdict

SQUARES = (4, 16, 36, 64)
MORE = (4, 8, 16, 24, 32, 40, 48, 56, 64)
FILLED = 0.9
FIGURES = {"Q7": "10", "Q5": "15", "Band": "16"}
TABLE_4: dict[tuple[str, int], tuple[float, ...]] = {
    ("Q5", 50_000): (278, 549, 1262, 140, 207), ("Q5", 80_000): (171, 351, 785, 88, 136),
    ("Q7", 30_000): (572, 1167, 2636, 292, 439), ("Q7", 50_000): (341, 697, 1543, 173, 262),
}  # fmt: skip
SETTINGS = ("JB8", "JB16", "JB36", "JM16", "JM36")
UNIT_BYTES = 1.5e9
"""Section 6.2's memory saturation threshold."""


def check_scalability(lab: Lab) -> list[Claim]:
    """Figures 10, 15, 16 and 17, and the number of tuples at equal memory."""
    volumes = {q: _volumes(lab, q) for q in lab.queries}
    return [_equal_memory(lab), *(_claim_scaling(q, v) for q, v in volumes.items()), _linear(volumes)]


def limit_bytes(lab: Lab, query: str) -> float:
    """The memory of a unit: 64 of them hold 90% of the streams, each stored once."""
    cluster = lab.cluster(query, "JB64")
    return FILLED * sum(w.num_rows * b for w, b in zip(cluster.wires, cluster.tuple_bytes, strict=True)) / 64


def _volumes(lab: Lab, query: str) -> dict[str, float]:
    limit = limit_bytes(lab, query)
    names = [*(f"JM{x}" for x in SQUARES), *(f"JB{x}" for x in sorted({*SQUARES, *MORE}))]
    found = {}
    for name in names:
        lab.say(f"{query}, {name}: where tuples are stored")
        found[name] = Storage(lab.cluster(query, name)).volume(limit)
    return found


def _equal_memory(lab: Lab) -> Claim:
    rows, same, apart = {}, [], []
    for name in ("JB16", "JM16", "JB64", "JM64"):
        outcome = lab.outcome("Q7", name)
        rows[name] = outcome.last("stored_rows") / outcome.feed.rows
        apart.append(deviation(lab, outcome))
        same.append(Storage(lab.cluster("Q7", name)).rows == [sum(k.values()) for k in outcome.kept])
    ratios = {"16 units": rows["JM16"] / rows["JB16"], "64 units": rows["JM64"] / rows["JB64"]}
    return Claim(
        "At equal memory 16 units of JB hold 4 times, 64 at least 7.5 times the tuples of JM",
        "4.1 and 6.4, figure 10",
        "Q7: 76M against 19M with 16 units (4.0), 290M against 37M with 64 (7.8)",
        f"Q7, rows that units stored: {each(ratios)} times; within {furthest(apart)} of equations 1 and 2;"
        f" every unit stored what the router sends it: {all(same)}",
        verdict(
            [*same, *(abs(a) <= TOLERANCE for a in apart)],
            main=ratios["16 units"] >= 3.96 and ratios["64 units"] >= 7.5,
        ),
        raw={"copies": rows, "ratios": ratios},
    )


def _claim_scaling(query: str, volume: dict[str, float]) -> Claim:
    series = {kind: (list(SQUARES), [volume[f"{kind}{x}"] for x in SQUARES]) for kind in ("JB", "JM")}
    growth = {kind: volume[f"{kind}64"] / volume[f"{kind}16"] for kind in ("JB", "JM")}
    ratio = {f"{x} units": volume[f"JB{x}"] / volume[f"JM{x}"] for x in SQUARES}
    said = "JB 76M to 290M (3.8 times), JM 19M to 37M (1.9 times)" if query == "Q7" else "as figure 10"
    return Claim(
        f"{query}: from 16 to 64 units JB's maximum volume grows about fourfold, JM's twofold",
        f"figure {FIGURES[query]}",
        said,
        f"JB grows {growth['JB']:.2f} times, JM {growth['JM']:.2f}; JB over JM by the fullest unit: {each(ratio)}",
        verdict([growth["JM"] <= 2.2, ratio["64 units"] > ratio["16 units"] > 3], main=growth["JB"] >= 3.6),
        raw={"volume": volume},
        plots=(
            Plot(
                f"figure-{FIGURES[query]}-scalability", f"Figure {FIGURES[query]}: {query}, maximum processing volume",
                "units", "input tuples", series,
            ),
        ),
    )  # fmt: skip


def _linear(volumes: dict[str, dict[str, float]]) -> Claim:
    per_unit = {q: [v[f"JB{x}"] / x for x in MORE] for q, v in volumes.items()}
    spread = {q: 1 - min(p) / max(p) for q, p in per_unit.items()}
    series = {q: (list(MORE), [v[f"JB{x}"] for x in MORE]) for q, v in volumes.items()}
    return Claim(
        "JB's maximum volume grows linearly, for any number of units",
        "D, figure 17",
        "linear from 4 to 64 units",
        f"volume per unit varies by {each(spread, '{:.1%}')} from 4 to 64 units (chance: the fullest of more, smaller units is further from the mean)",
        verdict([s <= 0.15 for s in spread.values()]),
        raw={"volume_per_unit": per_unit},
        plots=(Plot("figure-17-linear", "Figure 17: JB, maximum processing volume", "units", "input tuples", series),),
    )


def check_scaling_gain(lab: Lab) -> list[Claim]:
    """Equations 3 and 4, on the cells of JM16 after a run."""
    outcome, cluster = lab.outcome("Q7", "JM16"), lab.cluster("Q7", "JM16")
    capacity = 1.5 * outcome.batches[-1].stored_bytes.max()
    r, s = (outcome.model.relation(w.num_rows, b) for w, b in zip(cluster.wires, cluster.tuple_bytes, strict=True))
    by_alias = {a: np.array([k[a] for k in outcome.kept]) for a in outcome.feed.query.aliases}
    # Along a row of the matrix lie all partitions of S, along a column all of R: a new row or column copies one of each.
    columns = [by_alias[outcome.feed.query.aliases[1]][:4], by_alias[outcome.feed.query.aliases[0]][::4]]
    counted = [float(np.mean(1 - c * x.tuple_bytes / capacity)) for c, x in zip(columns, (s, r), strict=True)]
    wanted = [scaling_gain_of_row(capacity, s), scaling_gain_of_column(capacity, r)]
    return [
        Claim(
            "A new row or column of JM is partly filled with replicas; a new unit of JB is all gain",
            "4.2, equations 3 and 4",
            "SGR = 1 - replicas / capacity; 1 for JB",
            f"JM16, Q7, units two thirds full: SGR {counted[0]:.3f} for a row, {counted[1]:.3f} for a column;"
            f" the equations say {wanted[0]:.3f} and {wanted[1]:.3f}; JB: 1 (nothing is copied, see the row on scaling out)",
            verdict([abs(c - w) <= TOLERANCE for c, w in zip(counted, wanted, strict=True)]),
            raw={"counted": counted, "equations": wanted, "capacity": capacity},
        )
    ]


def check_largest_window(lab: Lab) -> list[Claim]:
    """Table 4: the window at which the fullest unit holds 1.5 GB, from the bytes that a tuple costs there."""
    cost = {q: {m: Storage(lab.cluster(q, m)).bytes_per_tuple() for m in SETTINGS} for q in ("Q5", "Q7")}
    found = {(q, rate): tuple(UNIT_BYTES / (cost[q][m] * rate) for m in SETTINGS) for q, rate in TABLE_4}
    ours, theirs = (_ratios(t) for t in (found, TABLE_4))
    seconds = {f"{q} at {rate // 1000}K/s": dict(zip(SETTINGS, w, strict=True)) for (q, rate), w in found.items()}
    longest = all(w[1] > w[3] and w[2] > w[4] and w[0] > w[3] for w in found.values())
    close = all(abs(ours[k] / theirs[k] - 1) <= 0.1 for k in ours)
    return [
        Claim(
            "With the same memory JB supports larger windows than JM, even JB8 than JM16",
            "C, table 4",
            f"ratios of windows: {each(theirs)}",
            f"ratios of windows: {each(ours)}",
            verdict([close, longest], main=longest),
            times="seconds at 1.5 GB per unit, derived: " + "; ".join(f"{k}: {shorts(v)}" for k, v in seconds.items()),
            raw={
                "seconds": seconds,
                "bytes_per_tuple": cost,
                "paper": {f"{q} {r}": w for (q, r), w in TABLE_4.items()},
            },
        )
    ]


def _ratios(table: dict[tuple[str, int], tuple[float, ...]]) -> dict[str, float]:
    """Windows of settings over each other, averaged over queries and rates."""
    pairs = {"JB8/JM16": (0, 3), "JB16/JM16": (1, 3), "JB36/JM36": (2, 4), "JB16/JB8": (1, 0), "JM36/JM16": (4, 3)}
    return {name: float(np.mean([w[a] / w[b] for w in table.values()])) for name, (a, b) in pairs.items()}
