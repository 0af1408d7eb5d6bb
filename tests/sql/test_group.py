"""GROUP BY and aggregates: what is read, what is made of it, and what belongs to no group."""

import pytest

from watersmeet.errors import ParseError, QueryError, UnknownNameError, UnsupportedError
from watersmeet.query.select import Distinct, Grouping

W = "FROM s0 a, s1 b WHERE a.k = b.k"


def read(join):
    return [str(o.expr) for o in join.select]


def made(join):
    assert isinstance(join.finish, Grouping)
    return [(o.name, o.expr.spark(lambda ref: ref.column)) for o in join.finish.select]


def test_keys_are_read_first_then_arguments_once(bound):
    join = bound(f"SELECT count(*) AS n, sum(b.v) AS s, avg(b.v) AS m, a.k, max(b.v + 1) AS h {W} GROUP BY a.k")
    assert read(join) == ["a.k", "b.v", "b.v + 1"]
    assert [str(a) for a in join.finish.aggregates] == ["count(*)", "sum(b.v)", "avg(b.v)", "max(b.v + 1)"]
    assert [a.argument for a in join.finish.aggregates] == [None, 1, 1, 2]
    assert made(join) == [("n", "a0"), ("s", "a1"), ("m", "a2"), ("k", "g0"), ("h", "a3")]
    assert [o.name for o in join.results] == ["n", "s", "m", "k", "h"]


def test_expressions_over_keys_and_aggregates(bound):
    join = bound(f"SELECT lower(a.name) || '!' AS n, sum(b.v) / count(*) + a.k AS m {W} GROUP BY lower(a.name), a.k")
    assert made(join) == [("n", "g0 || '!'"), ("m", "a0 / a1 + g1")]


@pytest.mark.parametrize("by", ["lower(a.name)", "LOWER(A.Name)", "1", "n", "N"])
def test_a_key_is_an_expression_a_number_or_a_name(bound, by):
    join = bound(f"SELECT lower(a.name) AS n, count(*) AS c {W} GROUP BY {by}")
    assert (read(join), made(join)) == (["LOWER(a.name)"], [("n", "g0"), ("c", "a0")])


def test_a_column_comes_before_a_name(bound):
    with pytest.raises(UnknownNameError, match="ambiguous"):
        bound(f"SELECT a.k AS v, count(*) AS c {W} GROUP BY v")


def test_an_aggregate_alone_is_of_all_results(bound):
    join = bound(f"SELECT count(*) AS n, count(1) AS m {W}")
    assert (join.finish.keys, read(join), made(join)) == (0, [], [("n", "a0"), ("m", "a0")])


def test_a_group_without_an_aggregate_is_counted(bound):
    assert [str(a) for a in bound(f"SELECT a.k {W} GROUP BY a.k").finish.aggregates] == ["count(*)"]


@pytest.mark.parametrize(
    "place",
    [
        "WINDOW (a, b) = 5 s AND DWINDOW (a, b) = 3 s GROUP BY a.k",
        "GROUP BY a.k WINDOW (a, b) = 5 s AND DWINDOW (a, b) = 3 s",
    ],
)
def test_windows_stand_before_or_after(bound, place):
    assert bound(f"SELECT a.k, count(*) AS n {W} {place}").windows.show("a", "b") == "0 s <= b - a <= 3 s"


def test_distinct(bound):
    join = bound(f"SELECT DISTINCT a.k, b.v + 1 AS w {W}")
    assert join.finish == Distinct()
    assert [o.name for o in join.results] == ["k", "w"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT a.v, count(*) {W} GROUP BY a.k", "a.v is neither in GROUP BY nor inside an aggregate"),
        (f"SELECT a.v + count(*) {W} GROUP BY a.k", r"a.v in a.v \+ COUNT\(\*\) is neither"),
        (f"SELECT * {W} GROUP BY a.k", "name the columns of the group"),
        (f"SELECT a.*, count(*) {W} GROUP BY a.k", "name the columns of the group"),
        (f"SELECT sum(count(*)) {W}", "aggregate inside an aggregate"),
        (f"SELECT sum(a.ts) {W}", r"sum\(a.ts\): a.ts is timestamp"),
        (f"SELECT a.k {W} GROUP BY 2", "items 1 to 1"),
        (f"SELECT a.k {W} GROUP BY count(*)", "is an aggregate"),
        (f"SELECT count(*) AS n {W} GROUP BY n", "is an aggregate"),
        (f"SELECT count(*) AS n {W} GROUP BY 'x'", "constant"),
        (f"SELECT count(*) AS n {W} GROUP BY nope", "nope"),
    ],
)
def test_what_belongs_to_no_group(bound, query, message):
    with pytest.raises(QueryError, match=message):
        bound(query)


def test_online_is_what_group_by_means(bound):
    text = f"a.k, sum(b.v) AS s {W} WITHIN 10 MINUTES GROUP BY a.k"
    online, plain = bound(f"SELECT ONLINE {text}"), bound(f"SELECT {text}")
    assert (read(online), made(online), online.windows) == (read(plain), made(plain), plain.windows)
    assert read(bound(f"select online a.k {W}")) == ["a.k"]
    assert bound(f"SELECT ONLINE DISTINCT a.k {W}").distinct


def test_online_may_be_a_name(bound):
    assert [o.name for o in bound(f"SELECT a.k AS online {W}").results] == ["online"]
    with pytest.raises(UnknownNameError, match="online"):
        bound(f"SELECT online {W}")


def test_groups_that_leave_once_are_not_online(bound):
    with pytest.raises(UnsupportedError, match=r"SELECT ONLINE asks for the current values .* leave out ONLINE"):
        bound(f"SELECT ONLINE count(*) AS n {W} WITHIN 1 MINUTE GROUP BY window(a.ts, '1 minute')")


def test_an_error_in_a_window_is_shown_as_it_was_written(bound):
    """window() has another name while sqlglot reads it."""
    with pytest.raises(ParseError, match=r"GROUP BY window\(a\.ts, '1 minute'  >>>a<<<"):
        bound(f"SELECT a.k {W} GROUP BY window(a.ts, '1 minute' a.k")
