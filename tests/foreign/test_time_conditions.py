"""The spellings of a time condition in Spark's StreamingJoinHelperSuite, as facts: when may a left row go, once the watermark of the right stream is 10 seconds?

Spark names the last millisecond that may go. A row goes here when no right row at 10 seconds or later can be its partner, to the microsecond.
"""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.foreign.streams import pair
from watersmeet.query.window import UNBOUNDED
from watersmeet.testing import QueryTest

MARK_US = 10_000_000
AS_SPARK = [
    # directions
    ("l.ts > r.ts", 10_000),
    ("l.ts >= r.ts", 9_999),
    ("l.ts < r.ts", None),
    ("l.ts <= r.ts", None),
    ("r.ts > l.ts", None),
    ("r.ts >= l.ts", None),
    ("r.ts < l.ts", 10_000),
    ("r.ts <= l.ts", 9_999),
    # casts
    ("CAST(l.ts AS LONG) > CAST(r.ts AS LONG)", 10_000),
    ("CAST(l.ts AS LONG) < CAST(r.ts AS LONG)", None),
    ("CAST(l.ts AS STRING) > CAST(r.ts AS STRING)", None),
    # intervals on either side
    ("l.ts > r.ts + interval 1 second", 11_000),
    ("l.ts + interval 2 seconds > r.ts", 8_000),
    ("l.ts > r.ts - interval 3 second", 7_000),
    ("r.ts < l.ts - interval 3 second", 13_000),
    ("r.ts - interval 1 second < l.ts - interval 3 second", 12_000),
    ("l.ts > r.ts + interval '0 00:00:01' day to second", 11_000),
    ("l.ts + interval '00:00:02' hour to second > r.ts", 8_000),
    ("l.ts > r.ts - interval '00:03' minute to second", 7_000),
    ("r.ts < l.ts - interval '1 20:30:40' day to second", 160_250_000),
    ("r.ts - interval 1 second < l.ts - interval '20:15:32' hour to second", 72_941_000),
    # casts and constants on the right
    ("CAST(l.ts AS LONG) > CAST(r.ts AS LONG) + 1", 11_000),
    ("CAST(l.ts AS LONG) > CAST(r.ts AS LONG) - 1", 9_000),
    ("CAST(l.ts AS LONG) > CAST((r.ts + interval 1 second) AS LONG)", 11_000),
    ("CAST(l.ts AS LONG) > 2 + CAST(r.ts AS LONG)", 12_000),
    ("CAST(l.ts AS LONG) - CAST(r.ts AS LONG) > 2", 12_000),
    # casts and constants on the left
    ("CAST(l.ts AS LONG) + 2 > CAST(r.ts AS LONG)", 8_000),
    ("1 + CAST(l.ts AS LONG) > CAST(r.ts AS LONG)", 9_000),
    ("CAST((l.ts + interval 3 second) AS LONG) > CAST(r.ts AS LONG)", 7_000),
    ("CAST(l.ts AS LONG) - 2 > CAST(r.ts AS LONG)", 12_000),
    ("CAST(l.ts AS LONG) - CAST(r.ts AS LONG) - 2 > 0", 12_000),
    ("CAST(l.ts AS LONG) - 2.0 > CAST(r.ts AS LONG) + 1", 13_000),
    # other columns
    ("cast(l.ts AS LONG) > l.o", None),
    ("l.o > r.o", None),
    ("l.o > r.o AND l.ts > r.ts", 10_000),
    ("cast(r.ts AS DOUBLE) < r.o", None),
    ("l.ts > r.ts + interval 1 month", None),
    # results that are not positive
    ("CAST(l.ts AS LONG) > CAST(r.ts AS LONG) - 10", 0),
    ("CAST(l.ts AS LONG) > CAST(r.ts AS LONG) - 100", -90_000),
]
"""(condition, the last millisecond that may go), the same in Spark."""
DIFFERENT = [
    # LONG cuts fractions off, so 9.9 and 9.0 are equal, and a bound between whole seconds says nothing. Spark takes the fraction as it is: rows go too early.
    ("CAST(l.ts AS LONG) > -0.5 + CAST(r.ts AS LONG)", 9_500, 9_000),
    ("CAST(l.ts AS LONG) + 0.5 > CAST(r.ts AS LONG)", 9_500, 9_000),
    # The same the other way round: a difference of more than 0.1 whole seconds is one of 1 or more, which is any difference of times above 0.
    ("-CAST(r.ts AS LONG) + CAST(l.ts AS LONG) - 0.1 > 0", 10_100, 10_000),
    ("0 > CAST(r.ts AS LONG) - CAST(l.ts AS LONG) + 0.2", 10_200, 10_000),
    # A DOUBLE is not exact: a tenth of a millisecond is left to it.
    ("CAST(l.ts AS DOUBLE) > CAST(r.ts AS DOUBLE)", 10_000, 9_999),
    ("CAST(l.ts AS LONG) > CAST(r.ts AS DOUBLE)", 10_000, 9_999),
    ("-CAST(r.ts AS DOUBLE) + CAST(l.ts AS LONG) > 0.1", 10_100, 10_099),
    # A FLOAT is up to 64 seconds away from a time of today: Spark lets rows go too early, and here it bounds nothing.
    ("CAST(l.ts AS LONG) > CAST(r.ts AS FLOAT)", 10_000, None),
    ("CAST(l.ts AS DOUBLE) > CAST(r.ts AS FLOAT)", 10_000, None),
    # Both conditions must hold, so the narrower one bounds; Spark takes the wider one.
    ("l.ts > r.ts - interval 3 second AND r.ts < l.ts + interval 2 seconds", 7_000, 8_000),
    ("l.ts > r.ts - interval 3 second AND r.ts < l.ts + interval 4 seconds", 6_000, 7_000),
    # A condition on the left row alone is a filter, and says nothing about partners.
    ("cast(l.ts AS LONG) > 10", 10_000, None),
]
"""(condition, Spark's last millisecond, ours)."""
OURS = [*AS_SPARK, *((condition, ours) for condition, _, ours in DIFFERENT)]


