"""The formulas of the optimizer say what the engine is counted to ship, in the paper's sizes."""

from __future__ import annotations

import pytest

from tests.sites.test_optimize import uniform
from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import PAPER, Algorithm, LinearPlan, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import Optimizer
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet.sites.planning.trees import TreeOptimizer, TreePlan, share_copies
from watersmeet_lab.reproduce.semijoin.counting import Counter, OneWay
from watersmeet_lab.reproduce.semijoin.execute import execute
from watersmeet_lab.simulate.network import Network
from watersmeet_lab.simulate.sites.samples import Streams

FEW = 15_000
"""Bytes a second below which single tuples are seen."""


def known(spec: dict[str, tuple[float, int, float]]) -> Statistics:
    return Statistics({a: StreamStatistics(r, f, {"k": d}, {"k": 5.0}) for a, (r, d, f) in spec.items()})


@pytest.mark.parametrize(
    "spec",
    [
        {"a": (300, 10, 1250.0), "b": (300, 10, 1250.0)},
        {"a": (300, 1000, 1250.0), "b": (300, 100, 1250.0)},
    ],
)
def test_formulas_say_what_is_counted(spec):
    """Bytes of every algorithm, within an eighth (a third where only few tuples pass). SM-S2 ships less: a value that was asked for is forgotten at a time, not with its last tuple."""
    query = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_us=1_000_000)
    optimizer = Optimizer(query, known(spec), Setting())
    counter = Counter(Streams(query, uniform(query, spec, 6)), Setting(), 1.5)
    for algorithm in PAPER:
        counter.run("a", (OneWayStep("b", algorithm),))
        counted = counter.costs[OneWay("a", frozenset("a"), "b", algorithm)]
        expected = optimizer.one_way("a", frozenset(), "b", algorithm)
        if algorithm is Algorithm.SM_S2:
            assert counted.bytes <= 1.12 * expected.bytes
            continue
        assert expected.bytes == pytest.approx(counted.bytes, rel=0.33 if counted.bytes < FEW else 0.12), algorithm
        assert expected.shipments == pytest.approx(counted.shipments, abs=10.5), algorithm


def test_formulas_of_trees_say_what_is_counted():
    query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.k = c.k"], window_us=600_000)
    spec = {"a": (100, 50, 500.0), "b": (50, 20, 300.0), "c": (100, 50, 200.0)}
    streams = Streams(query, uniform(query, spec, 5))
    trees = TreeOptimizer(Optimizer(query, known(spec), Setting()))
    plan = TreePlan.of(query, "a, b SP-S/SP-D, c SM-D2/SM-S1")
    counted = execute(streams, plan, Network()).cost(range(10, 48))
    assert share_copies(trees.price(plan)).bytes == pytest.approx(counted.bytes, rel=0.25)


def test_one_way_joins_add_up_to_what_a_plan_ships_that_shares_nothing():
    query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.k = c.k"], window_us=500_000)
    spec = {"a": (60, 10, 500.0), "b": (40, 20, 300.0), "c": (50, 10, 100.0)}
    streams = Streams(query, uniform(query, spec, 3))
    plan = LinearPlan.of(query, {"a": "b SP-D, c SP-D", "b": "c SP-D, a SM-D1", "c": "b SM-D2, a SP-D"})
    counter = Counter(streams, Setting(), 1)
    for head, steps in plan.sequences.items():
        counter.run(head, steps)
    whole = execute(streams, plan, Network()).cost(counter.span)
    assert counter.total(plan).bytes == pytest.approx(whole.bytes, rel=0.02)
