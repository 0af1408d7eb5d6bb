"""Small counted runs obey the paper's equations, and nothing is counted of a wrong answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.lab.reproduce.streams import SMALL, small
from watersmeet.errors import OptionError
from watersmeet.query.scaling import Scaling
from watersmeet.routing.scaling import adjustment
from watersmeet_lab.reproduce.bistream import data
from watersmeet_lab.reproduce.bistream.answer import WrongAnswerError, ask_duckdb, verify
from watersmeet_lab.reproduce.bistream.claims import elasticity
from watersmeet_lab.reproduce.bistream.claims.aggregation import aggregate, check
from watersmeet_lab.reproduce.bistream.claims.elasticity import ElasticCluster, follow_curve
from watersmeet_lab.reproduce.bistream.cluster import Cluster
from watersmeet_lab.reproduce.bistream.command import reproduce
from watersmeet_lab.reproduce.bistream.equations import Relation, memory_of_biclique, memory_of_matrix, units_to_add
from watersmeet_lab.reproduce.bistream.lab import QUICK, Lab, Size
from watersmeet_lab.reproduce.bistream.models import Model
from watersmeet_lab.reproduce.bistream.queries import Q5, Q7
from watersmeet_lab.reproduce.bistream.routes import Storage, count_shipped

EQUI = ("JM4", "JM9", "JB4", "JB8", "JB8-CR2", "JB8-CR4")
CASES = [(q, m) for q in ("Q5", "Q7") for m in EQUI] + [("Band", m) for m in ("JM4", "JB4", "JB8-RG")]


def counted_in_rows(model: Model, rows: list[int]) -> tuple[Relation, Relation]:
    r, s = (model.relation(n, 1) for n in rows)
    return r, s


@pytest.mark.parametrize(("query", "name"), CASES)
def test_stored_rows_follow_equations_1_and_2(query, name):
    model, feed = Model.of(name), SMALL[query]
    cluster = Cluster(feed, model)
    outcome = cluster.run(5)
    verify(outcome, ask_duckdb(feed))
    assert outcome.results.num_rows > 0
    r, s = counted_in_rows(model, [int(w.num_rows) for w in cluster.wires])
    assert outcome.last("stored_rows") == (memory_of_matrix if model.is_matrix else memory_of_biclique)(r, s)
    assert Storage(cluster).rows == [sum(kept.values()) for kept in outcome.kept]


@pytest.mark.parametrize(("query", "name"), [c for c in CASES if c[1] != "JB8-RG"])
def test_shipped_rows_follow_equations_5_and_6(query, name):
    model = Model.of(name)
    cluster = Cluster(SMALL[query], model)
    outcome, routed = cluster.run(4), count_shipped(cluster, cluster.feed.rows)
    assert outcome.total("shipped_rows") == routed.rows == model.bandwidth(*counted_in_rows(model, [*routed.rows_in]))


def test_probes_are_counted_once_per_copy():
    outcome = Cluster(SMALL["Q5"], Model.of("JB8")).run(6)
    assert outcome.total("probes") == pytest.approx(4 * SMALL["Q5"].rows, rel=0.01)
    assert outcome.total("candidates") == pytest.approx(outcome.results.num_rows, rel=0.05)


@pytest.mark.parametrize("window_s", [5, 30])
def test_a_window_bounds_what_is_stored(window_s):
    feed = small(Q5, window_s=window_s)
    outcome = Cluster(feed, Model.of("JB4")).run(60)
    verify(outcome, ask_duckdb(feed))
    batch_s = feed.seconds / 60
    assert outcome.over_time("stored_rows").sum(axis=1).max() <= 1.1 * feed.rate * (window_s + 2 * batch_s)


def test_a_wrong_answer_is_refused():
    feed = SMALL["Q5"]
    outcome = Cluster(feed, Model.of("JB4")).run(2)
    outcome.tables.pop()
    with pytest.raises(WrongAnswerError, match="JB4 on Q5"):
        verify(outcome, ask_duckdb(feed))


def test_the_same_tuples_at_another_rate_are_asked_for_again(tmp_path):
    feed = small(Q7, window_s=2)
    faster = follow_curve(feed, ((0.0, 1.0), (50.0, 3.0)), round(feed.seconds), 2)
    lab = Lab(tmp_path, QUICK)
    for one in (feed, faster):
        verify(Cluster(one, Model.of("JB4")).run(10), lab.ask_duckdb(one))
    assert lab.ask_duckdb(feed) != lab.ask_duckdb(faster)


def test_one_more_unit_of_a_window_join_fills_by_what_arrives():
    feed = small(Q7, window_s=20)
    cluster = ElasticCluster(feed, Model.of("JB4"), Scaling(10**9, low=0.0, hot_keys=False))
    found = cluster.run_elastic(30, 30)
    cluster = ElasticCluster(feed, Model.of("JB4"), Scaling(10**9, low=0.0, hot_keys=False))
    cluster.change(replace(cluster.epochs.current, sides=(((0, 1, 4),), ((2, 3),))))
    grown = cluster.run_elastic(30, 30)
    assert len(cluster.units) == 5
    assert sum(b.entered[4] for b in grown.outcome.batches) > 0
    for run in (found, grown):
        verify(run.outcome, ask_duckdb(feed))


def test_units_come_and_go_with_the_load():
    feed = follow_curve(
        small(Q7, rows=3000), ((0, 1.0), (5, 1.0), (6, 3.0), (14, 3.0), (15, 0.5), (30, 0.5)), 1800, 120
    )
    scaling = Scaling(6_000, hot_keys=False)
    cluster = ElasticCluster(feed, Model.of("JB4"), scaling)
    found = cluster.run_elastic(120, 4)
    verify(found.outcome, ask_duckdb(feed))
    units = [m.units for m in found.minutes]
    assert max(units) > units[0]
    assert units[-1] < max(units)


def elastic(units: list[int], rows: list[dict[int, int]], load: float = 0.6) -> elasticity.Elastic:
    minutes = [
        elasticity.Minute(1.0, n, (load, load), 1, (), by, tuple(range(n))) for n, by in zip(units, rows, strict=True)
    ]
    curve = ((0.0, 1.0), (float(len(units)), 1.0))
    return elasticity.Elastic(curve, [(2.0, 3.5)], elasticity.ElasticOutcome(None, minutes))  # type: ignore[arg-type]


def test_verdicts_on_scaling_can_be_no():
    grown = [8] * 3 + [10] * 20 + [8] * 20
    full, empty = dict.fromkeys(range(10), 100), {u: 100 if u < 8 else 0 for u in range(10)}
    right = elastic(grown, [full] * 20 + [empty] * 23)
    stuck = elastic(grown, [empty] * 20 + [full] * 23, load=0.95)
    assert [elasticity.claim_load([r]).holds for r in (right, stuck)] == ["yes", "no"]
    assert [elasticity.claim_without_migration([r]).holds for r in (right, stuck)] == ["yes", "no"]
    assert elasticity.claim_bursts([right]).holds == "no"
    assert elasticity.claim_bursts([elastic([8] * 20, [empty] * 20)]).holds == "yes"


@pytest.mark.parametrize(("load", "units"), [(0.9, 8), (0.3, 12), (0.85, 5), (0.1, 7)])
def test_scaling_rounds_equation_7_up(load, units):
    exact = units_to_add([load] * units, 1.0, 0.6)
    assert 0 <= adjustment(load, units, 0.6) - exact < 1


@pytest.mark.parametrize("query", ["Q5", "Q7", "Band"])
def test_local_views_ship_less_than_results(query):
    found = aggregate(Cluster(SMALL[query], Model.of("JB4")).run(3))
    assert 0 < found.views < found.results
    assert 0 < found.views_bytes < found.results_bytes


def test_wrong_groups_are_refused():
    cluster = Cluster(replace(SMALL["Q5"], grouped=True), Model.of("JB4"))
    outcome = cluster.run(3)
    check(cluster, outcome)
    outcome.tables.pop()
    with pytest.raises(WrongAnswerError, match="JB4 on Q5"):
        check(cluster, outcome)


def test_streams_are_balanced_in_bytes_and_sorted_in_time():
    for feed in SMALL.values():
        for table in feed.tables:
            assert np.all(np.diff(table.column("ts").to_numpy().astype(np.int64)) >= 0)


def test_data_without_the_generator(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "generator", lambda: None)
    with pytest.raises(OptionError, match="tpchgen-cli"):
        data.generate(data.Dataset(1, 100), tmp_path)


TINY = Size(data.Dataset(1, 100), 1000, 1, 160, 6, ("Q5",), 1)


@pytest.mark.slow
def test_every_claim_on_a_little_of_tpch(tmp_path):
    found = reproduce(TINY, tmp_path)
    counts = [c for c in found.claims if "equation" in c.where]
    assert len(counts) >= 4
    assert {c.claim: c.holds for c in counts if "figure" not in c.where} == {
        c.claim: "yes" for c in counts if "figure" not in c.where
    }
    equal = next(c for c in found.claims if "At equal memory 16" in c.claim)
    assert equal.holds == "yes"
    assert (tmp_path / TINY.dataset.name / "_done").exists()
