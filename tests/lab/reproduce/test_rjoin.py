"""RJoin's evaluation in small: answers are verified, bars hold, and a wrong answer is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from watersmeet_lab.reproduce.rjoin.answer import WrongAnswerError, verify
from watersmeet_lab.reproduce.rjoin.claims.choice import check_choice
from watersmeet_lab.reproduce.rjoin.claims.ring import check_id_movement
from watersmeet_lab.reproduce.rjoin.claims.windows import check_windows
from watersmeet_lab.reproduce.rjoin.command import reproduce
from watersmeet_lab.reproduce.rjoin.lab import QUICK, Lab
from watersmeet_lab.reproduce.rjoin.workload import WARM_UP, Workload

TINY = replace(
    QUICK, nodes=50, queries=600, tuples=120, choice_tuples=(20, 60), many_tuples=(30, 60, 120), query_counts=(100, 300),
    thetas=(0.5, 0.9), windows=(10, 30), most_rows=100_000, sample=30,
)  # fmt: skip


@pytest.mark.parametrize("levels", ["both", "value"])
def test_runs_of_all_choices_give_the_same_verified_answers(levels):
    lab = Lab(TINY)
    workload = Workload(150, 120, ranks="shared")
    courses = {c: lab.course(workload, (120,), c, levels) for c in ("ric", "random", "worst", "first")}
    assert len({c.last.answers for c in courses.values()}) == 1
    assert len(lab.verified) == 4
    assert all(compared > 20 for compared in lab.verified.values())
    made = {name: c.rows[-1] for name, c in courses.items()}
    assert made["ric"] < made["random"] < made["worst"]


def test_rates_save_traffic():
    [traffic, *_] = check_choice(Lab(TINY))
    assert traffic.raw["times_worst"] > traffic.raw["times_random"] > 1


def test_windows_bound_what_is_stored():
    lab = Lab(TINY)
    assert len(check_windows(lab)) == 3
    assert len(lab.verified) == 2
    for course in lab.courses:
        width = course.workload.window
        assert course.live[TINY.tuples] > 0
        for tuples, live in course.live.items():  # what is kept was made since the window before
            before = course.rows[tuples - 1 - width] if tuples > width else 0
            assert live <= course.rows[tuples - 1] - before


def test_id_movement_keeps_the_answers_and_lowers_the_peak():
    lab = Lab(replace(TINY, tuples=220))
    [claim] = check_id_movement(lab)
    assert claim.raw["moved"] > 0
    still, moving = lab.courses
    assert still.last.answers == moving.last.answers > 0
    assert claim.raw["stored"]["with id movement"] < claim.raw["stored"]["without"]


def test_a_run_that_stores_too_much_is_stopped():
    lab = Lab(replace(TINY, most_rows=1000))
    course = lab.course(lab.workload(), (TINY.tuples,), "worst")
    assert not course.ended
    assert 0 < course.reached < TINY.tuples
    assert course.last.tuples == course.reached
    assert not lab.verified


def test_a_wrong_answer_is_refused():
    workload = Workload(50, 200)
    counts = np.full(50, -1)
    with pytest.raises(WrongAnswerError, match="has -1 answers, DuckDB counts"):
        verify(workload, 200, counts, 5)


def test_longer_workloads_begin_like_shorter_ones():
    short, long = Workload(10, 50), Workload(20, 80)
    assert long.templates[:10] == short.templates
    assert np.array_equal(long.data.stream[: WARM_UP + 50], short.data.stream)
    assert np.array_equal(long.data.values[: WARM_UP + 50], short.data.values)


@pytest.mark.slow
def test_every_claim_in_small():
    found = reproduce(TINY)
    assert {c.where for c in found.claims} >= {f"8, figure {n}" for n in (4, 5, 6, 7, 9)}
