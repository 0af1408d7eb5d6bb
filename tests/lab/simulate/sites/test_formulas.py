"""The formulas of the optimizer say what execution counts."""

from __future__ import annotations

import pytest

from tests.sites.test_optimize import INTERVAL, uniform
from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import Algorithm, SiteQuery
from watersmeet.sites.planning.optimize import Optimizer
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet.sites.planning.trees import TreeOptimizer, TreePlan
from watersmeet_lab.simulate.sites import lockstep
from watersmeet_lab.simulate.sites.run import SiteRun
from watersmeet_lab.simulate.sites.streams import Streams, joint


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        {"a": (300, 10, 1250.0), "b": (300, 10, 1250.0)},
        {"a": (300, 1000, 1250.0), "b": (300, 100, 1250.0)},
        {"a": (100, 100, 500.0), "b": (200, 2000, 900.0)},
        {"a": (10, 50, 500.0), "b": (50, 25, 500.0)},
    ],
)
def test_formulas_say_what_is_counted(spec, rows):
    """Shipments and bytes of every algorithm, within a tenth (a quarter where only few tuples pass)."""
    kind = {"window_rows": 200} if rows else {"window_us": 1_000_000}
    query = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], **kind)
    streams = Streams(query, uniform(query, spec, 24))
    statistics = Statistics({a: StreamStatistics(r, f, {"k": d}, {"k": 5.0}) for a, (r, d, f) in spec.items()})
    optimizer = Optimizer(query, statistics, Setting(), tuple(Algorithm))
    made, keys = joint(streams, frozenset("a"), frozenset("b"), streams.base["b"])
    spans = [(n, n + INTERVAL) for n in range(0, 24_000_000, INTERVAL)]
    heads, arrivals = [streams.base["a"].head(s) for s in spans], [streams.base["b"].arrival(s, keys) for s in spans]
    for algorithm in Algorithm:
        counted = lockstep.run(algorithm, made, heads, arrivals, [s[0] * 2 for s in spans])
        shipments, nbytes, _ = counted.per_second(60, 0.1)
        expected = optimizer.one_way("a", frozenset(), "b", algorithm)
        assert expected.shipments == pytest.approx(shipments, rel=0.1), algorithm
        assert expected.bytes == pytest.approx(nbytes, rel=0.25 if nbytes < 10_000 else 0.12), algorithm


def test_formulas_of_trees_say_what_is_counted():
    query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.k = c.k"], window_us=600_000)
    spec = {"a": (100, 50, 500.0), "b": (50, 20, 300.0), "c": (100, 50, 200.0)}
    streams = Streams(query, uniform(query, spec, 12))
    statistics = Statistics({a: StreamStatistics(r, f, {"k": d}, {"k": 5.0}) for a, (r, d, f) in spec.items()})
    trees = TreeOptimizer(Optimizer(query, statistics, Setting(), tuple(Algorithm)))
    for text in (
        "a, b SP-S/SP-D, c SM-D2/SM-S1",
        "b, c SM-D1/SM-S2, a SMB-S1/SMB-D2",
        "c, b SM-S2/SM-D1, a SP-D/SMB-S2",
    ):
        plan = TreePlan.of(query, text)
        counts, expected = SiteRun(plan, streams).run().counts, trees.price(plan)
        assert expected.bytes == pytest.approx(counts.bytes / 12, rel=0.2), text
        assert expected.shipments == pytest.approx(counts.shipments / 12, rel=0.1), text
