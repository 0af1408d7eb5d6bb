"""Spark's tokens of a query's text.

    SELECT o.id FROM orders o WHERE o.total > 12.50 AND o.kind = 'gift'

sqlglot's tokenizer goes through a text character by character. Most queries are words, plain numbers, texts without escapes and a dozen signs: these are found by one regular expression. A text with anything else in it
(comments, quoted names, escapes, numbers with a suffix) is sqlglot's as a whole.

Invariant: the tokens are those of sqlglot's tokenizer, with the same places.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import ParseError
from watersmeet.sql.expressions import SPARK

_PIECE = re.compile(
    r"""(?P<space>[ \t]+)
    |(?P<group>GROUP[ \t]+BY)(?=[ \t\n(])
    |(?P<word>[a-z_][a-z0-9_]*)(?![\w'"`])
    |(?P<number>[0-9]+(?:\.[0-9]+)?)(?![\w.])
    |(?P<one>[(),.\[\];])
    |'(?P<text>[^'\\\n\r]*)'(?!['"`\w])
    |(?P<sign>[<>=!+\-*/%]+)
    |(?P<line>\n)""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_WORDS: dict[str, Any] = Spark.Tokenizer.KEYWORDS
_LONG = re.compile(
    "|".join(rf"\b{re.escape(word)}".replace(r"\ ", r"\s+") for word in _WORDS if re.fullmatch(r"\w+[^\w]\w+", word)),
    re.IGNORECASE,
)
"""Keywords of two words, of which GROUP BY alone is common."""
_ONE = Spark.Tokenizer.SINGLE_TOKENS
_SIGNS = {**{sign: _ONE[sign] for sign in "<>=+-*/%"}, **{sign: _WORDS[sign] for sign in ("<=", ">=", "<>", "!=")}}
_COMMANDS = Spark.Tokenizer.COMMANDS
"""What follows these is a text to sqlglot, whatever it is."""


def tokenize(text: str) -> list[Any]:
    """Spark's tokens, or a ParseError.

    >>> [token.text for token in tokenize("a.k <= 'x' GROUP  BY b")]
    ['a', '.', 'k', '<=', 'x', 'GROUP BY', 'b']
    """
    found = find_plain(text)
    if found is not None:
        return found
    try:
        return list(SPARK.tokenize(text))
    except SqlglotError as error:
        raise ParseError(f"cannot read the query: {error}") from error


def find_plain(text: str) -> list[Any] | None:
    """The tokens of a text; None if it is not as plain as that."""
    out: list[Any] = []
    end, line, begin = 0, 1, -1
    grouped = 0
    for found in _PIECE.finditer(text):
        start, kind = found.start(), found.lastgroup
        if start != end:
            return None
        end = found.end()
        if kind == "space":
            continue
        if kind == "line":
            line, begin = line + 1, start
            continue
        piece = found[0]
        token: Any
        if kind == "word":
            token = _WORDS.get(piece.upper(), TokenType.VAR)
            if token in _COMMANDS:
                return None
        elif kind == "one":
            token = _ONE[piece]
        elif kind == "sign":
            token = _SIGNS.get(piece)
            if token is None:
                return None
        elif kind == "number":
            token = TokenType.NUMBER
        elif kind == "text":
            token, piece = TokenType.STRING, piece[1:-1]
        else:
            token, piece, grouped = TokenType.GROUP_BY, "GROUP BY", grouped + 1
        out.append(Token(token, piece, line, end - 1 - begin, start, end - 1))
    return out if end == len(text) and len(_LONG.findall(text)) == grouped else None
