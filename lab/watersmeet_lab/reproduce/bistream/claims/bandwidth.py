"""Sections 4.3 and 6.5, figures 11, 18 and 19, equations 5 and 6: what travels from the router to the units.

A fifth of a second of input (for Band a second) at each rate goes through the router; rows and bytes are those of the tables
for all units. The small punctuations (one per stream, unit and batch) are not counted, as they are not in the equations.
"""

from __future__ import annotations

from watersmeet_lab.reproduce.bistream.claims.memory import TOLERANCE
from watersmeet_lab.reproduce.bistream.lab import Lab
from watersmeet_lab.reproduce.bistream.models import Model
from watersmeet_lab.reproduce.bistream.queries import QUERIES
from watersmeet_lab.reproduce.bistream.routes import Shipped, count_shipped
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, furthest, verdict

RATES = {
    "Q5": (4_000, 12_000, 20_000, 30_000, 40_000, 60_000),
    "Q7": (10_000, 20_000, 30_000, 40_000, 50_000),
    "Band": (200, 400, 800, 1_200, 1_600),
}
SECONDS = {"Q5": 0.2, "Q7": 0.2, "Band": 1.0}
"""How much of the input goes through the router."""
FIGURES = {"Q5": "11", "Q7": "18", "Band": "19"}


def check_bandwidth(lab: Lab) -> list[Claim]:
    """Equations 5 and 6, and a figure for each query."""
    sent = {q: {m: _at_rates(lab, q, m) for m in models(q)} for q in RATES}
    return [_equations(sent), *(_figure(q, by) for q, by in sent.items())]


def models(query: str) -> tuple[str, ...]:
    """The settings of figure 11: four partitions of each relation."""
    return ("JM16", "JB8", *(("JB8-CR2", "JB8-CR4") if QUERIES[query].equality else ("JB8-RG",)))


def predict_bytes(model: Model, one: Shipped) -> float:
    """Bytes by equation 5 or 6."""
    r, s = (model.relation(n, size / n) for n, size in zip(one.rows_in, one.bytes_in, strict=True))
    return model.bandwidth(r, s)


def _at_rates(lab: Lab, query: str, model: str) -> dict[int, Shipped]:
    lab.say(f"{query}, {model}: what is shipped")
    cluster = lab.cluster(query, model)
    return {rate: count_shipped(cluster, round(rate * SECONDS[query])) for rate in RATES[query]}


def _equations(sent: dict[str, dict[str, dict[int, Shipped]]]) -> Claim:
    apart = {
        f"{q} {m} {rate}/s": one.bytes / predict_bytes(Model.of(m), one) - 1
        for q, by in sent.items()
        for m, rates in by.items()
        for rate, one in rates.items()
        if not m.endswith("RG")
    }
    ranged = [one.bytes / predict_bytes(Model.of("JB8-RG"), one) for one in sent["Band"]["JB8-RG"].values()]
    return Claim(
        "The bandwidth of JB is (n/e + 1) R + (m/d + 1) S, that of JM n R + m S",
        "4.3, equations 5 and 6",
        "formulas",
        f"shipped bytes are within {furthest(apart.values())} of the equations in {len(apart)} cases;"
        f" range routing, which the paper does not have, ships {ranged[-1]:.2f} times equation 5's with subgroups of one unit: a band can touch two cells",
        verdict([abs(a) <= TOLERANCE for a in apart.values()]),
        raw={"deviation": apart},
    )


def _figure(query: str, by: dict[str, dict[int, Shipped]]) -> Claim:
    copies = {m: max(rates.values(), key=lambda o: o.rows) for m, rates in by.items()}
    rows = {m: o.rows / sum(o.rows_in) for m, o in copies.items()}
    series = {m: (list(rates), [o.bytes / SECONDS[query] / 1e6 for o in rates.values()]) for m, rates in by.items()}
    last = max(next(iter(by.values())))
    at_last = {m: rates[last].bytes / SECONDS[query] / 1e6 for m, rates in by.items()}
    ordered = list(rows.values())[1:]
    return Claim(
        f"{query}: JB8 ships more than JM16; content-sensitive routing ships less",
        f"figure {FIGURES[query]}",
        "JB8 highest, then JM16; JB8-CR2 and JB8-CR4 below",
        f"rows shipped per input tuple: {each(rows)}; MB/s at {last:,} tuples/s: {each(at_last)}",
        verdict(
            [rows["JB8"] > rows["JM16"], ordered[-1] < rows["JM16"]], main=ordered == sorted(ordered, reverse=True)
        ),
        raw={"rows_per_tuple": rows, "mb_per_s": {m: list(y) for m, (_, y) in series.items()}},
        plots=(
            Plot(
                f"figure-{FIGURES[query]}-bandwidth", f"Figure {FIGURES[query]}: {query}, router to units",
                "input tuples per second", "MB/s", series,
            ),
        ),
    )  # fmt: skip
