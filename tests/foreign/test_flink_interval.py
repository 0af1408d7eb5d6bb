"""Flink's IntervalJoinOperatorTest, as facts: lower <= right - left <= upper, both bounds inclusive or exclusive; every case with either side faster.

Flink's watermark t says that nothing at t or before will come. Here rows at the watermark are not late, so t is a watermark of t + 1 for times that are whole numbers.
"""

from __future__ import annotations

import pytest

from tests.foreign.streams import pair
from watersmeet.testing import QueryTest

FASTER = pytest.mark.parametrize("left_is_faster", [True, False], ids=["left", "right"])


def joined(lower: int, upper: int, *, inclusive: tuple[bool, bool] = (True, True), lateness: int = 0) -> QueryTest:
    above, below = (">=" if inclusive[0] else ">"), ("<=" if inclusive[1] else "<")
    on = f"r.ts {above} l.ts {_shift(lower)} AND r.ts {below} l.ts {_shift(upper)}"
    shown = "l.ts AS lt, r.ts AS rt, greatest(l.ts, r.ts) AS youngest"
    return pair(f"SELECT {shown} FROM lefts l JOIN rights r ON l.k = r.k AND {on}", "k string", f"{lateness} seconds")


def _shift(seconds: int) -> str:
    return f"{'-' if seconds < 0 else '+'} INTERVAL {abs(seconds)} SECONDS"


def rows(*times: int) -> list[tuple[str, int]]:
    return [("key", at) for at in times]


def expected(pairs: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Pairs with the time of the younger row, which is the time that Flink gives to a result."""
    return [(left, right, max(left, right)) for left, right in pairs]


def play(test: QueryTest, left_is_faster: bool) -> QueryTest:
    """1 to 4 of one side, each in a batch of its own, then 1 to 4 of the other."""
    for stream in ("lefts", "rights") if left_is_faster else ("rights", "lefts"):
        for at in range(1, 5):
            test.batch({stream: rows(at)})
    return test


BOUNDS = {
    "testNegativeInclusiveAndNegativeInclusive": (-2, -1, True, True, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
    "testNegativeInclusiveAndPositiveInclusive": (-1, 1, True, True, [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)]),
    "testPositiveInclusiveAndPositiveInclusive": (1, 2, True, True, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
    "testNegativeExclusiveAndNegativeExlusive": (-3, -1, False, False, [(3, 1), (4, 2)]),
    "testNegativeExclusiveAndPositiveExlusive": (-1, 1, False, False, [(1, 1), (2, 2), (3, 3), (4, 4)]),
    "testPositiveExclusiveAndPositiveExlusive": (1, 3, False, False, [(1, 3), (2, 4)]),
    "testImplementationMirrorsCorrectly, one way": (1, 3, True, False, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
    "testImplementationMirrorsCorrectly, the other": (-3, -1, False, True, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
}  # fmt: skip
"""Lower and upper bound, whether they are inclusive, and the pairs (left, right)."""


@FASTER
@pytest.mark.parametrize("case", BOUNDS)
def test_bounds(case, left_is_faster):
    """All cases of bounds; nothing is late."""
    lower, upper, low, high, pairs = BOUNDS[case]
    play(joined(lower, upper, inclusive=(low, high)), left_is_faster).check(*expected(pairs)).check_late()


CLEANED = {
    "testStateCleanupNegativeInclusiveNegativeInclusive": (-1, 0, True, [([2, 3, 4, 5], [1, 2, 3, 4, 5]), ([5], [4, 5]), ([], [])]),
    "testStateCleanupNegativePositiveNegativeExlusive": (-2, 1, False, [([2, 3, 4, 5], [1, 2, 3, 4, 5]), ([5], [4, 5]), ([], [])]),
    "testStateCleanupPositiveInclusivePositiveInclusive": (0, 1, True, [([1, 2, 3, 4, 5], [2, 3, 4, 5]), ([4, 5], [5]), ([], [])]),
    "testStateCleanupPositiveExlusivePositiveExclusive": (-1, 2, False, [([1, 2, 3, 4, 5], [2, 3, 4, 5]), ([4, 5], [5]), ([], [])]),
}  # fmt: skip
"""Bounds, whether they are inclusive, and what is left in the two buffers after Flink's watermarks 1, 4 and 6."""


@FASTER
@pytest.mark.parametrize("case", CLEANED)
def test_cleaning(case, left_is_faster):
    """State after the watermarks of both sides have reached 1, 4 and 6."""
    lower, upper, inclusive, buffers = CLEANED[case]
    test = joined(lower, upper, inclusive=(inclusive, inclusive), lateness=3)
    first, second = ("lefts", "rights") if left_is_faster else ("rights", "lefts")
    test.batch({first: rows(1, 2, 3, 4, 5)}).batch({second: rows(1, 2, 3, 4, 5)})
    for watermark, (left, right) in zip((1, 4, 6), buffers, strict=True):
        reached = watermark + 1 + 3
        test.advance(**{first: reached}).advance(**{second: reached})
        assert _times(test, "l") == left
        assert _times(test, "r") == right


def _times(test: QueryTest, alias: str) -> list[int]:
    """The event times in state, in seconds."""
    run = test._run
    held = [run.units.store.read(info) for state in run.units.states.values() for info in state.segments[alias]]
    return sorted(int(us) // 1_000_000 for segment in held for us in segment.ts)


@FASTER
def test_restore(left_is_faster):
    """Case "testRestoreFromSnapshot"."""
    test, sides = joined(-1, 1), ("lefts", "rights") if left_is_faster else ("rights", "lefts")
    for at in (1, 2, 3):
        for stream in sides:
            test.batch({stream: rows(at)})
    test.check(*expected([(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)])).restart()
    for stream in sides:
        test.batch({stream: rows(4)})
    test.check(*expected([(3, 4), (4, 3), (4, 4)])).check_late()


def test_late_rows_are_dropped():
    """Case "testDiscardsLateData": the second left row at 1 is not joined again."""
    test = joined(-1, 1)
    for at in (1, 2, 3):
        test.batch(lefts=rows(at), rights=rows(at))
    test.batch(lefts=rows(1)).check_late(lefts=1)
    for at in (4, 5):
        test.batch(lefts=rows(at), rights=rows(at))
    near = [(left, right) for left in range(1, 6) for right in range(1, 6) if abs(left - right) <= 1]
    test.check(*expected(near)).check_late(lefts=1)


def test_late_rows_of_both_sides():
    """Case "testLateData": Flink gives them to side outputs, one for each side."""
    test = joined(-1, 1).batch(lefts=rows(3), rights=rows(3)).batch(lefts=rows(4, 1), rights=rows(4, 2))
    test.check_late(lefts=1, rights=1).batch(lefts=rows(5), rights=rows(5))
    near = [(left, right) for left in range(3, 6) for right in range(3, 6) if abs(left - right) <= 1]
    test.check(*expected(near)).check_late(lefts=1, rights=1)
    found = [(row["stream"], row["reason"], row["lag_us"] // 1_000_000) for row in test.late_rows]
    assert sorted(found) == [("lefts", "late", 2), ("rights", "late", 1)]


@pytest.mark.parametrize("stream", ["lefts", "rights"])
def test_rows_without_a_time(stream):
    """Cases "testFailsWithNoTimestampsLeft" and "...Right": Flink fails, and here such a row is counted with the late ones and joins nothing."""
    test = joined(0, 0).batch({stream: [("key", None)]}).batch(lefts=rows(0), rights=rows(0))
    test.check(*expected([(0, 0)])).check_late(**{stream: 1})
