"""The simulated ring: the same seed gives the same run, other seeds other ways to the same answers, mistakes are refused."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.errors import OptionError
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.coded_join import CodedJoin, within
from watersmeet_lab.simulate.ring.simulation import RingSimulation, Tuples
from watersmeet_lab.simulate.ring.unit import RingOptions

STREAMS = {"r": ("a", "b"), "s": ("a", "b"), "p": ("a", "b")}
CHAIN = CodedJoin(("r", "s", "p"), (((0, "a"), (1, "a")), ((1, "b"), (2, "b"))), ((0, "b"), (2, "a")))


def data(count: int = 120, seed: int = 0) -> Tuples:
    random = np.random.default_rng(seed)
    ts = np.arange(count) * 2
    return Tuples(
        random.integers(0, 3, count), ts, ts + random.integers(0, 2, count), random.integers(0, 4, (count, 2))
    )


def simulated(seed: int, template: CodedJoin = CHAIN, delay: int = 9) -> RingSimulation:
    run = RingSimulation(Ring.of(30), STREAMS, [template], RingOptions(delta=20, delay=delay), delay=delay, seed=seed)
    run.pose([template], 0)
    run.publish(data())
    return run


def rows(run: RingSimulation) -> list[list[int]]:
    assert run.run()
    return run.registry.deliver(np.concatenate(run.answers))[0].tolist()


def test_a_run_is_a_function_of_its_seed():
    one, again, other = (simulated(seed) for seed in (1, 1, 2))
    assert rows(one) == rows(again)
    assert np.array_equal(one.unit.load.sent, again.unit.load.sent)
    assert sorted(rows(other)) == sorted(rows(simulated(1)))
    assert not np.array_equal(one.unit.load.sent, other.unit.load.sent)


def test_what_is_counted_adds_up():
    run = simulated(3)
    found = rows(run)
    load, (stored_rows, stored_tuples) = run.unit.load, run.unit.count_stored()
    assert run.answered == len(found) == run.answered_by_template.sum() > 0
    assert load.rows.sum() == stored_rows.sum() == len(run.unit.state.rows) - 1
    assert load.tuples.sum() == 120 * 4
    assert 0 < stored_tuples.sum() == len(run.unit.state.tuples) <= 120 * 4, "what was swept is not stored"
    assert 0 < run.groups <= load.rows.sum()
    assert run.published == 120


def test_windows_bound_rows_and_tuples():
    template = CodedJoin(CHAIN.streams, CHAIN.equalities, CHAIN.select, bounds=within(3, 20))
    run, kept = simulated(4, template, delay=3), []
    for tick in range(0, 240, 10):
        run.at(tick, lambda: kept.append((run.sweep(), len(run.unit.state.tuples))))
    assert run.run()
    later = np.array(kept[8:])
    assert later[:, 0].max() < run.unit.load.rows.sum() / 3
    assert later[:, 1].max() <= 4 * (20 + 20 + 5 * 3 + 1 + 2) // 2  # window or Delta, messages under way, lateness


def test_too_many_rows_stop_a_run():
    run = simulated(5)
    assert not run.run(most_rows=20)
    assert len(run.unit.state.rows) > 20
    assert run.published < 120


def test_mistakes():
    with pytest.raises(OptionError, match="delay=0"):
        simulated(0, delay=0)
    with pytest.raises(OptionError, match="publish all of them at once"):
        simulated(0).publish(data())
    one, zero, two = np.array([1]), np.array([0]), np.array([[1, 2]])
    with pytest.raises(OptionError, match="published before it happens"):
        Tuples(zero, one, zero, two)
    with pytest.raises(OptionError, match="not in the order"):
        Tuples(np.array([0, 0]), np.array([0, 0]), np.array([5, 4]), np.zeros((2, 2), np.int64))
