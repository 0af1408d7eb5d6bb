"""Views by Arrow are those that SQL makes, or there are none."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.operators.finish.views import quick_view
from watersmeet.plan.finish import Partial

ALL = (
    Partial("count", None, "bigint"),
    Partial("count", "x", "bigint"),
    Partial("sum", "x", "bigint"),
    Partial("sum", "x", "double"),
    Partial("min", "x", "bigint"),
    Partial("max", "y", "double"),
    Partial("sum", "y", "double"),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", "", None)),
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from((2**31, -(2**31)))),
        st.one_of(st.none(), st.integers(-4, 4).map(float), st.just(math.inf)),
    ),
    max_size=12,
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = (pa.string(), pa.int64(), pa.float64())
    return pa.table({n: pa.array([r[i] for r in rows], kinds[i]) for i, n in enumerate("kxy")})


@given(ROWS)
def test_arrow_answers_as_sql_does(rows: list[tuple[Any, ...]]) -> None:
    _rows = table(rows)
    found = quick_view(["k"], ALL, _rows)
    assert found is not None
    items = ", ".join(f"CAST({p.function}({p.argument or '*'}) AS {p.type})" for p in ALL)
    want = duckdb.connect().register("_rows", _rows).sql(f"SELECT k, {items} FROM _rows GROUP BY k").fetchall()
    key = lambda row: (row[0] is None, row[0])  # noqa: E731
    assert sorted(map(tuple, zip(*found.to_pydict().values(), strict=True)), key=key) == sorted(want, key=key)


def test_integers_that_no_double_has_become_the_nearest_one() -> None:
    found = quick_view(["k"], (Partial("sum", "x", "double"),), table([("a", 2**53 + 1, 0.0)]))
    assert found is not None
    assert found.column("v0").to_pylist() == [float(2**53 + 1)]


@pytest.mark.parametrize(
    ("partial", "rows", "why"),
    [
        (Partial("sum", "x", "bigint"), [("a", 2**62, 0.0), ("b", 1, 0.0)], "the sum might overflow"),
        (Partial("max", "y", "double"), [("a", 1, math.nan)], "NaN is the largest number"),
        (Partial("min", "k", "string"), [("a", 1, 1.0)], "texts are compared by SQL"),
    ],
)
def test_what_arrow_does_otherwise_is_left_to_sql(partial: Partial, rows: list[Any], why: str) -> None:
    assert quick_view(["k"], (partial,), table(rows)) is None, why


def test_doubles_as_keys_are_left_to_sql() -> None:
    assert quick_view(["y"], ALL[:1], table([("a", 1, 0.0)])) is None
    assert quick_view([], ALL[:1], table([("a", 1, 0.0)])) is None
