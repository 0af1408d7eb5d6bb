"""Left semi joins of Spark's StreamingJoinSuite (StreamingLeftSemiJoinBase), as facts; and the anti join, which Spark's streams do not have, on the same rows."""

from __future__ import annotations

import pytest

from tests.foreign.streams import lefts, ranged, rights, seconds, self_joined, windowed
from watersmeet.testing import QueryTest

LEFT_ONLY = "l.k, l.v AS lv"
ROUTINGS = pytest.mark.parametrize("how", [{}, {"units": 3}], ids=str)


def semi(on: str = "", kind: str = "LEFT SEMI", **how) -> QueryTest:
    return windowed(kind, on, LEFT_ONLY, **how)


@ROUTINGS
def test_windowed(how):
    """Case "windowed left semi join": each left row at most once, and one that has its partner is not stored.

    Spark stores the left rows of a batch before it sees their partners in the same batch; here 3, 4 and 5 are never stored.
    """
    test = semi(**how)
    test.batch(lefts=lefts(1, 2, 3, 4, 5), rights=rights(3, 4, 5, 6, 7)).check((3, 6), (4, 8), (5, 10))
    test.check_state(l=2, r=5)
    test.batch(lefts=lefts(21), rights=rights(22)).check().check_state(l=1, r=1)
    test.batch(lefts=lefts(22)).check((22, 44)).check_state(l=1, r=1)
    test.restart().batch(lefts=lefts(1)).check().check_state(l=1, r=1).check_late(lefts=1)
    test.batch(rights=rights(5)).check().check_state(l=1, r=1).check_late(lefts=1, rights=1)


@ROUTINGS
def test_a_condition_on_the_left(how):
    """Case "left semi early state exclusion on left": who fails it neither leaves nor is stored."""
    test = semi("l.v > 4", **how)
    test.batch(lefts=lefts(1, 2, 3), rights=rights(3, 4, 5)).check((3, 6)).check_state(r=3)
    test.batch(lefts=lefts(20), rights=rights(21)).check().check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40)).check_state(l=1, r=2)


@ROUTINGS
def test_a_condition_on_the_right(how):
    """Case "left semi early state exclusion on right": who fails it is never stored."""
    test = semi("r.v > 7", **how)
    test.batch(lefts=lefts(3, 4, 5), rights=rights(1, 2, 3)).check((3, 6)).check_state(l=2, r=1)
    test.batch(lefts=lefts(20), rights=rights(21)).check().check_state(l=1, r=1)
    test.batch(rights=rights(20)).check((20, 40)).check_state(l=1, r=2)


def test_range():
    """Case "left semi join with watermark range condition"."""
    test = ranged("LEFT SEMI", shown="l.k, l.ts")
    test.batch(lefts=[(1, 5), (3, 5)]).check().check_state(l=2)
    test.batch(rights=[(1, 10), (2, 5)]).check((1, 5)).check_state(l=2, r=2)
    test.batch(rights=[(1, 9)]).check().check_state(l=2, r=3)
    # Watermark per stream: lefts at 20 end the wait of all rights in this batch; 7 has its partner, and is not stored.
    test.batch(lefts=[(1, 7), (1, 30)]).check((1, 7)).check_state(l=3)
    test.batch(rights=[(0, 30)]).check().check_state(l=1, r=1)


def test_self_semi():
    """Case "self left semi join": odd left rows can have no partner, which Spark infers from the equality, and here they wait.

    Even rows meet themselves in their own batch, so they are not stored as left rows, where Spark stores them.
    """
    test = self_joined("LEFT SEMI", "a.id, a.ts")
    test.batch(s=seconds(1, 2, 3, 4, 5)).check((2, 2), (4, 4)).check_state(a=3, b=2)
    test.restart().batch(s=seconds(6, 7, 8, 9, 10)).check((6, 6), (8, 8), (10, 10)).check_state(a=5, b=3)
    test.batch(s=seconds(11, 12, 13, 14, 15)).check((12, 12), (14, 14)).check_state(a=6, b=3)


@pytest.mark.parametrize("how", [{}, {"units": 4, "routing": "random"}], ids=str)
def test_anti(how):
    """The rows of "windowed left outer join", without those that have a partner."""
    test = semi(kind="LEFT ANTI", **how)
    test.batch(lefts=lefts(1, 2, 3, 4, 5), rights=rights(3, 4, 5, 6, 7)).check()
    test.restart().batch(lefts=lefts(21), rights=rights(22)).check((1, 2), (2, 4)).check_state(l=1, r=1)
    test.batch(lefts=lefts(22)).check().restart().end().check((21, 42))


def test_anti_with_conditions():
    """The rows of "left outer join with non-key condition violated"."""
    test = semi("l.v > 10 AND (r.v < 300 OR r.v > 1000)", kind="LEFT ANTI")
    test.batch(lefts=lefts(1, 2, 3), rights=rights(1, 2, 3)).check((1, 2), (2, 4), (3, 6)).check_state(r=3)
    test.batch(lefts=lefts(40, 41), rights=rights(40, 41)).check().check_state(r=2)
    test.batch(lefts=lefts(101, 102, 103), rights=rights(101, 102, 103)).check().check_state(l=3)
    test.batch(lefts=lefts(1000), rights=rights(1001)).check((101, 202), (102, 204), (103, 206)).check_state(l=1, r=1)
