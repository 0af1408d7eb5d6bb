"""Whatever the text, only errors of ours come out."""

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from watersmeet.errors import WatersmeetError
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "ON",
    "JOIN",
    "CROSS",
    "LEFT",
    "USING",
    "WINDOW",
    "DWINDOW",
    "PATH",
    "WITHIN",
    "RANGE",
    "ROWS",
    "INTERVAL",
    "SECONDS",
    "MINUTES",
    "BETWEEN",
    "IN",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "AS",
    "LIKE",
    "ESCAPE",
    "GROUP",
    "BY",
    "ORDER",
    "LIMIT",
    "UNION",
    "LATERAL",
    "VIEW",
    "explode",
    "TIMESTAMP",
    "DAY",
    "TO",
    "SECOND",
    "a",
    "b",
    "s",
    "t",
    "a.k",
    "b.k",
    "a.ts",
    "b.ts",
    "a.name",
    "k",
    "ts",
    "abs",
    "coalesce",
    "window",
    "rand",
    "substring",
    "(",
    ")",
    "[",
    "]",
    ",",
    ".",
    ";",
    "=",
    "<",
    "<=",
    "<=>",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "::",
    "->",
    "?",
    "'",
    "`",
    '"',
    "\\",
    "1",
    "5",
    "-1",
    "0.5",
    "10s",
    "1e400",
    "'10'",
    "'x'",
    "{0}",
    "--",
    "/*",
    "*/",
    "@",
    "$",
    "#",
    "!",
    "&",
    "|",
    "^",
    "~",
]
STREAMS = {n: StreamSpec(n, {"k": "bigint", "name": "string", "ts": "timestamp"}, time="ts") for n in "st"}


def survives(text):
    """Any other exception fails the test."""
    with suppress(WatersmeetError):
        parse(text, STREAMS)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=15))
@example(["a.k", "=", "1e400"])
@example(["abs(a.k", "-", "b.k)", "<=", "1e400"])
def test_token_soup_after_where(words):
    survives("SELECT a.k FROM s a, t b WHERE " + " ".join(words))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=20))
def test_token_soup(words):
    survives(" ".join(words))
    survives("SELECT " + " ".join(words))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text(text):
    survives(text)
    survives(f"SELECT a.k FROM s a, t b WHERE {text}")


@pytest.mark.parametrize("text", [None, 5, b"SELECT"])
def test_not_a_text(text):
    survives(text)
