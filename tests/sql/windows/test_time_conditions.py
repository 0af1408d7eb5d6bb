"""Conditions on event time become edges of the window graph."""

import pytest

from watersmeet.query.predicate import Band, Comparison, Condition, Equality
from watersmeet.query.window import UNBOUNDED

S = 1_000_000
NONE = UNBOUNDED


@pytest.mark.parametrize(
    ("condition", "lo", "hi"),
    [
        ("b.ts BETWEEN a.ts - INTERVAL 10 SECONDS AND a.ts + INTERVAL 1 MINUTE", -10 * S, 60 * S),
        ("b.ts >= a.ts", 0, NONE),
        ("b.ts > a.ts", 1, NONE),
        ("a.ts + INTERVAL 5 SECONDS > b.ts", -NONE, 5 * S - 1),
        ("b.ts - a.ts <= INTERVAL 5 MINUTES", -NONE, 300 * S),
        ("INTERVAL 5 MINUTES >= b.ts - a.ts", -NONE, 300 * S),
        ("b.ts - a.ts BETWEEN INTERVAL '-1' SECOND AND INTERVAL 2 SECONDS", -S, 2 * S),
        ("(b.ts) <= (a.ts + INTERVAL '1' HOUR)", -NONE, 3600 * S),
        ("b.ts <= a.ts + INTERVAL '1 hour 5 minutes'", -NONE, 3900 * S),
        ("b.ts <= a.ts + INTERVAL 1 HOUR 5 MINUTES", -NONE, 3900 * S),
        ("b.ts >= a.ts - INTERVAL 1 HOUR 5 MINUTES", -3900 * S, NONE),
        ("b.ts <= a.ts + INTERVAL '0 00:10:00' DAY TO SECOND", -NONE, 600 * S),
        ("b.ts <= a.ts + INTERVAL '-0 00:10:00.5' DAY TO SECOND", -NONE, -600_500_000),
        ("b.ts <= a.ts + INTERVAL '01:30' HOUR TO MINUTE", -NONE, 5400 * S),
        ("b.ts <= a.ts + INTERVAL '0.5' SECOND", -NONE, 500_000),
        ("b.ts <= a.ts - -INTERVAL 5 SECONDS", -NONE, 5 * S),
        ("b.ts <= INTERVAL 5 SECONDS + a.ts", -NONE, 5 * S),
        ("b.ts + INTERVAL 1 SECOND <= a.ts + INTERVAL 6 SECONDS", -NONE, 5 * S),
    ],
)
def test_edges(joined, condition, lo, hi):
    join = joined(f"a.k = b.k AND {condition}")
    assert (join.windows.lo("a", "b"), join.windows.hi("a", "b")) == (lo, hi)
    assert join.timed == {frozenset("ab")}
    assert [str(p) for p in join.predicates] == ["a.k = b.k"]
    assert not join.filters


def test_a_time_condition_connects_but_a_window_does_not(joined):
    assert joined("b.ts >= a.ts").timed
    assert not joined("a.k = b.k WINDOW = 5 s").timed


def test_equal_times_are_a_key_and_edges(joined):
    join = joined("a.ts = b.ts")
    assert (join.windows.lo("a", "b"), join.windows.hi("a", "b")) == (0, 0)
    assert [type(p) for p in join.predicates] == [Equality]


def test_a_fixed_distance_is_a_key_and_edges(joined):
    join = joined("b.ts = a.ts + INTERVAL 5 SECONDS")
    assert join.windows.lo("a", "b") == join.windows.hi("a", "b") == 5 * S
    assert isinstance(join.predicates[0], Equality)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("b.ts <= a.ts + INTERVAL 1 MONTH", Comparison),
        ("date_trunc('hour', b.ts) <= a.ts", Comparison),
        ("b.ts <> a.ts", Condition),
        ("NOT b.ts < a.ts", Condition),
        ("b.ts NOT BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS", Condition),
        ("b.ts < a.ts OR a.k = 1", Condition),
        ("abs(unix_micros(b.ts) - unix_micros(a.ts)) <= 5", Band),
    ],
)
def test_other_forms_stay_ordinary(joined, condition, kind):
    join = joined(condition)
    assert [type(p) for p in join.predicates] == [kind]
    assert not join.timed
    assert join.windows.hi("a", "b") == UNBOUNDED


def test_three_times_stay_ordinary(bound):
    join = bound("SELECT a.k FROM s0 a, s1 b, s2 c WHERE a.ts - b.ts <= c.ts - a.ts")
    assert [type(p) for p in join.predicates] == [Condition]


def test_one_alias_and_literals_is_a_filter(joined):
    join = joined("a.k = b.k AND a.ts > TIMESTAMP '2024-01-01 00:00:00' AND a.ts <= a.ts + INTERVAL 1 SECOND")
    assert len(join.filters) == 2
    assert not join.timed


def test_one_half_of_a_between_may_be_a_filter(joined):
    join = joined("a.k = b.k AND b.ts BETWEEN TIMESTAMP '2024-01-01 00:00:00' AND a.ts")
    assert len(join.filters) == 1
    assert join.windows.hi("a", "b") == 0


def test_a_sum_of_intervals_keeps_its_parentheses(joined):
    join = joined("a.k = b.k AND b.ts <> a.ts - INTERVAL 1 HOUR 5 MINUTES")
    assert join.predicates[1].condition.spark_template == "{0} <> {1} - (INTERVAL '1' HOUR + INTERVAL '5' MINUTES)"
