"""RJoin's evaluation in small: answers are verified, bars hold, and a wrong answer is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from watersmeet_lab.reproduce.rjoin.answer import Compared, Expected
from watersmeet_lab.reproduce.rjoin.claims.choice import RANDOM, check_choice
from watersmeet_lab.reproduce.rjoin.claims.nodes import is_within
from watersmeet_lab.reproduce.rjoin.claims.ring import check_id_movement
from watersmeet_lab.reproduce.rjoin.claims.theorems import DELAYS, claim_theorems, compare_at
from watersmeet_lab.reproduce.rjoin.claims.windows import check_windows, claim_bound
from watersmeet_lab.reproduce.rjoin.command import reproduce
from watersmeet_lab.reproduce.rjoin.lab import QUICK, Course, Lab
from watersmeet_lab.reproduce.rjoin.workload import WARM_UP, Workload
from watersmeet_lab.simulate.ring import simulation
from watersmeet_lab.simulate.ring.unit import MOVING

TINY = replace(
    QUICK, nodes=50, queries=600, tuples=120, choice_tuples=(20, 60), many_tuples=(30, 60, 120), query_counts=(100, 300),
    thetas=(0.5, 0.9), windows=(10, 30), most_rows=100_000,
)  # fmt: skip


@pytest.mark.parametrize("levels", ["both", "value"])
def test_runs_of_all_choices_give_the_same_verified_answers(levels):
    lab = Lab(TINY)
    workload = Workload(150, 120, ranks="shared")
    courses = {c: lab.course(workload, (120,), c, levels) for c in ("ric", "random", "worst", "first")}
    assert len({c.last.answers for c in courses.values()}) == 1
    assert len(lab.compared) == 4
    assert all(found.equal and found.rows > 20 for found in lab.compared.values())
    made = {name: c.rows[-1] for name, c in courses.items()}
    assert made["ric"] < made["random"] < made["worst"]


def test_rates_save_traffic():
    [traffic, *_] = check_choice(Lab(TINY))
    assert traffic.raw["times_worst"] > traffic.raw["times_random"] > 1


def test_windows_bound_what_is_stored():
    lab = Lab(TINY)
    *_, bound = check_windows(lab)
    assert bound.holds == "yes", bound.counts
    assert bound.raw["flat"].keys() == {"10:"}, "of the wider one there is too little to say"
    assert all(found.equal for found in lab.compared.values())
    assert len(lab.compared) == 4


def course_of(window, live):
    """A course in which so many rewritten queries lay stored."""
    return Course(Workload(10, 400, window=window), live=live)


def test_the_verdict_about_windows_changes_when_nothing_expires():
    at = range(25, 401, 25)
    kept = {w: course_of(w, dict.fromkeys(at, 30 * w)) for w in (10, 30)}
    never = {w: course_of(w, {n: n * w for n in at}) for w in (10, 30)}
    assert claim_bound(kept, 10, never[10]).holds == "yes"
    assert claim_bound(never, 10, never[10]).holds == "partly", "the state grows"
    assert claim_bound(kept, 10, kept[10]).holds == "partly", "a control that is flat shows nothing"
    short = {10: course_of(10, dict.fromkeys(range(5, 111, 5), 300))}
    assert claim_bound(short, 10, never[10]).holds == "partly", "nine windows after the first two say nothing"


def test_expiry_bounds_what_is_stored_and_changes_no_answer(monkeypatch):
    monkeypatch.setattr(simulation, "_SWEEP", 64)
    lab = Lab(replace(TINY, tuples=400))
    kept, never = (lab.course(lab.workload(window=10), (400,), expires=expires) for expires in (True, False))
    assert kept.live[400] < never.live[400]
    assert all(found.equal for found in lab.compared.values())


def moving_messages(lab):
    return int(lab.courses[1].last.load.sent[MOVING].sum())


def test_id_movement_keeps_the_answers_and_lowers_the_peak():
    lab = Lab(replace(TINY, tuples=220))
    [claim] = check_id_movement(lab)
    assert claim.raw["moved"] > 0
    assert moving_messages(lab) == claim.raw["moved"]
    still, moving = lab.courses
    assert still.last.answers == moving.last.answers > 0
    assert claim.raw["stored"]["with id movement"] < claim.raw["stored"]["without"]


def test_a_run_that_stores_too_much_is_stopped():
    lab = Lab(replace(TINY, most_rows=1000))
    course = lab.course(lab.workload(), (TINY.tuples,), "worst")
    assert not course.ended
    assert 0 < course.reached < TINY.tuples
    assert course.last.tuples == course.reached
    assert not lab.compared


def test_rows_are_compared_and_not_their_number():
    lab = Lab(TINY)
    lab.course(lab.workload(ranks="shared"), (TINY.tuples,))
    workload = lab.workload(ranks="shared")
    expected = Expected(workload, workload.tuples)
    right = expected.connection.sql("SELECT q AS template, v, w, n FROM expected").to_arrow_table()
    of = np.arange(workload.queries)
    assert expected.compare(right, of) == replace(expected.compare(right, of), missing=0, extra=0)
    other = right.set_column(1, "v", pa.array([(v + 1) % 100 for v in right["v"].to_pylist()]))
    found = expected.compare(other, of)
    assert found.missing > 0
    assert found.missing == found.extra, "as many rows, and others"
    assert expected.compare(right.slice(1), of).missing >= 1


def test_the_verdict_of_the_theorems_follows_from_the_rows():
    found = {name: compare_at(delay) for name, delay in DELAYS.items()}
    assert claim_theorems(found).holds == "yes"
    assert found["4 Delta"].missing > 0
    lost, doubled = Compared(10, 1, missing=1), Compared(10, 1, extra=1)
    assert claim_theorems({**found, "Delta": lost}).holds == "no"
    assert claim_theorems({**found, "4 Delta": doubled}).holds == "no"
    assert claim_theorems({**found, "4 Delta": Compared(10, 1)}).holds == "partly", (
        "nothing was lost where it should be"
    )


def test_what_the_paper_says_has_two_ends():
    assert [is_within(times, RANDOM) for times in (1.0, 4.0, 5.0, 31.6)] == [False, True, True, False]


def test_longer_workloads_begin_like_shorter_ones():
    short, long = Workload(10, 50), Workload(20, 80)
    assert long.templates[:10] == short.templates
    assert np.array_equal(long.data.stream[: WARM_UP + 50], short.data.stream)
    assert np.array_equal(long.data.values[: WARM_UP + 50], short.data.values)


@pytest.mark.slow
def test_every_claim_in_small():
    found = reproduce(TINY)
    assert {c.where for c in found.claims} >= {f"8, figure {n}" for n in (4, 5, 6, 7, 9)}
