"""Small runs of the semijoin reproduction: claims are made of executed plans, answers are checked, and verdicts can be "no"."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from watersmeet.sites.planning.cost import Setting
from watersmeet.sites.planning.model import PAPER, Algorithm, LinearPlan, OneWayStep
from watersmeet_lab.reproduce.semijoin.answer import Answer, WrongAnswerError, verify
from watersmeet_lab.reproduce.semijoin.claims import delays, figure7, plans, table3
from watersmeet_lab.reproduce.semijoin.counting import Counter, count_plans, orders
from watersmeet_lab.reproduce.semijoin.data import TOPOLOGIES, Spec, query_of, random_specs, skew, streams_of
from watersmeet_lab.reproduce.semijoin.lab import QUICK, Lab

LAB = Lab(replace(QUICK, queries=2, seconds=0.5, plans=1, cases=1, windows_ms=(200,)))
TWO = {"a": Spec(60, 0.1, 500, 300), "b": Spec(40, 0.05, 300, 300)}


def test_the_best_plan_is_the_cheapest_of_all():
    query = query_of(TWO)
    counter = Counter(streams_of(query, TWO, 1.5), Setting(), 0.5)
    best = counter.find_best()
    every = [LinearPlan.of(query, {"a": f"b {x.value}", "b": f"a {y.value}"}) for x, y in product(PAPER, repeat=2)]
    assert len(every) == count_plans(query) == 36
    assert counter.price(best) == pytest.approx(min(map(counter.price, every)))
    assert counter.runs == 12


def test_orders_follow_the_edges():
    specs = dict.fromkeys("abcd", Spec())
    found = {t: [len(list(orders(query_of(specs, t), head))) for head in "abcd"] for t in TOPOLOGIES}
    assert found == {"star": [6, 2, 2, 2], "chain": [1, 3, 3, 1], "cycle": [4, 4, 4, 4], "full": [6, 6, 6, 6]}


def test_a_wrong_answer_is_refused():
    with pytest.raises(WrongAnswerError, match="SP-S: 1 results with checksum 2; DuckDB has 1 with 3"):
        verify("SP-S", Answer(1, 2), Answer(1, 3))


def test_random_queries_are_the_same_every_time():
    assert random_specs("star", 3) == random_specs("star", 3) != random_specs("star", 4)
    hot = streams_of(query_of(TWO), skew(TWO), 5).samples["a"].codes["k"]
    assert (hot == 0).mean() > 0.5


def test_compared_plans_are_executed():
    found = table3.compare(LAB, "chain", 0, skewed=True)
    assert min(found.printed, found.beam, found.exhaustive) >= 1 - 1e-9
    assert found.plans > 1000
    assert found.runs == 26


def test_verdicts_of_table_3_can_be_no():
    near = table3.Compared(1.0, 1.0, 1.0, 0.5, 0.9, 1, 1)
    far = table3.Compared(1.9, 1.0, 1.5, 1.2, 1.3, 1, 1)
    good, bad = ({t: [c] for t in TOPOLOGIES} for c in (near, far))
    estimated = {t: [1.0] for t in TOPOLOGIES}
    for printed, beam, compared in (("yes", "yes", good), ("no", "yes", bad)):
        assert table3.claim_search("printed", compared, estimated).holds == printed
        assert table3.claim_search("beam", compared, estimated).holds == beam
        assert table3.claim_skewed("printed", compared).holds == printed
    assert [table3.claim_choice("uniform", c).holds for c in (good, bad)] == ["yes", "no"]
    assert [table3.claim_trees(c, c).holds for c in (good, bad)] == ["yes", "no"]


def test_wrong_answers_of_plans_are_a_no(monkeypatch):
    assert delays.check_answers(LAB)[0].holds == "yes"
    monkeypatch.setattr(delays, "ask_duckdb", lambda streams: Answer(-1, 0))
    assert delays.check_answers(LAB)[0].holds == "no"


def test_a_wrong_answer_of_a_one_way_join_is_a_no_and_nothing_is_counted(monkeypatch):
    def run(self, head, steps):
        verify(f"{head}: {steps[0]}", Answer(1, 2), Answer(1, 3))

    monkeypatch.setattr(figure7.Counter, "run", run)
    (claim,) = figure7.check_figure7(LAB)
    assert claim.holds == "no"
    assert "but a: b SP-S: 1 results with checksum 2; DuckDB has 1 with 3" in claim.counts


def test_figure_9_is_executed():
    (claim,) = plans.check_figure9(LAB)
    assert set(claim.raw) == {"tuple size", "selectivity", "rate", "window"}
    assert all(r >= 1 - 1e-9 for rs in claim.raw.values() for r in rs)


def test_a_sweep_of_figure_7():
    runs = figure7.Runs(LAB)
    sweep = runs.sweep("c", "f", (0.05, 0.1), lambda v: Spec(selectivity=v, window_ms=500))
    assert runs.results > 0
    nbytes = {a: [c.bytes for c in sweep.costs[a]] for a in PAPER}
    assert nbytes[Algorithm.SP_D][0] == pytest.approx(nbytes[Algorithm.SP_D][1], rel=0.02)
    assert nbytes[Algorithm.SM_S1][1] > 1.5 * nbytes[Algorithm.SM_S1][0]
    assert sweep.plot.series["SP-S"][0] == [0.05, 0.1]
    assert set(sweep.raw) == {a.value for a in PAPER}


def test_a_sequence_is_run_by_itself():
    """Only what the head's rows need is shipped."""
    query = query_of(TWO)
    counter = Counter(streams_of(query, TWO, 1.5), Setting(), 0.5)
    found = counter.run("a", (OneWayStep("b", Algorithm.SP_D),))
    assert {(s.sender, s.receiver, s.kind) for s in found.shipments} == {("A", "B", "rows 0 0")}
    assert sum(s.nbytes for s in found.shipments) == 500 * sum(s.rows for s in found.shipments)
