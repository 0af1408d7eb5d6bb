"""Parameters of registered queries, and queries that are replaced."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.registry.test_ranges import VALUES, ids, registry, table
from tests.rounds.test_subscriptions import Life, Sink, sql
from watersmeet.sql.parameters import fill_in
from watersmeet.sql.parse import parse_condition

NONE = dict.fromkeys(VALUES)
ROWS = table([{"id": n, "ts": n, **NONE, "k": n, "name": f"n'{n}"} for n in range(6)])


def test_one_query_for_many_subscribers() -> None:
    subs = registry()
    one = "SELECT r.id FROM r WHERE r.k >= :low AND r.k IN (:some)"
    assert subs.add_each(one, {f"u{n}": {"low": n, "some": [1, 2, 3]} for n in range(5)}) == [f"u{n}" for n in range(5)]
    subs.add("SELECT r.id FROM r WHERE r.name = :name", id="text", params={"name": "n'4"})
    got = ids(subs.push({"r": ROWS}))
    assert got == Counter([(f"u{n}", k) for n in range(5) for k in (1, 2, 3) if k >= n] + [("text", 4)])
    assert subs.list()[0].sql == "SELECT r.id FROM r WHERE r.k >= 0 AND r.k IN (1, 2, 3)"


@given(
    st.text(max_size=20)
    | st.integers()
    | st.none()
    | st.booleans()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
def test_a_value_is_one_constant_whatever_it_holds(value: Any) -> None:
    with_value = parse_condition(fill_in("a.x <=> :v", {"v": value}))
    assert [c.name for c in with_value.find_all(type(parse_condition("a.x").this))] in (
        [],
        ["a", "x"],
        ["x", "a"],
        ["x"],
    )
    assert len(list(with_value.find_all(type(parse_condition("a.x"))))) <= 2


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("a.x > :low", {}, "parameter :low, and params has no 'low'"),
        ("a.x > :low", {"low": 1, "high": 2}, "params has 'high'"),
        ("a.x IN (:some)", {"some": []}, "empty list"),
        ("a.x > :low", {"low": float("nan")}, "give a number"),
        ("a.x > :low", {"low": object()}, "give a number"),
        ("a.x > :low", [1], "give a mapping"),
    ],
)
def test_what_is_wrong_with_parameters(text: str, params: Any, said: str) -> None:
    with pytest.raises(wm.WatersmeetError, match=said):
        fill_in(text, params)


def test_how_values_are_written() -> None:
    values = {"a": -1, "b": 2.5, "c": Decimal("1E+2"), "d": date(2024, 5, 1), "e": datetime(2024, 5, 1, 12), "f": None}
    assert fill_in("x -:a, :b, :c, :d, :e, :f, ':a', v:a, y::int", values) == (
        "x - -1, 2.5e0, 100, DATE '2024-05-01', TIMESTAMP '2024-05-01 12:00:00', NULL, ':a', v:a, y::int"
    )


def test_a_query_is_replaced_in_one_step() -> None:
    subs = registry()
    subs.add("SELECT r.id FROM r WHERE r.k < 2", id="mine")
    assert set(ids(subs.push({"r": ROWS}))) == {("mine", 0), ("mine", 1)}
    subs.replace("mine", "SELECT r.id FROM r WHERE r.k > :n", params={"n": 4})
    assert [e.state for e in subs.list()] == ["waiting"]
    assert set(ids(subs.push({"r": ROWS}))) == {("mine", 5)}
    with pytest.raises(wm.QueryError, match="no query 'yours' is registered"):
        subs.replace("yours", "SELECT r.id FROM r")
    with pytest.raises(wm.WatersmeetError, match="no column 'nope'"):
        subs.replace("mine", "SELECT r.nope FROM r")
    assert set(ids(subs.push({"r": ROWS}))) == {("mine", 5)}, "what is refused changes nothing"


def test_a_replacement_is_one_version_and_outlives_the_process(tmp_path: Path) -> None:
    life = Life(tmp_path, Sink())
    life.registry.add_all([("a", sql(5)), ("b", sql(1))])
    life.batch(0)
    version = life.registry.version
    life.registry.replace("a", "SELECT r.id AS other FROM r WHERE r.id = 11")
    assert life.registry.version == version + 1
    again = Life(tmp_path, life.sink)
    again.batch(1)
    assert {p for p in life.sink.batches[1] if p[0] == "a"} == {("a", '{"other":11}')}
