"""A plan or a query that cannot run cannot be made, and says why."""

from __future__ import annotations

import pytest

from watersmeet.errors import OptionError, QueryError, UnknownNameError, WindowError
from watersmeet.sites.planning.model import Algorithm, LinearPlan, SiteQuery, SiteStream
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet.sites.planning.trees import TreePlan

ABC = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.x = c.x"], window_us=1)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: SiteStream("a", "A"), WindowError, "either window_us"),
        (lambda: SiteStream("a", "A", 1, 1), WindowError, "either window_us"),
        (lambda: SiteStream("a", "A", -1), WindowError, "negative"),
        (lambda: SiteStream("a", "A", window_rows=0), WindowError, "give 1 or more"),
        (lambda: SiteQuery.of({"a": "A"}, [], window_us=1), QueryError, "two streams or more"),
        (lambda: SiteQuery.of({"a": "A", "b": "B"}, [], window_us=1), QueryError, "no equality connects b with a"),
        (lambda: SiteQuery.of({"a": "A", "b": "B"}, ["a.k = c.k"], window_us=1), UnknownNameError, "no stream c"),
        (lambda: SiteQuery.of({"a": "A", "b": "B"}, ["a.k = a.x"], window_us=1), QueryError, "both sides are of one stream"),
        (lambda: SiteQuery.of({"a": "A", "b": "B"}, ["a.k b.k"], window_us=1), QueryError, "write alias.column"),
        (lambda: Algorithm.of("SM-X"), OptionError, "there are SP-S, SP-D"),
        (lambda: LinearPlan.of(ABC, {"a": "b SP-S, c SP-S"}), OptionError, "one sequence for each of a, b, c"),
        (lambda: linear("b SP-S, b SP-S"), OptionError, "must name each of b, c once"),
        (lambda: linear("c SP-S, b SP-S"), OptionError, "no equality connects c with a"),
        (lambda: linear("b, c SP-S"), OptionError, "should be a stream and an algorithm"),
        (lambda: TreePlan.of(ABC, "a, b SP-S/SP-S, c SP-S/SP-D"), OptionError, "put results at two sites"),
        (lambda: TreePlan.of(ABC, "a, c SP-S/SP-D, b SP-S/SP-D"), OptionError, "no equality connects c with a"),
        (lambda: TreePlan.of(ABC, "a, b SP-S/SP-D"), OptionError, "names each of a, b, c once"),
        (lambda: TreePlan.of(ABC, "a, b SP-S"), OptionError, "write a stream, then streams with two"),
        (lambda: TreePlan.of(ROWS, "a, b SP-S/SP-D"), OptionError, "use a linear plan"),
        (lambda: Statistics({}).check(ROWS), OptionError, "none of stream a"),
        (lambda: Statistics({"a": StreamStatistics(1, 1, {}, {})}).check(ROWS), OptionError, "k is joined"),
        (lambda: Statistics({"a": StreamStatistics(0, 1, {"k": 1}, {"k": 1})}).check(ROWS), OptionError, "above 0"),
    ],
)  # fmt: skip
def test_errors(make, error, said):
    with pytest.raises(error, match=said):
        make()


ROWS = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_rows=2)


def linear(text: str) -> LinearPlan:
    return LinearPlan.of(ABC, {"a": text, "b": "a SP-S, c SP-S", "c": "b SP-S, a SP-S"})


def test_places_follow_the_results():
    plan = linear("b SM-D1, c SM-S2")
    assert plan.places("a") == ("A", "B", "B")
    assert str(plan).startswith("a: b SM-D1, c SM-S2; b: a SP-S")
    tree = TreePlan.of(ABC, "c, b SP-S/SM-D2, a SMB-D1/SM-S1")
    assert tree.places() == ("C", "B", "B")


def test_columns_that_edges_make_equal_are_one_class():
    query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.k = c.y", "a.x = c.x"], window_us=1)
    assert set(query.classes) == {frozenset({("a", "k"), ("b", "k"), ("c", "y")}), frozenset({("a", "x"), ("c", "x")})}
    assert query.between(["a", "b"], "c") == ((("b", "k"), "y"), (("a", "x"), "x"))
