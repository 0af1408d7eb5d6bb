"""Small runs of the semijoin reproduction: every claim is made, answers are checked, counted plans are executed plans."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import PAPER, Algorithm, LinearPlan
from watersmeet_lab.reproduce.semijoin.answer import Answer, WrongAnswerError, answer_of, ask_duckdb, verify
from watersmeet_lab.reproduce.semijoin.claims import delays, figure7, plans, table3
from watersmeet_lab.reproduce.semijoin.counting import Counter
from watersmeet_lab.reproduce.semijoin.data import TOPOLOGIES, Spec, query_of, random_specs, streams_of
from watersmeet_lab.reproduce.semijoin.lab import Lab, Size
from watersmeet_lab.simulate.sites.run import SiteRun

LAB = Lab(Size(queries=3, counted=1, seconds=1.0, repeats=1, world_cup_s=0.2, plans=4))
THREE = {"a": Spec(60, 0.1, 500, 400), "b": Spec(40, 0.05, 300, 300), "c": Spec(50, 0.1, 100, 500)}


def test_counted_plans_are_executed_plans():
    """One-way joins counted one by one add up to what a run of the plan ships."""
    query = query_of(THREE)
    streams = streams_of(query, THREE, 3)
    counter = Counter(streams, Setting(), 0)
    for algorithm in PAPER:
        plan = LinearPlan.of(
            query,
            {
                h: f"{x} {algorithm.value}, {y} {algorithm.value}"
                for h, x, y in (("a", "b", "c"), ("b", "c", "a"), ("c", "b", "a"))
            },
        )
        cost = counter.plan(plan)
        run = SiteRun(plan, _until(streams, counter.spans[-1][1])).run()
        seconds = len(counter.spans) * 0.1
        assert run.counts.bytes == pytest.approx(cost.bytes * seconds)
        assert run.counts.shipments == pytest.approx(cost.shipments * seconds)
        assert answer_of([run.results], query.aliases) == ask_duckdb(_until(streams, counter.spans[-1][1]))


_until = figure7._until


def test_flows_are_what_heads_become():
    query = query_of(THREE)
    streams = streams_of(query, THREE, 3)
    counter = Counter(streams, Setting(), 0)
    rows = counter.flow("b", frozenset("abc"))
    assert answer_of([rows], query.aliases) == ask_duckdb(_until(streams, counter.spans[-1][1]), "b")
    assert np.all(np.diff(rows.at) >= 0)


def test_a_wrong_answer_is_refused():
    with pytest.raises(WrongAnswerError, match="SP-S: 1 results with checksum 2; DuckDB has 1 with 3"):
        verify("SP-S", Answer(1, 2), Answer(1, 3))


def test_random_queries_are_the_same_every_time():
    assert random_specs("star", 3) == random_specs("star", 3) != random_specs("star", 4)
    edges = {t: len(query_of(random_specs(t, 0), t).edges) for t in TOPOLOGIES}
    assert edges == {"star": 3, "chain": 3, "cycle": 4, "full": 6}


def test_claims_on_plans_and_delays():
    found = [
        *delays.check_answers(LAB),
        *delays.check_delays(LAB),
        *plans.check_one_in_ten(LAB),
        *plans.check_figure9(LAB),
    ]
    assert [c.holds for c in found] == ["yes"] * 5


def test_claims_on_table_3(monkeypatch):
    monkeypatch.setattr(table3, "RANDOM", 2)
    monkeypatch.setattr(table3, "TOP", 2)
    monkeypatch.setattr(table3, "SECONDS", 1.0)
    estimated, executed, chosen, quick, trees = table3.check_table3(LAB)
    assert set(estimated.raw["wide"]) == set(executed.raw["greedy"]) == set(TOPOLOGIES)
    for literal, wide in zip(estimated.raw["literal"].values(), estimated.raw["wide"].values(), strict=True):
        assert all(1 - 1e-9 <= w <= x + 1e-9 for x, w in zip(literal, wide, strict=True))
    assert all(d < 1.5 for ds in chosen.raw["distance"].values() for d in ds)
    assert set(quick.raw["ms"]) == {4, 6, 8}
    assert all(0.2 < r < 1.5 for rs in trees.raw.values() for r in rs)


def test_a_sweep_of_figure_7():
    runs = figure7.Runs(LAB)
    sweep = runs.sweep("c", "f", (0.05, 0.1), lambda v: Spec(selectivity=v, window_ms=500))
    assert runs.results > 0
    nbytes = {a: [c.bytes for c in sweep.costs[a]] for a in PAPER}
    assert nbytes[Algorithm.SP_D][0] == pytest.approx(nbytes[Algorithm.SP_D][1], rel=0.02)
    assert nbytes[Algorithm.SM_S1][1] > 1.5 * nbytes[Algorithm.SM_S1][0]
    assert sweep.plot.series["SP-S"][0] == [0.05, 0.1]
    assert set(sweep.raw) == {a.value for a in PAPER}