def query(condition: str) -> QueryTest:
    return pair(
        f"SELECT l.ts, r.ts AS at FROM lefts l JOIN rights r ON {condition} AND l.k = r.k", "k int, o int", "0 s"
    )


def test_the_table_is_whole():
    """Spark has 51 spellings."""
    assert len(AS_SPARK) + len(DIFFERENT) == 51
    assert all(spark != ours for _, spark, ours in DIFFERENT)


@pytest.mark.parametrize(("condition", "last_ms"), OURS)
def test_windows(condition, last_ms):
    """Case "extract watermark from time condition": the window that a condition is."""
    hi_us = query(condition)._run.plan.join.windows.hi("l", "r")
    assert (None if hi_us >= UNBOUNDED else (MARK_US - hi_us - 1) // 1000) == last_ms


@pytest.mark.parametrize(("condition", "last_ms"), [case for case in OURS if case[1] is not None])
def test_state(condition, last_ms):
    """What the window says happens: rows up to the last millisecond go when the watermark is there, and the next one stays."""
    at = last_ms / 1000
    test = query(condition).batch(lefts=[(1, 0, at - 5), (1, 0, at), (1, 0, at + 0.002)]).check().check_state(l=3)
    test.advance(rights=9.99).advance(rights=10).check_state(l=1)


def test_a_left_join_is_bounded_by_them():
    """A condition that bounds in one direction only is no bound of a left join; casts bound it as well as intervals do."""
    on = "CAST(r.ts AS LONG) - CAST(l.ts AS LONG) BETWEEN 0 AND 5"
    test = pair(f"SELECT l.k FROM lefts l LEFT JOIN rights r ON l.k = r.k AND {on}", "k int", "0 seconds")
    test.batch(lefts=[(1, 0.9), (2, 0.9)]).batch(rights=[(1, 5.95)]).check((1,))
    test.advance(rights=6.9).check((2,)).check_state(r=1)
    with pytest.raises(wm.WindowError, match=r"add WINDOW \(l, r\)"):
        pair("SELECT l.k FROM lefts l LEFT JOIN rights r ON CAST(r.ts AS LONG) > CAST(l.ts AS LONG)", "k int")
