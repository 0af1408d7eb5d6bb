"""Tables in FROM: whose tuples they are joined to, what their ON becomes, and what is refused."""

from __future__ import annotations

import pytest

from watersmeet.errors import QueryError, UnsupportedError, WindowError
from watersmeet.query.join import Join
from watersmeet.query.stream import StreamSpec
from watersmeet.query.table import TableSpec
from watersmeet.sql.parse import parse

SPECS = {
    "o": StreamSpec("o", {"id": "bigint", "user": "bigint", "v": "int", "ts": "timestamp"}, time="ts"),
    "c": StreamSpec("c", {"id": "bigint", "user": "bigint", "page": "string", "ts": "timestamp"}, time="ts"),
    "u": TableSpec("u", {"id": "bigint", "country": "string"}),
    "k": TableSpec("k", {"code": "string", "n": "int"}),
}


def bound(tail: str, select: str = "o.id") -> Join:
    return parse(f"SELECT {select} FROM {tail}", SPECS)


def lookups(join: Join) -> dict[str, list[str]]:
    return {i.alias: [str(lookup) for lookup in i.lookups] for i in join.inputs if i.lookups}


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ("o JOIN c ON c.user = o.user JOIN u ON u.id = o.user", {"o": ["JOIN u ON u.id = o.user"]}),
        ("u, o, c WHERE u.id = c.user AND c.user = o.user", {"c": ["JOIN u ON u.id = c.user"]}),
        (
            "o LEFT JOIN u ON u.id = o.user AND o.v > 3 JOIN c ON c.user = o.user",
            {"o": ["LEFT JOIN u ON u.id = o.user AND o.v > 3"]},
        ),
        ("o JOIN c ON c.user = o.user CROSS JOIN k", {"o": ["JOIN k ON true"]}),
        ("u RIGHT JOIN o ON u.id = o.user", {"o": ["LEFT JOIN u ON u.id = o.user"]}),
        (
            "o, k, u, c WHERE k.code = u.country AND u.id = o.user AND c.user = o.user",
            {"o": ["JOIN u ON u.id = o.user", "JOIN k ON k.code = u.country"]},
        ),
        (
            "o LEFT JOIN c ON c.user = o.user LEFT JOIN u ON u.id = c.user WINDOW = 5 s",
            {"c": ["LEFT JOIN u ON u.id = c.user"]},
        ),
        (
            "o LEFT ANTI JOIN c ON c.user = o.user JOIN u ON u.id = o.user WINDOW = 5 s",
            {"o": ["JOIN u ON u.id = o.user"]},
        ),
        (
            "o JOIN u ON u.id = o.user JOIN c ON c.user = o.user WHERE u.country = 'FR' AND o.v > 1",
            {"o": ["JOIN u ON u.id = o.user AND u.country = 'FR'"]},
        ),
    ],
)
def test_a_table_is_joined_to_the_stream_that_it_is_about(tail: str, found: dict[str, list[str]]) -> None:
    assert lookups(bound(tail)) == found


def test_columns_of_a_table_are_columns_of_the_stream() -> None:
    join = bound("o JOIN u ON u.id = o.user JOIN c ON c.page = u.country WINDOW = 5 s", "*")
    assert [str(p) for p in join.predicates] == ["c.page = u.country"]
    assert join.predicates[0].aliases == {"o", "c"}
    assert join.aliases == ("o", "c") == join.windows.aliases
    assert [o.name for o in join.select] == ["id", "user", "v", "ts", "id", "country", "id", "user", "page", "ts"]
    assert join.spec("o").schema["u.country"] == "string"
    assert [str(f) for f in join.filters] == ["a row of u is found"]


def test_a_table_that_a_nullable_stream_must_have_makes_its_outer_join_an_inner_one() -> None:
    join = bound("o LEFT JOIN c ON c.user = o.user JOIN u ON u.id = c.user WINDOW = 5 s")
    assert join.tree is None
    assert "LEFT JOIN c is an inner join" in join.notes[0]


def test_where_on_a_left_joined_table_filters_results() -> None:
    join = bound(
        "o LEFT JOIN u ON u.id = o.user LEFT JOIN c ON c.user = o.user WHERE u.country IS NULL OR c.page = 'x' WINDOW = 5 s"
    )
    assert [str(e) for e in join.after] == ["u.country IS NULL OR c.page = 'x'"]
    alone = bound("o LEFT JOIN u ON u.id = o.user LEFT JOIN c ON c.user = o.user WHERE u.country IS NULL WINDOW = 5 s")
    assert [str(e) for e in alone.filters] == ["u.country IS NULL"]


def test_using_merges_columns_with_a_table() -> None:
    specs = SPECS | {"u": TableSpec("u", {"user": "bigint", "country": "string"})}
    join = parse("SELECT * FROM o JOIN u USING (user) JOIN c ON c.page = country WINDOW = 5 s", specs)
    assert lookups(join) == {"o": ["JOIN u ON o.user = u.user"]}
    assert [o.name for o in join.select][:5] == ["user", "id", "v", "ts", "country"]


