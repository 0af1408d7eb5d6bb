"""Left, right and full outer joins of Spark's StreamingJoinSuite (StreamingOuterJoinBase, StreamingOuterJoinSuite, StreamingFullOuterJoinSuite), as facts."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.foreign.streams import lefts, pair, ranged, rights, seconds, self_joined, stream, windowed
from watersmeet.testing import QueryTest

ROUTINGS = pytest.mark.parametrize("how", [{}, {"units": 3}, {"units": 4, "routing": "random"}], ids=str)


@ROUTINGS
def test_left_outer_with_a_condition_on_the_left(how):
    """Case "left outer early state exclusion on left": who fails it leaves at once and is not stored, and does not leave again."""
    test = windowed("LEFT", "l.v > 4", **how)
    test.batch(lefts=lefts(1, 2, 3), rights=rights(3, 4, 5)).check((3, 6, 9), (1, 2, None), (2, 4, None))
    test.check_state(l=1, r=3)
    test.restart().batch(lefts=lefts(20), rights=rights(21)).check().check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40, 60))


@ROUTINGS
def test_left_outer_with_a_condition_on_the_right(how):
    """Case "left outer early state exclusion on right": who fails it is never stored; NULL rows leave when the watermark passes."""
    test = windowed("LEFT", "r.v > 7", **how)
    test.batch(lefts=lefts(3, 4, 5), rights=rights(1, 2, 3)).check((3, 6, 9)).check_state(l=3, r=1)
    test.restart().batch(lefts=lefts(20), rights=rights(21)).check((4, 8, None), (5, 10, None))
    test.batch(rights=rights(20)).check((20, 40, 60))


@ROUTINGS
def test_right_outer_with_a_condition_on_the_left(how):
    """Case "right outer early state exclusion on left"."""
    test = windowed("RIGHT", "l.v > 4", **how)
    test.batch(lefts=lefts(1, 2, 3), rights=rights(3, 4, 5)).check((3, 6, 9)).check_state(l=1, r=3)
    test.batch(lefts=lefts(20), rights=rights(21)).check((4, None, 12), (5, None, 15))
    test.batch(rights=rights(20)).check((20, 40, 60))


@ROUTINGS
def test_right_outer_with_a_condition_on_the_right(how):
    """Case "right outer early state exclusion on right"."""
    test = windowed("RIGHT", "r.v > 7", **how)
    test.batch(lefts=lefts(3, 4, 5), rights=rights(1, 2, 3)).check((3, 6, 9), (1, None, 3), (2, None, 6))
    test.check_state(l=3, r=1)
    test.batch(lefts=lefts(20), rights=rights(21)).check()
    test.batch(rights=rights(20)).check((20, 40, 60))


@pytest.mark.parametrize(
    ("kind", "alone"), [("LEFT", [(1, 2, None), (2, 4, None)]), ("RIGHT", [(6, None, 18), (7, None, 21)])]
)
def test_windowed(kind, alone):
    """Case "windowed left outer join" and "windowed right outer join"."""
    test = windowed(kind)
    test.batch(lefts=lefts(1, 2, 3, 4, 5), rights=rights(3, 4, 5, 6, 7)).check((3, 6, 9), (4, 8, 12), (5, 10, 15))
    test.batch(lefts=lefts(21), rights=rights(22)).check(*alone).check_state(l=1, r=1)
    test.batch(lefts=lefts(22)).check((22, 44, 66)).check_state(l=2, r=1)


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT"])
def test_range(kind):
    """Case "left outer with watermark range condition" and "right outer ..."."""
    test = ranged(kind)
    test.batch(lefts=[(1, 5), (3, 5)]).check().batch(rights=[(1, 10), (2, 5)]).check((1, 1, 5, 10))
    test.batch(rights=[(1, 11)]).check().check_state(l=2, r=3)
    # Watermark per stream: lefts at 20 end the wait of all rights before 15, one batch before Spark does.
    test.batch(lefts=[(1, 7), (1, 30)])
    test.check((1, 1, 7, 10), (1, 1, 7, 11), *([(None, 2, None, 5)] if kind == "RIGHT" else [])).check_state(l=4)
    test.batch(rights=[(0, 30)]).check(*([(3, None, 5, None)] if kind == "LEFT" else [])).check_state(l=1, r=1)


@pytest.mark.parametrize("span", ["INTERVAL 3 minutes 30 seconds", "INTERVAL '3:30' minute to second"])
@pytest.mark.parametrize("kind", ["LEFT", "RIGHT"])
def test_range_in_other_words(kind, span):
    """The same with ten minutes of delay and intervals of two fields."""
    test = ranged(kind, span, "10 minutes")
    test.batch(lefts=[(1, 210), (3, 5)]).check().batch(rights=[(1, 300), (2, 5)]).check((1, 1, 210, 300))
    test.batch(rights=[(1, 450)]).check().check_state(l=2, r=3)
    test.batch(lefts=[(1, 260), (1, 1800)])
    test.check((1, 1, 260, 300), (1, 1, 260, 450), *([(None, 2, None, 5)] if kind == "RIGHT" else []))
    test.batch(rights=[(0, 1800)]).check(*([(3, None, 5, None)] if kind == "LEFT" else [])).check_state(l=1, r=1)


@ROUTINGS
def test_a_condition_that_is_no_key(how):
    """Case "left outer join with non-key condition violated": NULL rows even though keys match, in three phases."""
    test = windowed("LEFT", "l.v > 10 AND (r.v < 300 OR r.v > 1000)", **how)
    test.batch(lefts=lefts(1, 2, 3), rights=rights(1, 2, 3)).check((1, 2, None), (2, 4, None), (3, 6, None))
    test.check_state(r=3)
    test.batch(lefts=lefts(20), rights=rights(21)).check().check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40, 60)).check_state(l=1, r=2)
    test.batch(lefts=lefts(40, 41), rights=rights(40, 41)).check((40, 80, 120), (41, 82, 123)).check_state(l=2, r=2)
    test.batch(lefts=lefts(70), rights=rights(71)).check().check_state(l=1, r=1)
    test.batch(rights=rights(70)).check((70, 140, 210)).check_state(l=1, r=2)
    # A condition on the right alone: rights at 303 to 309 are never stored here, where Spark splits off no disjunction.
    test.batch(lefts=lefts(101, 102, 103), rights=rights(101, 102, 103)).check().check_state(l=3)
    test.batch(lefts=lefts(1000), rights=rights(1001))
    test.check((101, 202, None), (102, 204, None), (103, 206, None)).check_state(l=1, r=1)


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_self_outer(kind):
    """Case "SPARK-26187 self left outer join should not return outer nulls for already matched rows" and "self full outer join"."""
    test = self_joined(kind)
    test.batch(s=seconds(1, 2, 3, 4, 5)).check((2, 2, 2, 2), (4, 4, 4, 4), *_odd(kind, 1, 3, 5)).check_state(a=5, b=2)
    test.batch(s=seconds(6, 7, 8, 9, 10)).check(*((n, n, n, n) for n in (6, 8, 10)), *_odd(kind, 7, 9))
    test.check_state(a=10, b=3)
    # The watermark is the stream's, before all filters: 10, where Spark has 9, that of the even rows. So 4 is done, too.
    test.batch(s=seconds(11, 12, 13, 14, 15))
    test.check((12, 12, 12, 12), (14, 14, 14, 14), (1, 1, None, None), (3, 3, None, None), *_odd(kind, 11, 13, 15))
    test.check_state(a=11, b=3)


def _odd(kind: str, *numbers: int) -> list[tuple[int | None, ...]]:
    """The odd rows of the right side: Spark filters them away before the join, and here ON does, which a FULL JOIN preserves."""
    return [(None, None, n, n) for n in numbers] if kind == "FULL" else []


def test_self_right_outer():
    """Case "SPARK-26187 self right outer join should not return outer nulls for already matched rows": the mirror image."""
    on = "a.id = b.id AND a.id % 2 = 0 AND a.ts >= b.ts AND a.ts <= b.ts + INTERVAL 5 SECONDS"
    text = f"SELECT a.id AS i, a.ts AS it, b.id AS j, b.ts AS jt FROM s a RIGHT JOIN s b ON {on}"
    test = QueryTest(wm.sql(text, s=stream("id int", "5 seconds")))
    test.batch(s=seconds(1, 2, 3, 4, 5)).check((2, 2, 2, 2), (4, 4, 4, 4)).check_state(a=2, b=5)
    test.restart().batch(s=seconds(6, 7, 8, 9, 10)).check(*((n, n, n, n) for n in (6, 8, 10))).check_state(a=3, b=10)
    test.batch(s=seconds(11, 12, 13, 14, 15))
    test.check((12, 12, 12, 12), (14, 14, 14, 14), (None, None, 1, 1), (None, None, 3, 3)).check_state(a=3, b=11)


def test_restart_with_other_inputs():
    """Case "SPARK-29438: ensure UNION doesn't lead stream-stream join to use shifted partition IDs": which task brings a row does not matter.

    There is no UNION here; the rows of a side come in another order and in other batches after the restart.
    """
    test = windowed("INNER", units=5)
    test.batch(lefts=lefts(11, 12, 13, 14, 15), rights=rights(13, 14, 15, 16, 17))
    test.check((13, 26, 39), (14, 28, 42), (15, 30, 45)).restart()
    test.batch(lefts=lefts(25, 24, 23)).check().batch(rights=rights(27, 26, 25, 24, 23), lefts=lefts(22, 21))
    test.check((23, 46, 69), (24, 48, 72), (25, 50, 75))


def test_two_delays():
    """Case "SPARK-32148 stream-stream join regression on Spark 3.0.0": one row without a partner and two with one."""
    on = "l.id = r.id AND l.ts BETWEEN r.ts - INTERVAL 30 seconds AND r.ts + INTERVAL 30 seconds"
    text = f"SELECT l.ts, l.note, r.ts AS at, r.note AS name FROM lefts l LEFT JOIN rights r ON {on}"
    test = pair(text, "id string, note string", ("2 minutes", "4 minutes"))
    test.batch(
        lefts=[("abc", "alone", "2020-01-01 00:00:00"), ("abc", "with A", "2020-01-02 00:00:00"), ("abc", "with B", "2020-01-02 01:00:00")],
        rights=[("abc", "A", "2020-01-02 00:00:10"), ("abc", "B", "2020-01-02 00:59:59"), ("abc", "C", "2020-01-02 02:00:00")],
    )  # fmt: skip
    test.check(
        ("2020-01-01 00:00:00", "alone", None, None),
        ("2020-01-02 00:00:00", "with A", "2020-01-02 00:00:10", "A"),
        ("2020-01-02 01:00:00", "with B", "2020-01-02 00:59:59", "B"),
    )


NULLABLE = {
    "right": ([1, 1, 1, 1, 1], [1, 1, 1, 1], [(1, 1, 3), (1, 1, 4), (1, 1, 5)], [(1, 1), (1, 2)]),
    "left": ([1, None, 1, 1, 1], [1, 1, 1, 1], [(1, 1, 3), (1, 1, 4), (1, 1, 5)], [(1, 1), (None, 2)]),
    "both": ([1, None, 1, None, 1], [1, None, 1, 1], [(1, 1, 3), (None, None, 4), (1, 1, 5)], [(1, 1), (None, 2)]),
}
"""Keys of the left rows at 1 to 5, of the right rows at 3 to 6; the pairs with their time; and the left rows without a partner."""


@pytest.mark.parametrize("case", NULLABLE)
def test_nullable_keys(case):
    """Case "left-outer: joining non-nullable left join key with nullable right join key" and the two others: <=>, where NULL equals NULL."""
    left, right, pairs, alone = NULLABLE[case]
    on = "l.k <=> r.k AND l.v = r.v AND l.ts = r.ts"
    test = pair(f"SELECT l.k, r.k AS j, l.v, r.v AS w FROM lefts l LEFT JOIN rights r ON {on}", "k int, v int")
    test.batch(lefts=[(k, n, 0) for n, k in enumerate(left, 1)], rights=[(k, n, 0) for n, k in enumerate(right, 3)])
    test.check(*((k, j, n, n) for k, j, n in pairs))
    test.batch(lefts=[(1, 21, 20)]).check().batch(rights=[(1, 22, 20)]).check(*((k, None, n, None) for k, n in alone))


def test_null_is_no_key_of_an_equality():
    """The same with =: a row whose key is NULL can match nothing, leaves at once, and is not stored."""
    test = pair("SELECT l.k, l.v FROM lefts l LEFT JOIN rights r ON l.k = r.k AND l.ts = r.ts", "k int, v int")
    test.batch(lefts=[(1, 1, 0), (None, 2, 0)], rights=[(None, 2, 0)]).check((None, 2)).check_state(l=1)


def test_probe_and_eviction_in_one_batch():
    """Case "SPARK-38684: outer join works correctly even if processing input rows and evicting state rows for same grouping key happens in the same micro-batch"."""
    on = "l.id = r.id AND l.ts BETWEEN r.ts - INTERVAL 30 seconds AND r.ts + INTERVAL 30 seconds"
    text = f"SELECT l.note, r.note AS other FROM lefts l LEFT JOIN rights r ON {on}"
    # A batch's watermarks count at its end here; a minute of lateness makes rows wait as long as they do in Spark.
    test = pair(text, "id string, note string", ("0 seconds", "1 minute"))
    test.batch(lefts=[("abc", "first", 0)], rights=[("abc", "no match", 60)]).check()
    test.batch(lefts=[("abc", "second", 3600)], rights=[("abc", "no match", 3660)]).check(("first", None))
    test.batch(lefts=[("abc", "third", 5400)]).check().check_state(l=2)
    test.batch(rights=[("abc", "match", 5410)]).check(("second", None), ("third", "match"))


def test_unmatched_between_two_watermarks():
    """Case "SPARK-49829 left-outer join, input being unmatched is between WM for late event and WM for eviction": it leaves, once, and is not stored."""
    test = pair(
        "SELECT l.k, l.ts FROM lefts l LEFT JOIN rights r ON l.k = r.k AND l.ts = r.ts", "k string", "0 seconds"
    )
    # Watermark per stream: rights at 2 let go of lefts at 1 in the batch itself.
    test.batch(lefts=[("a", 1)], rights=[("b", 2), ("c", 1)]).check(("a", 1)).check_state(r=2)
    test.batch(lefts=[("d", 1)]).check(("d", 1)).check_state(r=2).check_late()
    test.restart().batch(lefts=[("b", 2)]).check(("b", 2)).end().check().check_state()


@ROUTINGS
def test_windowed_full(how):
    """Case "windowed full outer join": three restarts, and late rows of both sides."""
    test = windowed("FULL", **how)
    test.batch(lefts=lefts(1, 2, 3, 4, 5), rights=rights(3, 4, 5, 6, 7)).check((3, 6, 9), (4, 8, 12), (5, 10, 15))
    test.check_state(l=5, r=5)
    test.restart().batch(lefts=lefts(21), rights=rights(22))
    test.check((1, 2, None), (2, 4, None), (6, None, 18), (7, None, 21)).check_state(l=1, r=1)
    test.restart().batch(lefts=lefts(22)).check((22, 44, 66)).check_state(l=2, r=1)
    test.restart().batch(lefts=lefts(1)).check().check_state(l=2, r=1).check_late(lefts=1)
    test.batch(rights=rights(5)).check().check_state(l=2, r=1).check_late(lefts=1, rights=1)


@ROUTINGS
def test_full_outer_with_conditions_on_one_side(how):
    """Case "full outer early state exclusion on left" and "... on right"."""
    test = windowed("FULL", "l.v > 4", **how)
    test.batch(lefts=lefts(1, 2, 3), rights=rights(3, 4, 5)).check((1, 2, None), (2, 4, None), (3, 6, 9))
    test.check_state(l=1, r=3)
    test.batch(lefts=lefts(20), rights=rights(21)).check((4, None, 12), (5, None, 15)).check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40, 60)).check_state(l=1, r=2)
    test = windowed("FULL", "r.v > 7", **how)
    test.batch(lefts=lefts(3, 4, 5), rights=rights(1, 2, 3)).check((1, None, 3), (2, None, 6), (3, 6, 9))
    test.check_state(l=3, r=1)
    test.batch(lefts=lefts(20), rights=rights(21)).check((4, 8, None), (5, 10, None)).check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40, 60)).check_state(l=1, r=2)


def test_full_outer_range():
    """Case "full outer join with watermark range condition"."""
    test = ranged("FULL")
    test.batch(lefts=[(1, 5), (3, 5)]).check().check_state(l=2)
    test.batch(rights=[(1, 10), (2, 5)]).check((1, 1, 5, 10)).check_state(l=2, r=2)
    test.batch(rights=[(1, 9)]).check((1, 1, 5, 9)).check_state(l=2, r=3)
    # Watermark per stream: the right row leaves with the watermark of lefts, one batch before the left one; in Spark both leave together.
    test.batch(lefts=[(1, 7), (1, 30)]).check((1, 1, 7, 9), (1, 1, 7, 10), (None, 2, None, 5)).check_state(l=4)
    test.batch(rights=[(0, 30)]).check((3, None, 5, None)).check_state(l=1, r=1)


def test_two_chained_left_outer_joins():
    """Case "SPARK-49829 two chained stream-stream left outer joins among three input streams": the same rows, each once.

    Watermark per stream: a row leaves as soon as the streams that it waits for have passed it, one batch before Spark's slowest stream has.
    """
    text = "SELECT a.ts, a.v, b.v AS w, c.v AS x FROM a LEFT JOIN b ON a.ts = b.ts LEFT JOIN c ON a.ts = c.ts"
    test = QueryTest(wm.sql(text, {name: stream("v int") for name in "abc"}))
    test.batch(a=[(1, 20)], b=[(1, 20)], c=[(1, 20)]).check((20, 1, 1, 1))
    test.batch(a=[(2, 21)], b=[(2, 21)]).check()
    test.batch(a=[(3, 22)], c=[(3, 22)]).check((21, 2, 2, None))
    test.restart().batch(a=[(4, 23)]).check()
    test.batch(a=[(5, 24)], b=[(5, 24)], c=[(5, 24)]).check((24, 5, 5, 5), (22, 3, None, 3), (23, 4, None, None))
    test.batch(a=[(6, 100)]).check()


def test_nothing_bounds_it():
    """Spark refuses outer joins in update mode, and those that no watermark or time condition bounds; here a window is what must be there."""
    with pytest.raises(wm.WindowError, match=r"LEFT JOIN r: .*add WINDOW \(l, r\)"):
        pair("SELECT l.k FROM lefts l LEFT JOIN rights r ON l.k = r.k", "k int")
