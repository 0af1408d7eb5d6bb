"""Event times compared as numbers of seconds: whatever satisfies such a condition is within the window that it becomes, and the condition still decides."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.sql.parse import parse

COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}
NUMBERS = {"BIGINT": lambda us: us // 1_000_000, "DOUBLE": lambda us: us / 1e6}
STREAMS = {name: StreamSpec(name, {"k": "bigint", "ts": "timestamp"}, time="ts") for name in "st"}
TODAY_US = 1_790_000_000_000_000


def bound(condition: str):
    return parse(f"SELECT a.k FROM s a JOIN t b ON a.k = b.k AND {condition}", STREAMS)


@given(
    st.sampled_from(list(COMPARED)), st.sampled_from(list(NUMBERS)), st.sampled_from(list(NUMBERS)),
    st.integers(-12, 12), st.integers(-3, 3), st.integers(-3_000_000, 3_000_000),
    st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(-500_000, 500_000)), min_size=1, max_size=30),
)  # fmt: skip
def test_windows_hold_what_satisfies_the_condition(op, left, right, quarters, shift, apart, times):
    c = quarters / 4
    shifted = f"a.ts {'-' if shift < 0 else '+'} INTERVAL {abs(shift)} SECONDS"
    join = bound(f"CAST({shifted} AS {left}) {op} CAST(b.ts AS {right}) + {c}")
    lo, hi = join.windows.lo("a", "b"), join.windows.hi("a", "b")
    assert any("CAST" in str(p) for p in join.predicates), "the condition decides"
    assert lo > -UNBOUNDED or hi < UNBOUNDED
    for start, off in times:
        a, b = TODAY_US + start, TODAY_US + start + apart + off
        if COMPARED[op](NUMBERS[left](a + shift * 1_000_000), NUMBERS[right](b) + c):
            assert lo <= b - a <= hi


@pytest.mark.parametrize(
    "condition",
    [
        "CAST(a.ts AS FLOAT) > CAST(b.ts AS FLOAT)",
        "CAST(a.ts AS BIGINT) * 2 > CAST(b.ts AS BIGINT)",
        "CAST(a.ts AS BIGINT) + CAST(b.ts AS BIGINT) > 7",
        "CAST(a.ts AS BIGINT) > b.k",
        "CAST(a.ts + INTERVAL 1 DAY AS BIGINT) > CAST(b.ts AS BIGINT)",
        "CAST(a.ts AS BIGINT) - CAST(b.ts AS BIGINT) > a.k",
    ],
)
def test_others_bound_nothing(condition):
    join = bound(condition)
    assert (join.windows.lo("a", "b"), join.windows.hi("a", "b")) == (-UNBOUNDED, UNBOUNDED)


def test_explain_says_that_the_window_is_wider():
    import watersmeet as wm
    from watersmeet.testing import table

    stream = wm.Stream(table("k bigint, ts timestamp"), time="ts")
    text = "SELECT a.k FROM s a JOIN s b ON a.k = b.k AND CAST(b.ts AS BIGINT) - CAST(a.ts AS BIGINT) BETWEEN 0 AND 5"
    said = str(wm.sql(text, s=stream).explain())
    assert "wider by 999999 us than CAST(b.ts AS BIGINT)" in said
    assert "numbers are not exact" in said
