"""Queries as users write them: FROM, names, SELECT, and texts that cannot be read."""

import pytest

from watersmeet.errors import ParseError, QueryError, UnknownNameError
from watersmeet.query.predicate import Equality
from watersmeet.sql.expressions import WatersmeetSpark


def outputs(join):
    return [(out.name, str(out.expr)) for out in join.select]


@pytest.mark.parametrize(
    "source",
    [
        "s0 a, s1 b WHERE a.k = b.k",
        "s0 a JOIN s1 b ON a.k = b.k",
        "s0 AS a INNER JOIN s1 AS b ON a.k = b.k",
        "S0 a, S1 b WHERE A.K = B.k",
        "s0 a JOIN s1 b WHERE a.k = b.k",
        "s0 a JOIN s1 b USING (k)",
    ],
)
def test_from_forms(bound, source):
    join = bound(f"SELECT a.v FROM {source}")
    assert [(i.alias, i.stream) for i in join.inputs] == [("a", "s0"), ("b", "s1")]
    assert [str(p) for p in join.predicates] == ["a.k = b.k"]
    assert isinstance(join.predicates[0], Equality)


def test_cross_join_is_spelled(bound):
    assert bound("SELECT a.k FROM s0 a CROSS JOIN s1 b").crossed == {"b"}
    assert bound("SELECT a.k FROM s0 a, s1 b CROSS JOIN s2 c WHERE a.k = b.k").crossed == {"c"}
    for source in ("s0 a, s1 b", "s0 a JOIN s1 b", "s0 a, s1 b WINDOW = 5 s"):
        with pytest.raises(QueryError, match=r"'b' is joined to nothing.*CROSS JOIN b"):
            bound(f"SELECT a.k FROM {source}")


def test_using_merges_the_column(bound):
    join = bound("SELECT k, * FROM s0 a JOIN s1 b USING (k)")
    assert outputs(join)[0] == ("k", "a.k")
    assert [text for _, text in outputs(join)[1:]] == [
        "a.k",
        "a.j",
        "a.v",
        "a.name",
        "a.ts",
        "b.j",
        "b.v",
        "b.name",
        "b.ts",
    ]


def test_using_chains_from_the_left(bound):
    join = bound("SELECT * FROM s0 a JOIN s1 b USING (k) JOIN s2 c USING (k)")
    assert [str(p) for p in join.predicates] == ["a.k = b.k", "a.k = c.k"]
    assert len(join.select) == 13


def test_self_join_and_default_alias(bound):
    join = bound("SELECT s0.k, b.k FROM s0, s0 b WHERE s0.k = b.k")
    assert join.aliases == ("s0", "b")
    assert set(join.streams) == {"s0"}


@pytest.mark.parametrize("source", ["s0 a, s1 a", "s0, s0", "s0 a, s1 A"])
def test_an_alias_stands_once(bound, source):
    with pytest.raises(UnknownNameError, match="twice"):
        bound(f"SELECT 1 AS x FROM {source}")


def test_unknown_stream_lists_those_supplied(bound):
    with pytest.raises(UnknownNameError, match=r"'click' is not supplied; supplied are s0, s1, s2, s3, nested"):
        bound("SELECT a.k FROM s0 a, click c WHERE a.k = c.k")


def test_exact_names_win_over_case(streams):
    from watersmeet.sql.parse import parse

    both = {"s": streams["s0"], "S": streams["s1"]}
    assert [i.stream for i in parse("SELECT a.k FROM S a, s b WHERE a.k = b.k", both).inputs] == ["S", "s"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.nam", r"no column 'nam'; its columns are k, j, v, name, ts. Did you mean 'name'\?"),
        ("c.k", "no alias 'c' in FROM; the aliases are a, b"),
        ("k", "'k' is ambiguous: a and b have it; write a.k or b.k"),
        ("nope", "no stream has a column 'nope'"),
        ("a.k.x", "a.k is bigint and has no field 'x'"),
        ("a.v + *", "star"),
        ("coalesce(a.*)", "star"),
    ],
)
def test_bad_columns(bound, text, message):
    with pytest.raises(QueryError, match=message):
        bound(f"SELECT {text} FROM s0 a, s1 b WHERE a.k = b.k")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", [("id", "n.id")]),
        ("ID", [("ID", "n.id")]),
        ("n.mixed", [("mixed", "n.Mixed")]),
        ("n.`odd name`", [("odd name", "n.`odd name`")]),
        ("n.s.x", [("x", "n.s.x")]),
        ("s.y.z", [("z", "n.s.y.z")]),
        ("n.s.y.z AS q", [("q", "n.s.y.z")]),
        ("n.id + 1", [("n.id + 1", "n.id + 1")]),
        ("id, id", [("id", "n.id"), ("id", "n.id")]),
        ("n.id one, a.k AS `two words`", [("one", "n.id"), ("two words", "a.k")]),
        ("a.*", [(c, f"a.{c}") for c in ("k", "j", "v", "name", "ts")]),
        ("filter(arr, x -> x > n.id) AS f", [("f", "FILTER(n.arr, x -> x > n.id)")]),
        ("1 AS one", [("one", "1")]),
    ],
)
def test_select(bound, text, expected):
    assert outputs(bound(f"SELECT {text} FROM nested n, s0 a WHERE n.id = a.k")) == expected


def test_star_expands_in_order(bound):
    join = bound("SELECT * FROM s1 b, s0 a WHERE a.k = b.k")
    assert [text for _, text in outputs(join)] == [f"{x}.{c}" for x in "ba" for c in ("k", "j", "v", "name", "ts")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        ("SELEC a.k FROM s0 a", "expected a SELECT statement, found 'SELEC'"),
        ("INSERT INTO x SELECT 1", "found 'INSERT'"),
        ("SELECT a.k FROM s0 a, s1 b WHERE a.k = = b.k", ">>>=<<<"),
        ("SELECT a.k FROM s0 a, s1 b WHERE a.name = 'x", "cannot read the query"),
        ("SELECT 1; SELECT 2", "expected one SELECT statement, found 2"),
        ("SELECT 1", "no FROM"),
        ("(SELECT a.k FROM s0 a)", "expected a SELECT statement"),
        ("SELECT a.k FROM s0 a, s1 b WHERE a.k = b.k WHERE a.v > 1", "WHERE"),
    ],
)
def test_unreadable_texts(bound, text, message):
    with pytest.raises(ParseError, match=message):
        bound(text)


def test_one_stream_is_no_join(bound):
    with pytest.raises(QueryError, match="two or more"):
        bound("SELECT k FROM s0")


def test_deep_nesting_is_an_error_of_ours(bound):
    with pytest.raises(ParseError):
        bound(f"SELECT a.k FROM s0 a, s1 b WHERE {'(' * 5000}a.k = b.k{')' * 5000}")


def test_the_text_is_kept(bound):
    text = "SELECT a.k FROM s0 a, s1 b WHERE a.k = b.k WINDOW = 5 s"
    assert bound(text).text == text


def test_a_compiled_sqlglot_is_named(bound, monkeypatch):
    def refuse(*_, **__):
        raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr(WatersmeetSpark, "parser_class", refuse)
    with pytest.raises(ParseError, match="pip uninstall sqlglotc"):
        bound("SELECT a.v FROM s0 a, s1 b WHERE a.k = b.k")
