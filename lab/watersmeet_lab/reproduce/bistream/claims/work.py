"""Section 6.3, figures 7, 8 and 9: throughput and latency.

A unit's work is counted in probes and candidate pairs, and timed in CPU seconds. Throughput is the input over the seconds of
the busiest unit: what a cluster with a core for every unit could reach, had it no network and routers enough. With the router
in turn, a batch takes the router's seconds and those of the busiest unit: that is given beside it, and figure 8 is held to both.

Latency is simulated from those seconds: batches arrive at 80% of the model's own throughput, a unit serves them in turn,
and a result is there when its unit has finished its batch:

    finish(u, b) = max(finish(u, b - 1), arrival(b) + routing(b)) + service(u, b)

The time that a tuple waits for its batch to close is not in it, nor is any network.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from watersmeet_lab.reproduce.bistream.cluster import Outcome
from watersmeet_lab.reproduce.bistream.lab import LATENCY_ROWS, Lab
from watersmeet_lab.reproduce.bistream.queries import QUERIES
from watersmeet_lab.reproduce.bistream.routes import Storage
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, each, shorts, verdict

LOAD = 0.8
SIMILAR_MS = 10
"""Medians that are no further apart are similar."""


def models(query: str) -> tuple[str, ...]:
    """The settings of figures 7 to 9."""
    return ("JM16", "JB8", "JB16", *(("JB16-CR4", "JB16-CR8") if QUERIES[query].equality else ("JB16-RG",)))


def check_throughput(lab: Lab) -> list[Claim]:
    """Figures 7 and 8."""
    runs = {q: {m: lab.run_repeatedly(q, m) for m in models(q)} for q in lab.queries}
    return [_random_against_matrix(runs), _content_sensitive(runs), _claim_overflow(lab), _band_is_slower(runs)]


def arrivals(outcome: Outcome) -> float:
    """Tuples that a unit gets for every input tuple, on average over units."""
    return float(outcome.per_unit("shipped_rows").mean() / outcome.feed.rows)


def rate(outcome: Outcome, batches: int | None = None) -> float:
    """Input tuples per second of the busiest unit, over the first so many batches."""
    seconds = outcome.over_time("service_s")[:batches].sum(axis=0).max()
    return float(outcome.batches[: batches or None][-1].volume / seconds)


def rate_with_router(outcome: Outcome) -> float:
    """Input tuples per second if one router, then the busiest unit, take every batch in turn."""
    seconds = outcome.over_time("service_s").max(axis=1).sum() + sum(b.route_s for b in outcome.batches)
    return float(outcome.batches[-1].volume / seconds)


def _random_against_matrix(runs: dict[str, dict[str, Outcome]]) -> Claim:
    work = {q: {m: arrivals(o) for m, o in by.items()} for q, by in runs.items()}
    speed = {q: {m: rate(o) for m, o in by.items()} for q, by in runs.items()}
    counted = {q: w["JB16"] / w["JM16"] for q, w in work.items()}
    timed = {q: v["JB16"] / v["JM16"] for q, v in speed.items()}
    routed = {q: rate_with_router(by["JB16"]) / rate_with_router(by["JM16"]) for q, by in runs.items()}
    router = {
        q: [1000 * float(np.mean([b.route_s for b in o.batches])) for o in (by["JM16"], by["JB16"])]
        for q, by in runs.items()
    }
    names = list(dict.fromkeys(m for by in runs.values() for m in by))
    plots = (
        _bars(
            "figure-08-throughput", "Figure 8: input tuples per second of the busiest unit", "tuples/s", names, speed
        ),
        _bars("figure-08-work", "Figure 8: tuples that a unit gets for every input tuple", "tuples", names, work),
    )
    return Claim(
        "In memory JB16 with random routing is slower than JM16: every unit sees all of the other relation",
        "6.3, figure 8, 10 GB",
        "JB16 below JM16; each unit has more tuples to process",
        f"a unit of JB16 gets {each(counted)} times the tuples of one of JM16 (9/16 against 4/16 of the input)",
        verdict(
            [all(t < 1 for t in timed.values()), all(r < 1 for r in routed.values())],
            main=all(c > 1 for c in counted.values()),
        ),
        times=f"JB16's throughput over JM16's: {each(timed)}; with one router before the units: {each(routed)} (the router takes, JM16 and JB16, "
        + ", ".join(f"{q} {a:.1f} and {b:.1f}" for q, (a, b) in router.items())
        + f" ms a batch); tuples/s {_speeds(speed, 'JM16', 'JB16')}",
        raw={"tuples_per_unit": work, "tuples_per_s": speed, "with_router": routed, "router_ms": router},
        plots=plots,
    )


def _content_sensitive(runs: dict[str, dict[str, Outcome]]) -> Claim:
    equi = {q: by for q, by in runs.items() if QUERIES[q].equality}
    chain = ("JB16", "JB16-CR4", "JB16-CR8")
    counted = {f"{q} {m}": arrivals(by[m]) for q, by in equi.items() for m in (*chain, "JM16")}
    speed = {q: {m: rate(by[m]) for m in (*chain, "JM16")} for q, by in equi.items()}
    probes = {q: {m: by[m].per_unit("probes").mean() / by[m].feed.rows for m in chain} for q, by in equi.items()}
    range_work = arrivals(runs["Band"]["JB16-RG"])
    ordered = [all(p[a] > p[b] for a, b in pairwise(chain)) for p in probes.values()]
    faster = [v["JB16"] < v["JB16-CR4"] < v["JB16-CR8"] and v["JB16-CR8"] > v["JM16"] for v in speed.values()]
    return Claim(
        "Content-sensitive routing raises throughput: JB16 < JB16-CR4 < JB16-CR8, the last above JM16",
        "6.3, figures 7 and 8",
        "JB16-CR8 is highest throughout; ContRand is similar to JM16 or better",
        f"tuples that a unit gets per input tuple: {each(counted, '{:.3f}')}, Band JB16-RG {range_work:.3f}",
        verdict([*ordered, *faster], main=all(v["JB16"] < v["JB16-CR8"] for v in speed.values())),
        times="; ".join(f"{q} tuples/s: {shorts(v)}" for q, v in speed.items()),
        raw={"tuples_per_unit": counted, "probes_per_unit": probes, "tuples_per_s": speed},
        plots=(
            Plot(
                "figure-07-throughput", "Figure 7: Q5, tuples per second of the busiest unit, batch by batch",
                "input tuples", "tuples/s", {m: _over_volume(o) for m, o in runs["Q5"].items()},
            ),
        ),
    )  # fmt: skip


def _over_volume(outcome: Outcome) -> tuple[list[int], list[float]]:
    """Throughput of every batch, by the input so far."""
    volume = [b.volume for b in outcome.batches]
    arrived = np.diff([0, *volume])
    return volume, [float(n / b.service_s.max()) for n, b in zip(arrived, outcome.batches, strict=True)]


def _claim_overflow(lab: Lab) -> Claim:
    capacities = {m: Storage(lab.cluster("Q5", m)) for m in ("JM16", "JB8", "JB16")}
    limit = min(s.bytes_per_tuple() for s in capacities.values()) * lab.feed("Q5").rows
    volume = {m: s.volume(limit) for m, s in capacities.items()}
    ratios = {m: v / volume["JM16"] for m, v in volume.items()}
    return Claim(
        "JM16 is the first to leave memory; JB8, with half the units, holds about twice as much",
        "6.3, figures 7 and 8, 80 and 320 GB",
        "Q5: JM16 at 28M tuples, JB8 at 52M (1.86 times); then disk makes it 10 to 100 times slower",
        f"tuples until the fullest unit is full, over JM16's: {each(ratios)}; slowness on disk is not reproduced: units here do not spill",
        verdict([ratios["JB8"] >= 1.7, ratios["JB16"] > ratios["JB8"]]),
        raw={"volume": volume, "limit_bytes": limit},
    )


def _band_is_slower(runs: dict[str, dict[str, Outcome]]) -> Claim:
    pairs = {q: by["JB16"].total("candidates") / by["JB16"].feed.rows for q, by in runs.items()}
    common = min(len(by["JB16"].batches) for by in runs.values())
    speed = {q: rate(by["JB16"], common) for q, by in runs.items()}
    return Claim(
        "Band is much slower than the equi-joins",
        "6.3, figure 8",
        "Q5 and Q7 far above Band; Q5 about 1.5 times Q7",
        f"candidate pairs that indexes hand out per input tuple, JB16: {shorts(pairs)}; a nested loop would test {_all_pairs(runs['Band']['JB16']):,.0f} for Band",
        verdict([2 * speed["Band"] < min(speed["Q5"], speed["Q7"])]),
        times=f"tuples/s over the first {common} batches, JB16: {shorts(speed)}; Q5 over Q7 {speed['Q5'] / speed['Q7']:.2f}",
        raw={"candidates": pairs, "tuples_per_s": speed},
    )


def _all_pairs(outcome: Outcome) -> float:
    """Pairs of all tuples, for every input tuple."""
    left, right = (t.num_rows for t in outcome.feed.tables)
    return left * right / outcome.feed.rows


def check_latency(lab: Lab) -> list[Claim]:
    """Figure 9."""
    boxes: dict[str, dict[str, tuple[float, ...]]] = {}
    for q in lab.size.latency_queries:
        feed = lab.feed(q, most=lab.size.latency_batches * LATENCY_ROWS // 2)
        runs = {m: lab.repeat(lab.run(feed, m, lab.size.latency_batches, ", latency")) for m in models(q)}
        boxes[q] = {m: _box(1000 * _latencies(o)) for m, o in runs.items()}
    medians = {q: {m: b[2] for m, b in by.items()} for q, by in boxes.items()}
    apart = {q: max(abs(m[x] - m["JM16"]) for x in m) for q, m in medians.items()}
    best = {q: m.get("JB16-CR8", m.get("JB16-RG", np.inf)) < m["JM16"] for q, m in medians.items()}
    names = list(dict.fromkeys(m for by in boxes.values() for m in by))
    plot = Plot(
        "figure-09-latency", f"Figure 9: simulated latency at {LOAD:.0%} of each model's throughput", "", "ms",
        {m: [by.get(m) for by in boxes.values()] for m in names}, "boxes", tuple(boxes),
    )  # fmt: skip
    return [
        Claim(
            "JB and JM have similar latency; JB16's is a little larger, JB16-CR8's lower than JM16's",
            "6.3, figure 9",
            "averages within 10 ms of each other",
            "nothing to count: a queue is simulated with the seconds of figure 8's units",
            verdict(
                [all(best.values()), all(m["JB16"] > m["JM16"] for m in medians.values())],
                main=max(apart.values()) <= SIMILAR_MS,
            ),
            times="median ms: "
            + "; ".join(f"{q}: {each(m, '{:.1f}')}" for q, m in medians.items())
            + "; no network, and without the wait for a batch to close",
            raw={"boxes_ms": boxes, "load": LOAD},
            plots=(plot,),
        )
    ]


def _latencies(outcome: Outcome) -> np.ndarray:
    """Simulated seconds from a batch's arrival to each of its results."""
    service = outcome.over_time("service_s")
    interval = service.sum(axis=0).max() / len(service) / LOAD
    finished, found = np.zeros(service.shape[1]), []
    for n, batch in enumerate(outcome.batches):
        arrival = n * interval
        finished = np.maximum(finished, arrival + batch.route_s) + service[n]
        found.append(np.repeat(finished - arrival, batch.results))
    return np.concatenate(found)


def _box(values: np.ndarray) -> tuple[float, ...]:
    """Least, quartiles and most."""
    return tuple(float(v) for v in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))


def _bars(name: str, title: str, y: str, names: list[str], by: dict[str, dict[str, float]]) -> Plot:
    return Plot(name, title, "", y, {m: [v.get(m) for v in by.values()] for m in names}, "bars", tuple(by))


def _speeds(speed: dict[str, dict[str, float]], *names: str) -> str:
    return "; ".join(f"{q}: {shorts({m: v[m] for m in names})}" for q, v in speed.items())
