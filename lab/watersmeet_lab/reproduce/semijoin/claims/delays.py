"""Section 2.2: what each constraint is for, and heartbeats in place of a bound; answers of plans of all kinds."""

from __future__ import annotations

import random

from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, LinearPlan, SiteQuery
from watersmeet.sites.planning.optimize import Optimizer
from watersmeet.sites.planning.trees import Level, TreePlan
from watersmeet_lab.reproduce.report import Claim, verdict
from watersmeet_lab.reproduce.semijoin.answer import answer_of, ask_duckdb, verify
from watersmeet_lab.reproduce.semijoin.data import TOPOLOGIES, Spec, query_of, statistics_of, streams_of
from watersmeet_lab.reproduce.semijoin.lab import Lab
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.model import Constraint, Outcome, SiteProtocol
from watersmeet_lab.simulate.sites.run import SiteRun
from watersmeet_lab.simulate.sites.streams import Streams

LATENCY_US = 25_000
SLOW = Network(Link(latency_us=LATENCY_US))
SPECS = {"a": Spec(200, 0.02, 500, 400), "b": Spec(150, 0.02, 500, 600)}


def check_delays(lab: Lab) -> list[Claim]:
    """Constraints removed one at a time; then delays beyond delta."""
    query = query_of(SPECS)
    streams = streams_of(query, SPECS, 4)
    right = set(_pairs(streams, SiteRun(_both(query, Algorithm.SP_D), streams).run()))
    verify(
        "SP-D without delays",
        answer_of([SiteRun(_both(query, Algorithm.SP_D), streams).run().results], ("a", "b")),
        ask_duckdb(streams),
    )
    wrong, kept = {}, {}
    constraints: tuple[tuple[Constraint, Algorithm], ...] = (
        ("delayed probe", Algorithm.SP_S), ("delayed removal", Algorithm.SP_D), ("limited match", Algorithm.SP_D),
    )  # fmt: skip
    for constraint, algorithm in constraints:
        lab.say(f"without {constraint}")
        plan = _both(query, algorithm)
        kept[constraint] = _difference(right, _pairs(streams, SiteRun(plan, streams, SLOW).run()))
        wrong[constraint] = _difference(
            right, _pairs(streams, SiteRun(plan, streams, SLOW, SiteProtocol(without=(constraint,))).run())
        )
    return [
        Claim(
            "Delayed probe, delayed removal and limited-interval match are each needed", "2.2, figure 1",
            "without them results are missed, or made that should not be",
            f"{len(right):,} results, 25 ms: " + "; ".join(f"without {c} {m:,} missed and {d:,} too many" for c, (m, d) in wrong.items())
            + "; with all three none",
            verdict([*(sum(w) > 0 for w in wrong.values()), *(sum(k) == 0 for k in kept.values())]),
            raw={"without": wrong, "with": kept},
        ),
        _heartbeats(lab, streams, right),
    ]  # fmt: skip


def _heartbeats(lab: Lab, streams: Streams, right: set[tuple[int, int]]) -> Claim:
    """Delta for 25 ms, and a line that takes a second."""
    slower = Network(Link(latency_us=1_000_000))
    lost, late, beats, correct = {}, {}, {}, []
    for algorithm in Algorithm:
        lab.say(f"heartbeats: {algorithm.value}")
        plan = _both(streams.query, algorithm)
        broken = SiteRun(plan, streams, slower, SiteProtocol(delta_us=LATENCY_US)).run()
        lost[algorithm.value] = sum(_difference(right, _pairs(streams, broken)))
        kept = SiteRun(plan, streams, slower, SiteProtocol(bound="heartbeats")).run()
        correct.append(sum(_difference(right, _pairs(streams, kept))) == 0)
        late[algorithm.value] = kept.counts.latest_us / 1e6
        beats[algorithm.value] = kept.counts.heartbeats / max(kept.counts.shipments, 1)
    return Claim(
        "Heartbeats: a delay beyond every bound makes results late, never wrong", "7, future work",
        "delta fails if the latency exceeds it abruptly",
        f"lines of 1 s under a delta for 25 ms: {min(lost.values()):,} to {max(lost.values()):,} of {len(right):,} results missed or doubled; under"
        f" heartbeats none, with {algorithm_range(beats)} heartbeats per shipment",
        verdict([all(correct), all(n > 0 for n in lost.values())]),
        f"the last result comes {algorithm_range(late)} s after its interval",
        raw={"wrong": lost, "late_s": late, "heartbeats_per_shipment": beats},
    )  # fmt: skip


def algorithm_range(values: dict[str, float]) -> str:
    return f"{min(values.values()):.1f} to {max(values.values()):.1f}"


def check_answers(lab: Lab) -> list[Claim]:
    """Random plans, linear and trees, over the topologies."""
    pick = random.Random(7)
    results, runs = 0, 0
    for number in range(lab.size.plans):
        topology = TOPOLOGIES[number % len(TOPOLOGIES)]
        lab.say(f"answers: {topology}, plan {number + 1} of {lab.size.plans}")
        specs = {
            n: Spec(pick.choice((20, 50)), pick.choice((0.04, 0.1)), 500, pick.choice((200, 400, 800))) for n in "abcd"
        }
        query = query_of(specs, topology)
        streams = streams_of(query, specs, 3, number)
        right = ask_duckdb(streams)
        linear = Optimizer(query, statistics_of(specs), Setting(), tuple(Algorithm)).random(pick).plan
        network = Network(Link(latency_us=20_000, jitter_us=30_000, arrival="in order"), number)
        for plan, protocol in (
            (linear, SiteProtocol()), (linear, SiteProtocol(bound="heartbeats")), (_tree(query, pick), SiteProtocol()),
        ):  # fmt: skip
            found = SiteRun(plan, streams, network, protocol).run()
            results += verify(
                f"{plan} under {protocol.bound}", answer_of([found.results], query.aliases), right
            ).results
            runs += 1
    return [
        Claim(
            "All plans are equivalent", "appendix A", "any join order, placement and method gives the same results",
            f"{runs} runs of random plans of four streams, a third of them trees, with Bloom variants, 20 to 50 ms of delay, delta and"
            f" heartbeats: {results:,} results, count and checksum are DuckDB's in all",
            "yes",
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


def _pairs(streams: Streams, outcome: Outcome) -> list[tuple[int, int]]:
    members = outcome.results.members
    return list(zip(*(members[a].tolist() for a in streams.query.aliases), strict=True))


def _difference(right: set[tuple[int, int]], found: list[tuple[int, int]]) -> tuple[int, int]:
    """Missed, and too many."""
    return len(right - set(found)), len(found) - len(right & set(found))