@pytest.mark.parametrize(
    ("tail", "found", "conditions"),
    [
        (
            "o JOIN c ON c.user = o.user JOIN u ON u.id = o.user AND u.country = c.page",
            ["JOIN u ON u.id = o.user AND u.country = c.page"],
            [],
        ),
        (
            "o JOIN c ON c.user = o.user LEFT JOIN u ON u.id = o.v + c.id WHERE u.country IS NULL OR c.id = 3",
            ["LEFT JOIN u ON u.id = o.v + c.id"],
            ["u.country IS NULL OR c.id = 3"],
        ),
        (
            "o LEFT JOIN c ON c.user = o.user JOIN u ON u.country = coalesce(c.page, 'x') WINDOW = 5 s",
            ["JOIN u ON u.country = COALESCE(c.page, 'x')"],
            [],
        ),
        ("o [ROWS 5] JOIN c ON c.user = o.user JOIN u ON u.id = o.user", ["JOIN u ON u.id = o.user"], []),
        (
            "o, c, u, k WHERE c.user = o.user AND u.id = o.v + c.id AND k.code = u.country",
            ["JOIN u ON u.id = o.v + c.id", "JOIN k ON k.code = u.country"],
            [],
        ),
        (
            "o JOIN c ON c.user = o.user JOIN u ON u.id = o.v + c.id LEFT JOIN c d ON d.user = o.user WINDOW = 5 s",
            ["JOIN u ON u.id = o.v + c.id"],
            [],
        ),
    ],
)
def test_a_table_about_several_streams_is_joined_to_results(tail: str, found: list[str], conditions: list[str]) -> None:
    join = bound(tail)
    assert [str(lookup) for lookup in join.last_lookups] == found
    assert [str(e) for e in join.last_conditions] == conditions
    assert not join.lookups
    assert join.after == ()


@pytest.mark.parametrize(
    ("tail", "error", "words"),
    [
        ("o JOIN c ON c.user = o.user, u", QueryError, "'u' is joined to nothing: .*CROSS JOIN u"),
        ("u JOIN k ON k.code = u.country", QueryError, "reads only tables"),
        ("u LEFT JOIN o ON u.id = o.user", UnsupportedError, "keeps rows of table 'u' .*put the stream first"),
        ("o RIGHT JOIN u ON u.id = o.user", UnsupportedError, "RIGHT JOIN u keeps rows of table 'u'"),
        ("o FULL JOIN u ON u.id = o.user", UnsupportedError, "FULL JOIN u keeps rows of table 'u'"),
        ("o LEFT SEMI JOIN u ON u.id = o.user", UnsupportedError, "semi joins with a table .*LEFT JOIN u"),
        ("o LEFT ANTI JOIN u ON u.id = o.user", UnsupportedError, "anti joins with a table .*is NULL"),
        ("o ASOF JOIN u ON u.id = o.user AND o.ts >= o.ts", QueryError, "order of event times|no event time"),
        ("o JOIN u ON u.id = o.user WINDOW (o, u) = 5 s", WindowError, r"WINDOW \(o, u\).* 'u', which is a table"),
        ("o JOIN u [ROWS 5] ON u.id = o.user", WindowError, r"ROWS 5.* 'u', which is a table and has no event time"),
        (
            "o LEFT JOIN (u JOIN k ON k.code = u.country) ON u.id = o.user",
            UnsupportedError,
            "join of tables alone .*one wm.Table",
        ),
    ],
)
def test_refused(tail: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bound(tail, "1 AS x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "SELECT o.id FROM o JOIN c ON c.user = o.user JOIN u ON u.id = o.v + c.id LEFT JOIN c d ON d.page = u.country WINDOW = 5 s",
            r"joined to results, and LEFT JOIN d would need it before: join 'u' on columns of one stream",
        ),
        (
            "SELECT o.id FROM c d LEFT JOIN (o JOIN c ON c.user = o.user JOIN u ON u.id = o.v + c.id) ON d.user = o.user WINDOW = 5 s",
            "joined to results, and LEFT JOIN .*would need it before",
        ),
        ("SELECT DISTINCT o.id FROM o, c, u WHERE u.id = o.v + c.id AND c.user = o.user", "DISTINCT over that"),
        ("SELECT count(*) FROM o, c, u WHERE u.id = o.v + c.id AND c.user = o.user", "an aggregate over that"),
    ],
)
def test_refused_over_results(text: str, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        parse(text, SPECS)


def test_a_stream_with_a_column_that_is_called_like_a_tables() -> None:
    specs = SPECS | {"o": StreamSpec("o", {"u.id": "bigint", "user": "bigint", "ts": "timestamp"}, time="ts")}
    with pytest.raises(QueryError, match=r"has a column 'u\.id'.* another alias"):
        parse("SELECT o.user FROM o JOIN u ON u.id = o.user", specs)
