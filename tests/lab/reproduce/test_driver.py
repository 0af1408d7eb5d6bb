"""The reproduction of driver selection: data as the paper says, right answers or none, and a little of everything."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.plan.options import POLICIES
from watersmeet_lab.bench.drivers.data import DATASETS, SHARED, TIME_UNITS, beyond
from watersmeet_lab.kernels.mjoin import Inputs, MJoin
from watersmeet_lab.reproduce.driver.command import reproduce
from watersmeet_lab.reproduce.driver.lab import Lab, Size
from watersmeet_lab.reproduce.driver.paper import TABLE_4, TABLE_5
from watersmeet_lab.reproduce.driver.schedule import cut, pieces
from watersmeet_lab.reproduce.driver.trial import Case, Trial, WrongResultsError

TINY = Size(100, (10, 4), 1, (3, 6))
SMALL = [Case(d, 6, scale=100) for d in (*DATASETS[::3], *beyond(4))]


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda d: d.name)
def test_streams_end_together_and_arrive_in_time_order(dataset):
    _, times = dataset.generate(1, scale=10)
    for t in times:
        assert np.all(np.diff(t) >= 0)
        assert t[0] >= 0
        assert 0.9 * TIME_UNITS < t[-1] < TIME_UNITS


def test_arrival_patterns():
    quarters = {d.name: [np.histogram(t, 4, (0, TIME_UNITS))[0] / len(t) for t in d.generate(1)[1]] for d in DATASETS}
    assert quarters["I"][0] == pytest.approx([0.25] * 4, abs=0.01)
    first_eighth = [np.searchsorted(t, TIME_UNITS / 8) / len(t) for t in DATASETS[1].generate(1)[1]]
    assert first_eighth == pytest.approx([1 / 8, 1 / 12, 1 / 4], abs=0.01)
    assert quarters["IV"][2][:2].sum() == pytest.approx(0.2, abs=0.01)
    assert quarters["V"][2][:2].sum() == pytest.approx(0.8, abs=0.01)


def test_runs_hold_every_tuple_once_and_in_order():
    case = SMALL[0]
    for runs_of in (lambda b: b.in_time(), lambda b: b.in_turn(), lambda b: b.by_buffer([2, 0, 1])):
        at = np.zeros(3, np.int64)
        for batch in cut(case.times, 6):
            runs = runs_of(batch)
            for n, (i, first, end) in enumerate(np.concatenate(pieces(runs, 5)).tolist()):
                assert first == at[i], n
                at[i] = end
            assert at.tolist() == batch.end.tolist()
        assert at.tolist() == [len(k) for k in case.keys]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.dataset.name)
def test_every_policy_makes_all_results(case, policy):
    assert Trial(case, policy).verify() == case.dataset.results(100) == SHARED // 100 * case.dataset.results() // SHARED
    found = Trial(case, policy).run(in_pieces=True)
    assert sum(found.probes) >= sum(len(k) for k in case.keys)
    assert all(np.all(np.diff(curve) >= 0) for curve in found.curves)


def test_wrong_results_are_refused(monkeypatch):
    monkeypatch.setattr(MJoin, "process", lambda self, runs, sequences: iter(()))
    case = Case(DATASETS[0], 3, scale=100)
    with pytest.raises(WrongResultsError, match="data set I in 3 batches: 0 results"):
        Trial(case, "auto").run()
    with pytest.raises(WrongResultsError, match="other combinations"):
        Trial(case, "auto").verify()


def test_the_averages_of_the_papers_tables_are_those_of_their_rows():
    for table, policy, span, given in (
        (TABLE_4, "initial_output_size", 0, 0.832), (TABLE_4, "initial_output_size", 1, 0.714),
        (TABLE_5, "initial_output_size", 0, 0.82), (TABLE_5, "initial_output_size", 1, 0.84),
    ):  # fmt: skip
        rows = [row[policy][span] for d, row in table.items() if d != "average"]
        assert np.mean(rows) == pytest.approx(given, abs=0.006)
        assert table["average"][policy][span] == given


def test_a_window_leaves_out_what_is_too_far_apart():
    case = SMALL[0]
    hi = np.full((3, 3), TIME_UNITS // 20)
    join, found = MJoin(Inputs.of(case.keys, case.times, hi)), 0
    for batch in case.cuts:
        for chunk in join.process(batch.in_time(), np.array([[1, 2], [0, 2], [0, 1]])):
            times = np.stack([t[rows] for t, rows in zip(case.times, chunk, strict=True)])
            assert np.all(times.max(axis=0) - times.min(axis=0) <= TIME_UNITS // 20)
            found += chunk.shape[1]
    assert 0 < found < case.expected[0]


def test_everything_on_little_data():
    found = reproduce(TINY)
    assert len(found.claims) >= 28
    assert {c.holds for c in found.claims} <= {"yes", "partly", "no"}
    answers = found.claims[0]
    assert answers.holds == "yes"
    assert all(c.paper and c.counts for c in found.claims)
    assert sum(len(c.plots) for c in found.claims) == 20


def test_a_lab_makes_every_trial_once():
    lab = Lab(TINY)
    assert lab.run_policies(DATASETS[4], 4) is lab.run_policies(DATASETS[4], 4)
    assert lab.verified == len(POLICIES)
