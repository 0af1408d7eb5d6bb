"""Section 2.2: what each constraint is for, and heartbeats in place of a bound; answers of plans of all kinds."""

from __future__ import annotations

import random
from collections import Counter

from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, LinearPlan, SiteQuery
from watersmeet.sites.planning.optimize import Optimizer
from watersmeet.sites.planning.trees import Level, TreePlan
from watersmeet_lab.reproduce.report import Claim, verdict
from watersmeet_lab.reproduce.semijoin.answer import ask_duckdb
from watersmeet_lab.reproduce.semijoin.data import TOPOLOGIES, Spec, query_of, statistics_of, streams_of
from watersmeet_lab.reproduce.semijoin.execute import Execution, execute
from watersmeet_lab.reproduce.semijoin.lab import Lab
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.bounded import Bound, Constraint, under
from watersmeet_lab.simulate.sites.samples import Streams

LATENCY_US = 25_000
SLOW, SLOWER = Network(Link(latency_us=LATENCY_US)), Network(Link(latency_us=1_000_000))
SPECS = {"a": Spec(200, 0.02, 500, 400), "b": Spec(150, 0.02, 500, 600)}

Pairs = Counter[tuple[int, int]]


def check_delays(lab: Lab) -> list[Claim]:
    """Constraints removed one at a time; then delays beyond delta."""
    query = query_of(SPECS)
    streams = streams_of(query, SPECS, 3)
    right = _pairs(execute(streams, _both(query, Algorithm.SP_D), SLOW))
    is_right = sum(right.values()) == ask_duckdb(streams).results
    wrong, kept = dict[Constraint, tuple[int, int]](), dict[Constraint, tuple[int, int]]()
    constraints: tuple[tuple[Constraint, Algorithm], ...] = (
        ("delayed probe", Algorithm.SP_S), ("delayed removal", Algorithm.SP_D), ("limited match", Algorithm.SP_D),
    )  # fmt: skip
    for constraint, algorithm in constraints:
        lab.say(f"without {constraint}")
        for out, bound in ((kept, Bound(LATENCY_US)), (wrong, Bound(LATENCY_US, (constraint,)))):
            found = execute(streams, _both(query, algorithm), SLOW, carrier=under(bound))
            out[constraint] = _difference(right, _pairs(found))
    return [
        Claim(
            "Delayed probe, delayed removal and limited-interval match are each needed", "2.2, figure 1",
            "without them results are missed, or made that should not be",
            f"{sum(right.values()):,} results, 25 ms, a delta of 25 ms: "
            + "; ".join(f"without {c} {m:,} missed and {d:,} too many" for c, (m, d) in wrong.items())
            + f"; with all three {sum(m + d for m, d in kept.values()):,}",
            verdict([*(sum(w) > 0 for w in wrong.values()), *(sum(k) == 0 for k in kept.values())], main=is_right),
            raw={"without": wrong, "with": kept},
        ),
        _heartbeats(lab, streams, right),
    ]  # fmt: skip


def _heartbeats(lab: Lab, streams: Streams, right: Pairs) -> Claim:
    """Delta for 25 ms, and a line that takes a second."""
    lost, late, beats, wrong = {}, {}, {}, {}
    for algorithm in Algorithm:
        lab.say(f"heartbeats: {algorithm.value}")
        plan, name = _both(streams.query, algorithm), algorithm.value
        broken = execute(streams, plan, SLOWER, carrier=under(Bound(LATENCY_US)))
        lost[name] = sum(_difference(right, _pairs(broken)))
        found = execute(streams, plan, SLOWER)
        wrong[name] = sum(_difference(right, _pairs(found)))
        late[name] = found.counts["latest_us"] / 1e6
        beats[name] = found.counts["heartbeats"] / max(found.counts["shipments"], 1)
    return Claim(
        "Heartbeats: a delay beyond every bound makes results late, never wrong", "7, future work",
        "delta fails if the latency exceeds it abruptly",
        f"lines of 1 s under a delta of 25 ms: {min(lost.values()):,} to {max(lost.values()):,} of {sum(right.values()):,} results missed or doubled; under"
        f" heartbeats {max(wrong.values())}; {_range(beats)} of the letters bring nothing but a heartbeat",
        verdict([all(lost.values())], main=not any(wrong.values())),
        f"the last result comes {_range(late)} s after the streams have ended",
        raw={"wrong": lost, "late_s": late, "heartbeats_per_letter": beats},
    )  # fmt: skip


def _range(values: dict[str, float]) -> str:
    return f"{min(values.values()):.2f} to {max(values.values()):.2f}"


def check_answers(lab: Lab) -> list[Claim]:
    """Random plans, linear and trees, over the topologies."""
    pick = random.Random(7)
    results, runs, wrong = 0, 0, list[str]()
    for number in range(lab.size.plans):
        topology = TOPOLOGIES[number % len(TOPOLOGIES)]
        lab.say(f"answers: {topology}, plan {number + 1} of {lab.size.plans}")
        specs = {
            n: Spec(pick.choice((20, 50)), pick.choice((0.04, 0.1)), 500, pick.choice((200, 400, 800))) for n in "abcd"
        }
        query = query_of(specs, topology)
        streams = streams_of(query, specs, 2, number)
        right = ask_duckdb(streams)
        network = Network(Link(latency_us=20_000, jitter_us=230_000, arrival="in order"), number)
        linear = Optimizer(query, statistics_of(specs), Setting(), tuple(Algorithm)).random(pick).plan
        for plan in (linear, _tree(query, pick)):
            found = execute(streams, plan, network).answer
            wrong += [str(plan)] if found != right else []
            results, runs = results + found.results, runs + 1
    return [
        Claim(
            "All plans are equivalent", "appendix A", "any join order, placement and method gives the same results",
            f"{runs} runs of random plans of four streams, half of them trees, with Bloom variants, 20 to 250 ms of delay: {results:,} results;"
            f" count and checksum are DuckDB's in {runs - len(wrong)}",
            "no" if wrong else "yes", raw={"wrong": wrong},
        )
    ]  # fmt: skip


def _tree(query: SiteQuery, pick: random.Random) -> TreePlan:
    order = [pick.choice(query.aliases)]
    here = [a for a in Algorithm if a in AT_SOURCE]
    there = [a for a in Algorithm if a not in AT_SOURCE]
    levels = []
    while len(order) < len(query.aliases):
        order.append(pick.choice([a for a in query.aliases if a not in order and query.between(order, a)]))
        both = pick.choice(here), pick.choice(there)
        levels.append(Level(order[-1], *(both if pick.random() < 0.5 else both[::-1])))
    return TreePlan(query, order[0], tuple(levels))


def _both(query: SiteQuery, algorithm: Algorithm) -> LinearPlan:
    return LinearPlan.of(query, {"a": f"b {algorithm.value}", "b": f"a {algorithm.value}"})


def _pairs(found: Execution) -> Pairs:
    return Counter(pair for t in found.results for pair in zip(*(c.to_pylist() for c in t.columns), strict=True))


def _difference(right: Pairs, found: Pairs) -> tuple[int, int]:
    """Missed, and too many."""
    return sum((right - found).values()), sum((found - right).values())
