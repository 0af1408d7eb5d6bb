"""A bad join cannot be constructed."""

from __future__ import annotations

from typing import Any

import pytest

from watersmeet.errors import QueryError, UnknownNameError
from watersmeet.query.expr import ColumnRef, Expr, binary, column
from watersmeet.query.join import Input, Join, Output
from watersmeet.query.predicate import Comparison, Condition, Equality
from watersmeet.query.select import GROUP, Aggregate, Grouping
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import WindowGraph


def join(*aliases: str, **changes: Any) -> Join:
    parts = {
        "text": "",
        "inputs": tuple(Input(alias, "s") for alias in aliases),
        "streams": {"s": StreamSpec("s", {"k": "bigint", "v": "double", "ts": "timestamp"}, "ts")},
        "filters": (),
        "predicates": (),
        "windows": WindowGraph.close(aliases, []),
        "select": (Output("k", column(aliases[0], "k")),),
    }
    return Join(**(parts | changes))


def less(x: str, y: str) -> Comparison:
    return Comparison(column(x, "v"), column(y, "v"), binary(column(x, "v"), "<", column(y, "v")), "<")


def equal(x: str, y: str) -> Equality:
    return Equality(column(x, "k"), column(y, "k"), binary(column(x, "k"), "=", column(y, "k")))


def over(*aliases: str) -> Expr:
    return Expr("f", "", "", tuple(ColumnRef(alias, "v") for alias in aliases), portable=True)


def test_one_stream_is_no_join():
    with pytest.raises(QueryError, match="'a'"):
        join("a")


def test_an_alias_joined_to_nothing_is_named():
    with pytest.raises(QueryError, match=r"'c' is joined to nothing.*CROSS JOIN c"):
        join("a", "b", "c", predicates=(equal("a", "b"),))


def test_two_islands_are_not_one_join():
    with pytest.raises(QueryError, match="'c' is joined to nothing"):
        join("a", "b", "c", "d", predicates=(equal("a", "b"), equal("c", "d")))


@pytest.mark.parametrize(
    "links",
    [
        {"predicates": (equal("b", "c"), equal("a", "b"))},
        {"predicates": (Condition(over("a", "b", "c")),)},
        {"predicates": (less("c", "a"), equal("b", "c"))},
        {"predicates": (equal("a", "b"),), "timed": frozenset({frozenset({"b", "c"})})},
        {"predicates": (equal("a", "b"),), "crossed": frozenset({"c"})},
        {"crossed": frozenset({"b", "c"})},
    ],
)
def test_anything_that_relates_connects(links):
    assert join("a", "b", "c", **links).aliases == ("a", "b", "c")


@pytest.mark.parametrize("place", [{"filters": (over("x"),)}, {"select": (Output("x", over("x")),)}])
def test_an_unknown_alias_is_named(place):
    with pytest.raises(UnknownNameError, match="no alias x"):
        join("a", "b", predicates=(equal("a", "b"),), **place)


def test_a_condition_on_no_alias_stands_with_the_first():
    constant = Expr("1 = 1", "1 = 1", "1 = 1", (), portable=True)
    query = join("a", "b", predicates=(equal("a", "b"),), filters=(constant, over("b")))
    assert query.filters_of("a") == (constant,)
    assert query.filters_of("b") == (over("b"),)


def test_the_stream_behind_an_alias():
    assert join("a", "b", predicates=(equal("a", "b"),)).spec("b").name == "s"


def test_a_grouping_refers_to_its_own_keys_and_aggregates_only():
    count = Aggregate("count", None, "count(*)")
    made = Grouping(1, (count,), (Output("k", column(GROUP, "g0")), Output("n", column(GROUP, "a0"))))
    query = join("a", "b", predicates=(equal("a", "b"),), finish=made)
    assert [o.name for o in query.results] == ["k", "n"]
    for wrong in ("g1", "a1"):
        with pytest.raises(AssertionError):
            Grouping(1, (count,), (Output("x", column(GROUP, wrong)),))
    with pytest.raises(AssertionError):
        Grouping(1, (), ())
    with pytest.raises(AssertionError):
        join("a", "b", predicates=(equal("a", "b"),), finish=Grouping(2, (count,), ()))
    with pytest.raises(AssertionError):
        Aggregate("sum", None, "sum()")
