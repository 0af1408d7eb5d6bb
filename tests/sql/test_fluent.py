"""The fluent form binds to the same queries as SQL."""

from datetime import timedelta

import pytest

from watersmeet.api import JoinBuilder
from watersmeet.errors import ParseError, QueryError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.plan.options import Options
from watersmeet.sql.parse import parse


def join(*aliases: str) -> JoinBuilder:
    return JoinBuilder(dict.fromkeys(aliases), Options())


AB = join("a", "b")
ABC = join("a", "b", "c").on("a.k = b.k", "b.k = c.k")
KEY = AB.on("a.k = b.k")


@pytest.fixture
def streams(streams):
    """By alias."""
    return {"a": streams["s0"], "b": streams["s1"], "c": streams["s2"]}


@pytest.mark.parametrize(
    ("builder", "sql"),
    [
        (KEY, "SELECT * FROM a, b WHERE a.k = b.k"),
        (KEY.window("10s"), "SELECT * FROM a, b WHERE a.k = b.k WINDOW = 10 SECONDS"),
        (KEY.within(timedelta(seconds=1.5)), "SELECT * FROM a, b WHERE a.k = b.k WITHIN 1.5 SECONDS"),
        (KEY.window("a", "b", "10s"), "SELECT * FROM a, b WHERE a.k = b.k WINDOW (a, b) = 10 SECONDS"),
        (
            KEY.dwindow("b", "a", "1 hour 30 minutes"),
            "SELECT * FROM a, b WHERE a.k = b.k DWINDOW (b, a) = 90 MINUTES",
        ),
        (
            ABC.window("a", "b", "5s").window("b", "c", "7s"),
            "SELECT * FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW (a, b) = 5 s AND WINDOW (b, c) = 7 s",
        ),
        (
            ABC.dwindow("a", "b", "5s").dwindow("b", "c", "7s"),
            "SELECT * FROM a, b, c WHERE a.k = b.k AND b.k = c.k DWINDOW (a, b) = 5 s AND DWINDOW (b, c) = 7 s",
        ),
        (
            ABC.path("a", "b", "c", "5s"),
            "SELECT * FROM a, b, c WHERE a.k = b.k AND b.k = c.k PATH (a, b, c) = 5 s",
        ),
        (
            ABC.path("c", "a", "b", ("5s", timedelta(seconds=7))),
            "SELECT * FROM a, b, c WHERE a.k = b.k AND b.k = c.k PATH (c, a, b) = (5 s, 7 s)",
        ),
        (KEY.range("a", "5s").rows("b", 3), "SELECT * FROM a [RANGE 5 s], b [ROWS 3] WHERE a.k = b.k"),
        (KEY.tumble_rows("b", 3), "SELECT * FROM a, b [TUMBLING 3 ROWS] WHERE a.k = b.k"),
        (
            AB.on("a.k = b.k", "a.v < b.v").where("a.v > 1 OR a.v < 0"),
            "SELECT * FROM a, b WHERE a.k = b.k AND a.v < b.v AND (a.v > 1 OR a.v < 0)",
        ),
        (KEY.select("a.k", "b.v * 2 AS w, b.j"), "SELECT a.k, b.v * 2 AS w, b.j FROM a, b WHERE a.k = b.k"),
        (KEY.select("b.*"), "SELECT b.* FROM a, b WHERE a.k = b.k"),
        (AB.cross("b"), "SELECT * FROM a CROSS JOIN b"),
        (
            KEY.window("10s").distinct().select("a.k"),
            "SELECT DISTINCT a.k FROM a, b WHERE a.k = b.k WINDOW = 10 s",
        ),
        (
            KEY.group_by("a.k", "lower(b.name)").select("a.k", "lower(b.name) AS n", "sum(b.v) / count(*) AS m"),
            "SELECT a.k, lower(b.name) AS n, sum(b.v) / count(*) AS m FROM a, b WHERE a.k = b.k GROUP BY a.k, lower(b.name)",
        ),
        (
            KEY.window("10s")
            .group_by("window(a.ts, '5 s', '1 s')", "b.v")
            .having("count(*) > 2", "window.start IS NOT NULL")
            .select("window", "b.v"),
            "SELECT window, b.v FROM a, b WHERE a.k = b.k WINDOW = 10 s GROUP BY window(a.ts, '5 s', '1 s'), b.v HAVING (count(*) > 2) AND (window.start IS NOT NULL)",
        ),
        (KEY.select("count(*) AS n"), "SELECT count(*) AS n FROM a, b WHERE a.k = b.k"),
        (
            AB.on("b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS"),
            "SELECT * FROM a, b WHERE b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS",
        ),
    ],
)
def test_same_as_sql(builder, sql, streams):
    fluent, other = builder._form.bind(streams), parse(sql, streams)
    assert fluent.inputs == other.inputs
    assert fluent.predicates == other.predicates
    assert fluent.filters == other.filters
    assert fluent.windows.bounds == other.windows.bounds
    assert [w.bounds for w in fluent.windows.alternatives] == [w.bounds for w in other.windows.alternatives]
    assert fluent.select == other.select
    assert fluent.finish == other.finish
    assert (fluent.crossed, fluent.timed) == (other.crossed, other.timed)


