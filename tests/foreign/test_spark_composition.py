"""Joins and what follows them in Spark's MultiStatefulOperatorsSuite, as facts: groups that end, groups in update mode, duplicates.

An aggregation of each source before a join ("SPARK-49829 time window agg per each source followed by stream-stream join") is no single query here.
"""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.foreign.streams import pair, seconds, stream
from watersmeet.testing import QueryTest


def test_join_then_groups():
    """Case "join -> window agg, append mode": a group leaves once, when both streams have passed its end."""
    text = "SELECT window.start AS s, count(*) AS n FROM lefts l JOIN rights r ON l.ts = r.ts GROUP BY window(l.ts, '5 seconds')"
    test = pair(text, "v int", "0 seconds")
    # Strict lateness: rows at 4 may still come, so they stay in state, where Spark has let them go.
    test.batch(lefts=seconds(1, 2, 3, 4), rights=seconds(1, 2, 3, 4)).check().check_state(l=1, r=1)
    test.restart().batch(lefts=seconds(5), rights=seconds(5)).check((0, 4)).check_state(l=1, r=1).check_late()
    test.end().check((5, 1))


def test_join_on_ranges_then_groups():
    """Case "join with range join on non-time intervals -> window agg, append mode, shouldn't fail"."""
    text = """SELECT window.start AS s, count(*) AS n FROM points p JOIN ranges r ON p.v >= r.low AND p.v < r.high AND p.ts = r.ts
        GROUP BY window(p.ts, '5 seconds')"""
    test = QueryTest(wm.sql(text, points=stream("v int"), ranges=stream("low int, high int")))
    test.batch(points=seconds(1, 2, 3, 4)).batch(ranges=[(n, n + 1, n) for n in (1, 2, 3, 4)]).check()
    test.batch(points=seconds(5), ranges=[(5, 6, 5)]).check((0, 4))


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT"])
def test_outer_join_then_groups(kind):
    """Cases "stream-stream time interval left outer join -> aggregation, append mode" and "... right outer join ...".

    A NULL row falls into its group an hour late, and the group waits for it.
    """
    mine, its, alias = ("lefts", "rights", "l") if kind == "LEFT" else ("rights", "lefts", "r")
    on = "l.id = r.id AND l.ts BETWEEN r.ts - INTERVAL 1 hour AND r.ts + INTERVAL 1 hour"
    text = f"SELECT window.start AS s, window.end AS e, count(*) AS n FROM lefts l {kind} JOIN rights r ON {on} GROUP BY window({alias}.ts, '10 minutes')"  # fmt: skip
    test = pair(text, "id string", "0 seconds")
    first = [("1", "2023-01-01 01:00:10"), ("2", "2023-01-01 01:00:30")]
    test.batch({mine: first, its: [("1", "2023-01-01 01:00:20")]}).check()
    test.restart().batch({mine: [("5", "2023-01-01 01:15")], its: [("6", "2023-01-01 01:15")]}).check()
    test.batch({mine: [("5", "2023-01-01 02:16")], its: [("6", "2023-01-01 02:16")]})
    test.check(("2023-01-01 01:00", "2023-01-01 01:10", 2))
    test.end().check(("2023-01-01 01:10", "2023-01-01 01:20", 1), ("2023-01-01 02:10", "2023-01-01 02:20", 1))


WAITS = [
    ("r.ts AND r.ts + INTERVAL 40 seconds", 10, 50),
    ("r.ts - INTERVAL 30 seconds AND r.ts", 40, 10),
    ("r.ts - INTERVAL 30 seconds AND r.ts + INTERVAL 40 seconds", 40, 50),
]
"""Where l.ts lies; and the watermark with which the group from 0 to 10 seconds ends, of lefts and of rights."""


@pytest.mark.parametrize(("between", "of_left", "of_right"), WAITS)
@pytest.mark.parametrize("alias", ["l", "r"])
def test_how_long_a_group_waits_for_a_join(between, of_left, of_right, alias):
    """Case "stream-stream time interval join - output watermark for various intervals": 40, 30 and 40 seconds in Spark.

    Spark's output watermark is one for both times of a result. Here it is known by alias: a time that the other stream may not follow waits for nothing.
    """
    on = f"l.id = r.id AND l.ts BETWEEN {between}"
    text = f"SELECT count(*) AS n FROM lefts l JOIN rights r ON {on} GROUP BY window({alias}.ts, '10 seconds')"
    test = pair(text, "id int", "0 seconds").batch(lefts=[(1, 5)], rights=[(1, 5)]).check()
    ends = of_left if alias == "l" else of_right
    test.advance(ends - 0.001).check().restart().advance(ends).check((1,))


def test_duplicates_then_join():
    """A join of two streams from which duplicates were dropped: DISTINCT on the result is the same."""
    test = pair("SELECT DISTINCT l.v, l.ts FROM lefts l JOIN rights r ON l.v = r.v AND l.ts = r.ts", "v int", "10 s")
    test.batch(lefts=seconds(1, 1, 2, 3), rights=seconds(2, 2, 3, 4)).check((2, 2), (3, 3))
    test.restart().batch(lefts=seconds(2, 4, 4), rights=seconds(3, 1)).check((1, 1), (4, 4))


def test_join_then_groups_in_update_mode():
    """An inner join and an aggregation in update mode: after every batch the groups that have changed."""
    text = "SELECT l.v % 2 AS odd, count(*) AS n, sum(r.v) AS total FROM lefts l JOIN rights r ON l.v = r.v AND l.ts = r.ts GROUP BY l.v % 2"
    test = pair(text, "v int", "10 seconds")
    test.batch(lefts=seconds(1, 2, 3), rights=seconds(1, 2)).check((1, 1, 1), (0, 1, 2))
    test.restart().batch(rights=seconds(3)).check((1, 2, 4))
    test.batch(lefts=seconds(4), rights=seconds(5)).check()
