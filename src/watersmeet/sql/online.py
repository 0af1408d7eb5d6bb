"""`SELECT ONLINE`, BiStream's word for aggregates that are always up to date: after each micro-batch the value of every group that changed.

That is what GROUP BY means here, and joins are online anyway; so the word changes nothing and is cut out. Groups of `window()` leave once, final: there the word is refused.

    SELECT ONLINE r.a, sum(s.b) FROM ...       the word
    SELECT online, ...    SELECT online.a ...    SELECT online AS x ...       a name: of a column, or of a stream

Implements: Lin, Ooi, Wang, Yu (2015), section 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from watersmeet.errors import UnsupportedError

WORD = "ONLINE"
_NAME = re.compile(r"[\w`\"']")
_AFTER_A_COLUMN = frozenset(
    {"FROM", "AS", "AND", "OR", "IN", "IS", "LIKE", "RLIKE", "ILIKE", "NOT", "BETWEEN", "DIV", "XOR"}
)


def cut_word(text: str, tokens: Sequence[Any], columns: Collection[str]) -> tuple[str, bool]:
    """The text without the word, and whether it stood there; `columns` are names that the streams have.

    >>> from watersmeet.sql.tokens import tokenize
    >>> for text in ("SELECT ONLINE a.x FROM a", "SELECT online FROM a"):
    ...     print(cut_word(text, tokenize(text), ()))
    ('SELECT        a.x FROM a', True)
    ('SELECT online FROM a', False)
    """
    if len(tokens) < 3 or [str(t.text).upper() for t in tokens[:2]] != ["SELECT", WORD]:
        return text, False
    word, after = tokens[1], str(tokens[2].text)
    is_word = bool(_NAME.match(after)) and after.upper() not in _AFTER_A_COLUMN and WORD.lower() not in columns
    if not is_word or text[word.start] in '`"':
        return text, False
    return text[: word.start] + " " * len(WORD) + text[word.end + 1 :], True


def refuse_final(keys: Sequence[Any]) -> None:
    """Groups that leave once are not online."""
    for key in keys:
        if key.name.lower() == "window" or key.sql().lower().startswith("window("):
            raise UnsupportedError(
                f"SELECT ONLINE asks for the current values of groups after each batch, and the groups of {key.sql()} leave once, when they are final:"
                " leave out ONLINE, or the window()"
            )