@pytest.mark.parametrize("alias", ["select", "order", "window", "odd name", "left", "from", "path"])
def test_an_alias_may_be_a_word_of_sql(alias, streams):
    made = join(alias, "b").on(f"`{alias}`.k = b.k").window(alias, "b", "10s").rows(alias, 3)
    found = made._form.bind({alias: streams["a"], "b": streams["b"]})
    assert found.aliases == (alias, "b")
    assert found.windows.show(alias, "b") == f"|b - {alias}| <= 10 s"


def test_a_builder_is_a_value():
    assert AB.on("a.k = b.k")._form == KEY._form
    assert AB._form.conditions == ()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: AB.window("a", "10s"), WindowError, "window takes"),
        (lambda: AB.window("a", "b", "-1s"), WindowError, "negative"),
        (lambda: AB.path(), WindowError, "path takes"),
        (lambda: AB.path("a", "b", ()), WindowError, "0 bounds for 1 hop:"),
        (lambda: AB.path("a", "b", ("1s", "2s")), WindowError, "2 bounds for 1 hop:"),
        (lambda: AB.path("a", "b"), WindowError, "not a span of time"),
        (lambda: AB.path("a", "b", 5), WindowError, "not a span of time"),
        (lambda: AB.window("banana"), WindowError, "banana"),
        (lambda: AB.window(timedelta(0)), WindowError, "zero"),
        (lambda: AB.rows("a", 0), WindowError, "positive"),
        (lambda: AB.on("a.k = "), ParseError, "cannot read"),
        (lambda: AB.on(""), ParseError, "empty"),
        (lambda: AB.on("a.k = b.k) OR (1 = 1"), ParseError, "unexpected"),
        (lambda: AB.on("a.k = b.k; SELECT 1"), ParseError, "unexpected"),
        (lambda: AB.on(None), ParseError, "expected a text"),
        (lambda: AB.select("a.k FROM a WHERE 1 = 1 --"), ParseError, "not a column|cannot read"),
        (lambda: AB.select("DISTINCT a.k"), ParseError, r"\.distinct\(\)"),
        (lambda: AB.group_by("a.k +"), ParseError, "cannot read"),
        (lambda: AB.group_by("ROLLUP (a.k)"), UnsupportedError, "ROLLUP"),
        (lambda: AB.having("count(*) >"), ParseError, "cannot read"),
        (lambda: AB.range("x", "10s"), UnknownNameError, "no such alias"),
        (lambda: AB.rows("x", 3), UnknownNameError, "no such alias"),
        (lambda: AB.cross("x"), UnknownNameError, "no such alias"),
    ],
)
def test_bad_pieces_fail_at_once(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("builder", "error", "message"),
    [
        (KEY.window("a", "x", "10s"), UnknownNameError, "no alias 'x'"),
        (KEY.window("a", "a", "10s"), WindowError, "twice"),
        (AB, QueryError, "joined to nothing"),
        (KEY.select("a.v", "count(*)"), QueryError, "neither in GROUP BY"),
        (KEY.group_by("a.k"), QueryError, "name the columns of the group"),
        (KEY.group_by("a.k").select("a.k").having("count(*) > 2"), UnsupportedError, "HAVING.*add window"),
        (KEY.group_by("a.k").distinct().select("a.k"), UnsupportedError, "leave"),
        (join("nope", "b"), UnknownNameError, "'nope' is not supplied"),
    ],
)
def test_bad_queries_fail_when_bound(builder, error, message, streams):
    with pytest.raises(error, match=message):
        builder._form.bind(streams)


@pytest.mark.parametrize(
    ("method", "word"),
    [("left", "LEFT JOIN"), ("right", "RIGHT JOIN"), ("full", "FULL JOIN"), ("semi", "LEFT SEMI JOIN"), ("anti", "LEFT ANTI JOIN")],
)  # fmt: skip
def test_outer_joins_are_those_of_sql(streams, method, word):
    q = getattr(join("a", "b", "c").on("a.k = b.k", "a.k = c.k"), method)("c")
    q = q.window("10s").where("a.v > 0").select("a.k")
    text = f"SELECT a.k FROM a AS a JOIN b AS b ON (a.k = b.k) {word} c AS c ON (a.k = c.k) WHERE (a.v > 0) AND WINDOW = 10s"
    assert q._form.text == text
    if method == "right":
        assert q._form.bind(streams).tree is None, "WHERE rejects its NULLs"
        return
    mine, its = q._form.bind(streams), parse(text, streams)
    assert mine.tree is not None
    assert mine.tree.description() == its.tree.description()


def test_a_join_of_no_alias_is_refused():
    made = join("a", "b")
    with pytest.raises(UnknownNameError, match=r"left\('x'\): no such alias; the aliases are a, b"):
        made.left("x")
    with pytest.raises(UnknownNameError, match=r"anti\('a'\): the first alias is joined to nothing before it"):
        made.anti("a")
