"""The W-join reproduction: right answers or none, comparisons that follow the paper's claims, and its files."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from tests.cli.command import watersmeet
from watersmeet.kernels.problem import PURGED, STORED, counters
from watersmeet_lab.reproduce.wjoin.answer import Answer, WrongAnswerError, ask_duckdb, digest
from watersmeet_lab.reproduce.wjoin.claims import baselines, path, periods
from watersmeet_lab.reproduce.wjoin.claims.path import both_ways, run_pipeline, run_sweep
from watersmeet_lab.reproduce.wjoin.data import DAY, HOUR, RUN, Feed, alternate_rate, exponential, stores
from watersmeet_lab.reproduce.wjoin.flights import flights
from watersmeet_lab.reproduce.wjoin.lab import QUICK, Lab, Run, uniform

FEW = exponential([50, 20, 40], 40, 4, seed=5)
WINDOWS = uniform(3, 200_000)


def test_duckdb_finds_what_a_loop_finds():
    rows = [
        c
        for c in product(*(range(len(t)) for t in FEW.ts))
        if len({int(k[i]) for k, i in zip(FEW.keys, c, strict=True)}) == 1
        and np.ptp([t[i] for t, i in zip(FEW.ts, c, strict=True)]) <= 200_000
    ]
    assert rows
    assert ask_duckdb(FEW, [WINDOWS]) == digest(np.array(rows).T)


@pytest.mark.parametrize("order", ["in turn", "in time"])
@pytest.mark.parametrize("kernel", ["nlw", "hw", "mw", "lca", "ripple", "xjoin", "gca(mw)"])
def test_all_kernels_agree(kernel, order):
    lab = Lab(QUICK)
    run = lab.run(kernel, FEW, WINDOWS, order)
    assert lab.verified == [(kernel, FEW.name, run.answer)]
    assert run.consumed == run.counts[PURGED] + run.counts[STORED] <= FEW.rows


def test_a_wrong_answer_ends_everything():
    lab = Lab(QUICK)
    run = lab.run("nlw", FEW, WINDOWS)
    with pytest.raises(WrongAnswerError, match=r"nlw on exponential.*but DuckDB has"):
        lab.check(run, FEW, [WINDOWS + 50_000])


def test_one_row_instead_of_another_changes_the_checksum():
    rows = np.array([[1, 2], [3, 4]])
    assert digest(rows) != digest(rows[:, ::-1][[1, 0]])
    assert digest(rows[:, :1]) + digest(rows[:, 1:]) == digest(rows)
    assert digest(rows[:, :0]) == Answer(0, 0)


def test_both_ways_of_a_path_by_both_algorithms():
    """Times are rounded to tenths of a second, so some paths happen at one instant."""
    drawn = exponential([30, 20, 40, 30], 60, 2, seed=3)
    feed = Feed("path", tuple(t // 100_000 * 100_000 for t in drawn.ts), drawn.keys)
    runs = [run_pipeline(Lab(QUICK), feed, "nlw"), run_pipeline(Lab(QUICK), feed, "hw"), run_sweep(Lab(QUICK), feed)]
    there, back = (np.array(way.bounds) for way in both_ways(QUICK.window_us).alternatives)
    assert runs[0].answer == runs[1].answer == runs[2].answer == ask_duckdb(feed, [there, back])
    assert 0 < runs[0].answer.results < ask_duckdb(feed, [there]).results + ask_duckdb(feed, [back]).results


def test_the_curve_adds_up():
    run = Lab(QUICK).run("nlw", exponential([1000] * 2, 3000, 50, 1), uniform(2, 100_000))
    at, comparisons, _ = run.per_thousand()
    assert at[-1] == run.consumed == 6000
    assert sum(comparisons) / len(comparisons) == pytest.approx(run.comparisons, rel=0.01)


def test_rates_are_what_they_say():
    level = exponential([1000, 100], 2000, 10, 7)
    assert [len(t) / (t[-1] / 1e6) for t in level.ts] == pytest.approx([1000, 100], rel=0.1)
    gaps = np.diff(alternate_rate(level, 10, 1000, 7).ts[-1])
    slow, fast = gaps[: RUN - 1].mean(), gaps[RUN : 2 * RUN - 1].mean()
    assert 50 < slow / fast < 200


def test_stores_open_and_close():
    feed = stores(2, 200, 3, 50, 1)
    clock = feed.ts[0] % DAY / HOUR
    assert 7.5 <= clock.min() < clock.max() <= 20
    assert feed.rows == pytest.approx(2 * 200 * 12.5 * 3, rel=0.05)
    assert np.bincount(feed.keys[0]).argmax() == 0


def test_flights_are_read_by_carrier_in_time_order(tmp_path):
    path = tmp_path / "flights.csv"
    path.write_text(
        "carrier,dest,minute,time_hour\nUA,DEN,30,2013-01-01T10:00:00Z\nUA,ORD,5,2013-01-01T10:00:00Z\n"
        "F9,DEN,0,2013-01-02T09:00:00Z\nF9,DEN,0,2013-03-02T09:00:00Z\n"
    )
    feed = flights(path, ("UA", "F9"), 10)
    assert [len(t) for t in feed.ts] == [2, 1]
    assert feed.ts[0][1] - feed.ts[0][0] == 25 * 60 * 1_000_000
    assert feed.keys[0][1] == feed.keys[1][0] != feed.keys[0][0]


def test_the_quick_form_counts_what_the_paper_claims(tmp_path):
    """Claims that counts alone decide; service times are no matter for a test."""
    result = watersmeet("reproduce", "wjoin", "--quick", "--json", "found.json", "--plots", "figures", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    claims = {c["where"]: c for c in json.loads((tmp_path / "found.json").read_text())["claims"]}
    assert claims["4.3, figure 9a"]["holds"] == "yes"
    assert claims["4.3, figure 9c"]["holds"] == "yes"
    for where, least in (("0.8 s and 1 s", 1.0), ("0.1 s and 1 s", 2.0)):
        raw = claims[f"5.3, figure 13, windows of {where}"]["raw"]
        assert raw["gca(mw)"][0][0] > least * raw["lca"][0][0]
    small, large = (claims[f"5.3, figure 14, {v} variation"]["raw"] for v in ("small", "large"))
    assert small["nlw 75"][0] < small["lca 75"][0]
    assert large["lca 75"][0] < large["nlw 75"][0]
    for n in (2, 3, 4):
        for where, ours, baseline in (("figure 7", "nlw", "ripple"), ("figure 8", "hw", "xjoin")):
            counted = claims[f"4.3, {where}"]["raw"]["comparisons"]
            assert counted[f"{n}-way {ours}"] < counted[f"{n}-way {baseline}"]
    drawn = {p.stem for p in (tmp_path / "figures").glob("*.png")}
    assert {
        "figure-07-4-way-comparisons",
        "figure-08-2-way-service",
        "figure-09a-comparisons",
        "figure-09c-service",
    } <= drawn
    assert {"figure-13-comparisons", "figure-14-comparisons", "figure-14-service"} <= drawn


def test_pairs_and_periods_keep_the_same_candidates():
    lab = Lab(QUICK)
    feed = exponential([1000, 1000, 1000], 60, 3, 1)
    found = periods.join(feed, 15_000)
    assert found.results == lab.ask_duckdb(feed, [uniform(3, 15_000)]).results > 0
    assert found.pairs > found.periods
    two = periods.join(exponential([1000, 1000], 60, 3, 1), 15_000)
    assert two.pairs == two.periods


def test_what_refinement_compares_is_counted():
    """One candidate that goes there: three hops, two comparisons each. One that goes back fails the first hop at once, and takes six more."""
    feed = Feed("", tuple(np.array([n, 3 - n]) for n in range(4)), (np.zeros(2, np.int64),) * 4)
    refine = path.Refinement(feed, path.both_ways(5).alternatives)
    assert refine(np.zeros((4, 1), np.int64)).tolist() == [True]
    assert refine.compared == 6
    assert refine(np.ones((4, 1), np.int64)).tolist() == [True]
    assert refine.compared == 6 + 1 + 6


def test_verdicts_on_convergence_and_on_purges_can_be_no():
    assert [baselines.judge_convergence(r) for r in ([3.0, 1.4], [3.0, 2.0], [2.9, 3.1])] == ["yes", "partly", "no"]
    at = np.arange(0, 3001.0)
    counts = counters()
    counts[STORED] = 3000
    saw = Run("ripple", 3000, counts, 1.0, Answer(0, 0), np.array([at, np.cumsum(1 + at % 1000), at]))
    level = Run("nlw", 3000, counts, 1.0, Answer(0, 0), np.array([at, at, at]))
    assert baselines.rise_between_purges(saw, 1000) > 4
    assert baselines.rise_between_purges(level, 1000) == pytest.approx(1)
