"""Inner joins of Spark's StreamingJoinSuite (StreamingInnerJoinBase and StreamingInnerJoinSuite), as facts."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.foreign.streams import FOR_EVER, lefts, pair, rights, stream, windowed
from watersmeet.testing import QueryTest

ON_KEY = "SELECT l.k, l.v AS lv, r.v AS rv FROM lefts l JOIN rights r ON l.k = r.k"


def doubled(*values: int) -> list[tuple[int, int, int]]:
    return [(value, 2 * value, 0) for value in values]


def tripled(*values: int) -> list[tuple[int, int, int]]:
    return [(value, 3 * value, 0) for value in values]


@pytest.mark.parametrize("options", [{}, {"units": 3}, {"units": 4, "routing": "random"}], ids=str)
def test_non_time_column(options):
    """Case "stream stream inner join on non-time column": either side first, duplicates multiply, two restarts."""
    test = pair(ON_KEY, "k int, v int", **options)
    test.batch(lefts=doubled(1)).check()
    test.batch(rights=tripled(1, 10)).check((1, 2, 3))
    test.batch(lefts=doubled(10)).check((10, 20, 30))
    test.batch(rights=tripled(1)).check((1, 2, 3))
    test.restart().batch(lefts=doubled(1)).check((1, 2, 3), (1, 2, 3))
    test.restart().batch(lefts=doubled(100), rights=tripled(100)).check((100, 200, 300))


def test_windows_without_watermark():
    """Case "stream stream inner join on windows - without watermark": a stream without a watermark is never late and forgets nothing."""
    test = windowed("INNER", lateness=FOR_EVER)
    test.batch(lefts=lefts(1)).check().batch(rights=rights(1)).check((1, 2, 3))
    test.restart().batch(lefts=lefts(25)).check()
    test.restart().batch(rights=rights(25)).check((25, 50, 75))
    test.batch(lefts=lefts(1)).check((1, 2, 3))
    test.restart().batch(lefts=lefts(5)).check().batch(rights=rights(5)).check((5, 10, 15))
    test.check_late().check_state(l=4, r=3)


def test_time_range_one_side():
    """Case "stream stream inner join with time range - with watermark - one side condition": only the right side is forgotten."""
    on = "l.k = r.k AND l.ts < r.ts - INTERVAL 5 SECONDS"
    test = pair(f"SELECT l.k, l.ts AS lt, r.ts AS rt FROM lefts l JOIN rights r ON {on}", "k int")
    test.batch(lefts=[(1, 5)]).check().batch(rights=[(1, 11)]).check((1, 5, 11)).batch(rights=[(1, 10)]).check()
    test.check_state(l=1, r=2)
    # Watermark per stream: that of lefts, 20, ends the wait of rights at 10 and 11 in this batch, not when rights are at 30, too.
    test.batch(lefts=[(1, 3), (1, 30)]).check((1, 3, 10), (1, 3, 11)).check_state(l=3)
    test.batch(rights=[(0, 30)]).check().check_state(l=3, r=1)
    # Strict lateness: 20 is not older than the watermark, so it joins, where Spark drops it. Like 21 it is too old to be stored.
    test.batch(rights=[(1, 20), (1, 21), (1, 28)])
    test.check(*((1, left, right) for left in (3, 5) for right in (20, 21, 28))).check_state(l=3, r=2)
    test.batch(lefts=[(1, 19), (1, 20), (1, 21)]).check((1, 20, 28), (1, 21, 28)).check_late(lefts=1).check_state(l=5, r=2)  # fmt: skip


def test_time_range_two_sides():
    """Case "stream stream inner join with time range - with watermark - two side conditions": both sides are forgotten, bounds are inclusive."""
    on = "l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL 10 SECONDS AND r.ts + INTERVAL 5 SECONDS"
    text = f"SELECT l.k, l.ts AS lt, r.ts AS rt FROM lefts l JOIN rights r ON {on}"
    test = pair(text, "k int", ("20 seconds", "30 seconds"))
    test.batch(lefts=[(1, 20)]).check()
    test.batch(rights=[(1, at) for at in (14, 15, 25, 26, 30, 31)]).check(*((1, 20, at) for at in (15, 25, 26, 30)))
    test.check_state(l=1, r=6)
    test.batch(rights=[(1, 60)]).check().check_state(l=1, r=7)
    test.batch(lefts=[(1, at) for at in (49, 50, 65, 66)]).check((1, 50, 60), (1, 65, 60))
    # Watermark per stream: that of lefts is 46, and rights before 41 are done; Spark takes the lower one, 30, and keeps six of them.
    test.check_watermarks(lefts=46, rights=30).check_state(l=5, r=1)
    test.batch(lefts=[(1, 30), (1, 31)]).check().check_late(lefts=2)
    test.batch(rights=[(1, 80)]).check().check_watermarks(lefts=46, rights=50).check_state(l=4, r=2)
    test.batch(rights=[(1, 46), (1, 50)]).check((1, 49, 50), (1, 50, 50)).check_state(l=4, r=3)
    test.check_late(lefts=2, rights=1)


def test_without_equality():
    """Case "stream stream inner join without equality predicate": Spark refuses it."""
    test = pair("SELECT l.k AS lk, r.k AS rk FROM lefts l JOIN rights r ON l.k < r.k", "k int", units=4)
    test.batch(lefts=[(1, 0), (5, 0)]).check().batch(rights=[(1, 0), (2, 0)]).check((1, 2))
    test.restart().batch(rights=[(9, 0)], lefts=[(8, 0)]).check((1, 9), (5, 9), (8, 9))


def test_self_join():
    """Case "stream stream self join": on value % 5, with a restart."""
    text = "SELECT a.v % 5 AS k, a.v, b.v AS w FROM s a JOIN s b ON a.v % 5 = b.v % 5"
    test = QueryTest(wm.sql(text, s=stream("v int")))
    test.batch(s=[(1, 0), (2, 0)]).check((1, 1, 1), (2, 2, 2))
    test.restart().batch(s=[(3, 0), (6, 0)]).check((3, 3, 3), (1, 1, 6), (1, 6, 1), (1, 6, 6))


def test_three_streams():
    """Case "join between three streams": a chain on one key, in one operator."""
    text = "SELECT a.k, a.v, b.v AS w, c.v AS x FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k"
    test = QueryTest(wm.sql(text, {name: stream("k int, v int") for name in "abc"}))
    test.batch(a=[(1, 2, 0), (5, 10, 0)], b=[(1, 3, 0), (5, 15, 0), (10, 30, 0)], c=[(5, 25, 0), (10, 50, 0)])
    test.check((5, 10, 15, 25))


@pytest.mark.parametrize(
    ("select", "on"), [("a.id", "a.id = b.id AND a.name = b.name"), ("a.id, a.name, b.name AS other", "a.id = b.id")]
)
def test_a_changed_query_is_refused(select, on):
    """Case "SPARK-48687 ... changing the join condition (key schema)" and "... the value schema should fail the query"."""

    def query(select: str, on: str) -> wm.Query:
        within = "b.ts >= a.ts AND b.ts <= a.ts + INTERVAL 5 SECONDS AND b.id % 2 = 0"
        return wm.sql(f"SELECT {select} FROM s a JOIN s b ON {on} AND {within}", s=stream("id int, name string", "5 s"))

    test = QueryTest(query("a.id", "a.id = b.id"))
    test.batch(s=[(n, "x", n) for n in range(1, 6)]).check((2,), (4,))
    with pytest.raises(wm.CheckpointError, match=r"another query.*what differs"):
        test.restart(query(select, on))
    test.restart().batch(s=[(n, "x", n) for n in range(6, 11)]).check((6,), (8,), (10,))


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 5), (1, 5, 10, None)), ((1, 5, 10, None), (1, 5)), ((1, 5, 10, None), (1, 5, None))],
    ids=["right", "left", "both"],
)
@pytest.mark.parametrize("equal", ["=", "<=>"])
def test_nullable_keys(left, right, equal):
    """Case "joining non-nullable left join key with nullable right join key" and the two others: NULL equals NULL for <=> alone."""

    def rows(values, times):
        return [(v, None if v is None else times * v, 0) for v in values]

    test = pair(f"SELECT l.k, r.k AS j, l.v, r.v AS w FROM lefts l JOIN rights r ON l.k {equal} r.k", "k int, v int")
    test.batch(lefts=rows(left, 2), rights=rows(right, 3))
    nulls = [(None,) * 4] if equal == "<=>" and None in left and None in right else []
    test.check((1, 1, 2, 3), (5, 5, 10, 15), *nulls)


def test_windows_with_watermark():
    """Case "stream stream inner join on windows - with watermark", with the figures of "SPARK-35896: metrics in StateOperatorProgress".

    Only lefts have a watermark in Spark. Here every stream has one: rights that are silent follow lefts by `idle`.
    """
    text = "SELECT l.k, l.v AS lv, r.v AS rv FROM lefts l JOIN rights r ON l.k = r.k AND l.ts = r.ts"
    streams = {"lefts": stream("k int, v int", "10 seconds"), "rights": stream("k int, v int", FOR_EVER, idle="10 seconds")}  # fmt: skip
    test = QueryTest(wm.sql(text, streams))
    test.batch(lefts=lefts(1)).check().check_state(l=1)
    test.batch(rights=rights(1)).check((1, 2, 3)).check_state(l=1, r=1)
    test.restart().batch(lefts=lefts(25)).check().check_state(l=1)
    test.batch(rights=rights(25)).check((25, 50, 75)).check_state(l=1, r=1)
    test.restart().batch(rights=rights(1)).check().check_state(l=1, r=1)
    test.batch(lefts=lefts(5)).check().check_state(l=1, r=1).check_late(lefts=1, rights=1)
