"""Tokens that one expression finds are those of sqlglot's tokenizer."""

import random

import pytest
from sqlglot.errors import SqlglotError

from tests.registry.hostile import write_query
from watersmeet.sql.expressions import SPARK
from watersmeet.sql.tokens import find_plain
from watersmeet_lab.bench import registration

_PIECES = [
    "SELECT", "group by", "GROUP  BY", "GROUP\nBY", "GROUP", "order by", "ORDER", "user", "USER-DEFINED", "x", "o.id", "o.*", "_a1", "é", "x'1F'", "r'a'", "n", "show", "FETCH", "double", "precision", "by", "1", "2.50", "3.",
    ".5", "1e3", "7L", "0x1F", "1_000", "'a b'", "'it''s'", "'a\\'b'", "'a\nb'", "''", '"q"', "`b`", "(", ")", "[", "]", ",", ";", ".", "<=", ">=", "<>", "!=", "<=>", "==", "=", "-", "--", "--c\n", "/*c*/", "/*+ h */", "+",
    "*", "/", "%", "||", "::", "->", "!", "{", "}", "%}", "@x", "$1", "?", "~", "\n", "\r\n", "\t", " ", "  ", "\x0b", "LEFT ANTI", "WINDOW", "NOT", "\u017felect", "\u212a", "\u00a0",
]  # fmt: skip


def _compare(text: str) -> bool:
    found = find_plain(text)
    if found is None:
        return False
    try:
        given = [*map(repr, SPARK.tokenize(text))]
    except SqlglotError as error:
        raise AssertionError(text) from error
    assert [*map(repr, found)] == given, text
    return True


@pytest.mark.parametrize("seed", range(4))
def test_tokens_are_those_of_sqlglot(seed: int) -> None:
    chance = random.Random(seed)
    texts = ["".join(chance.choice(_PIECES) for _ in range(chance.randrange(1, 7))) for _ in range(2_000)]
    assert sum(map(_compare, texts)) > 100


def test_most_queries_are_plain() -> None:
    chance = random.Random(3)
    texts = [registration.write_query(chance, kind) for kind in registration.KINDS for _ in range(60)]
    assert sum(map(_compare, texts)) == len(texts)
    assert sum(_compare(text.replace(" FROM", "\n\tFROM").replace(" AND", "\nAND")) for text in texts) == len(texts)


def test_hostile_queries() -> None:
    chance = random.Random(4)
    for _ in range(300):
        _compare(write_query(chance))
