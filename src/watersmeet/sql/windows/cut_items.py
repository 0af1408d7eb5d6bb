"""Cuts the window items out of a query's text, so that what remains is Spark SQL.

    FROM s a [RANGE 5 s], t b WHERE a.k = b.k WINDOW (a, b) = 10 s AND a.v > 3
    FROM s a            , t b WHERE (a.k = b.k) AND TRUE AND a.v > 3       + two items

Items are recognised in item form only, outside parentheses and after FROM; a column named `window` or `path` (qualified,
backquoted, or compared with anything but a span) and Spark's function window() are left alone. An item without AND
before it begins a new conjunct: everything before it is one operand, whatever ORs it holds.

Invariant: what remains means the conditions without the items: where one stood, TRUE stands.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlglot.tokens import Token, TokenType

from watersmeet.errors import ParseError, WindowError
from watersmeet.query.duration import parse_us
from watersmeet.sql.tokens import tokenize
from watersmeet.sql.windows.items import WindowItem, read_rows, read_span, read_tumbling_rows

_CLAUSES = {"GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS", "OFFSET", "QUALIFY", "SORT", "CLUSTER", "DISTRIBUTE", "LATERAL", "PIVOT", "UNPIVOT", "GROUP BY", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY"}  # fmt: skip
_JOINS = {"JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "NATURAL", "SEMI", "ANTI", "OUTER"}
_WORDS = {"WINDOW", "DWINDOW", "PATH", "WITHIN", "TUMBLING"}
_STOPS = _CLAUSES | _JOINS | {"AND", "OR", "WHERE", "ON", ",", ";", ")", "]", "SELECT", "FROM"}
_TURNS = _CLAUSES | _JOINS | _WORDS | {"FROM", "WHERE", "ON", "OR", "(", ")", "[", "]", ",", ";"}
"""Where something may begin or end; any other token is copied."""
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)
_OPEN, _CLOSE = {"(", "["}, {")", "]"}
_BEFORE_OPERAND = {"WHERE", "ON", "AND", "OR", "NOT", "(", ",", "WHEN", "THEN", "ELSE"}
_KINDS = {"(": TokenType.L_PAREN, ")": TokenType.R_PAREN, "AND": TokenType.AND, "WHERE": TokenType.WHERE, "TRUE": TokenType.TRUE}  # fmt: skip
_SPAN_STARTS = {"-", "+", "INTERVAL"}
_TRUE = " TRUE"
_NEW = {
    text: [(_KINDS[word], word) for word in text.replace("(", " ( ").replace(")", " ) ").split()]
    for text in ("", "(", ")", "AND", "AND (", "WHERE", "TRUE", "AND TRUE", ") AND TRUE")
}
"""What is written where items stood: kinds and texts of its tokens."""


@dataclass(frozen=True)
class Cut:
    """Spark SQL, the items that were in it, and what stood before each table after the first (`,`, `CROSS`, `JOIN`)."""

    sql: str
    items: tuple[WindowItem, ...]
    connectors: tuple[str, ...]
    tokens: list[Any] = field(default_factory=list, compare=False, repr=False)
    """Those of the Spark SQL, with their places in the text that was given."""


def cut_items(text: str, columns: Collection[str] = (), tokens: list[Any] | None = None) -> Cut:
    """The query without its window items, and the items. `columns`: the streams' columns, in lower case; `tokens`: the
    text's, if they are at hand.

    >>> cut = cut_items("SELECT * FROM s a, t b WHERE a.k = b.k WINDOW = 5 s AND a.v > 1")
    >>> cut.sql
    'SELECT * FROM s a, t b WHERE( a.k = b.k) AND TRUE AND a.v > 1'
    >>> cut.items
    (WindowItem(kind='window', aliases=(), us=5000000, rows=0, text='WINDOW = 5 s', hops=()),)
    """
    cutter = _Cutter(text, tokenize(text) if tokens is None else tokens, frozenset(columns))
    cutter.run()
    left = [token for part in cutter.left for token in part]
    return Cut("".join(cutter.out), tuple(cutter.items), tuple(cutter.connectors), left)


def _is_span(text: str) -> bool:
    try:
        parse_us(text)
    except (WindowError, ArithmeticError):
        return False
    return True


class _Cutter:
    """One pass over the tokens.

    `clause` is the condition that is being read, WHERE or ON; '' outside of them. Its open segment, what the next item without AND closes, begins
    at `begin` of the output; `has_or` says that it has an OR, `anded` is an item that is joined to it by AND.
    """

    def __init__(self, text: str, tokens: list[Any], columns: frozenset[str]) -> None:
        self.text, self.tokens, self.columns = text, tokens, columns
        self.words = ["" if t.token_type in _QUOTED else str(t.text).upper() for t in tokens]
        self.at = self.depth = self.done = self.begin = 0
        self.seen_from = self.in_tail = self.is_added = self.has_or = False
        self.clause = self.anded = self.owed = ""
        self.out: list[str] = []
        self.left: list[list[Any]] = []
        """The tokens of every piece of the output."""
        self.items: list[WindowItem] = []
        self.connectors: list[str] = []

    # --- looking -------------------------------------------------------------------------------------------------

    def word(self, i: int) -> str:
        """A token in upper case; '' for quoted identifiers, strings and the end."""
        return self.words[i] if 0 <= i < len(self.words) else ""

    def item_ahead(self) -> bool:
        """Does an item start here? After a dot it is a column; `(` must enclose plain names and be followed by `=`."""
        word, i = self.words[self.at], self.at
        if word not in _WORDS or self.word(i - 1) in (".", "AS") or not self.seen_from:
            return False
        if word == "WITHIN":
            return self.span_ahead(i + 1)
        if self.word(i + 1) == "=" and word == "PATH":
            return "path" not in self.columns and self.clear_span_ahead(i + 2)
        if self.word(i + 1) == "=":
            could_be_column = word.lower() in self.columns and self.word(i - 1) in _BEFORE_OPERAND
            return not could_be_column or self.clear_span_ahead(i + 2)
        return self.word(i + 1) == "(" and self.pair_ahead(i + 2)

    def bracket_ahead(self) -> bool:
        """Does the bracket of a stream start here? Inside parentheses it may be an index, and so may `[tumbling]` in a condition."""
        word = self.word(self.at + 1)
        if not self.seen_from or self.word(self.at) != "[" or word not in ("RANGE", "ROWS", "TUMBLING"):
            return False
        if word == "TUMBLING" and (self.clause or self.in_tail):
            return self.span_ahead(self.at + 2)
        return self.depth == 0 or self.word(self.at + 2) != "]"

    def span_ahead(self, i: int) -> bool:
        """Something that can only be meant as a span."""
        if i >= len(self.tokens):
            return False
        return (
            self.tokens[i].token_type in (TokenType.NUMBER, TokenType.STRING)
            or self.word(i) in _SPAN_STARTS
            or self.word(i)[:1].isdigit()
        )

    def clear_span_ahead(self, i: int) -> bool:
        """A span with its unit, so that not even a column of that name can be meant."""
        if not self.span_ahead(i) or self.word(i) == "INTERVAL":
            return self.word(i) == "INTERVAL"
        i += self.word(i) in ("-", "+")
        return self.word(i + 1) == "::" or any(
            _is_span(" ".join(str(t.text) for t in self.tokens[i : i + n])) for n in (1, 2)
        )

    def pair_ahead(self, i: int) -> bool:
        """Names and commas up to `)`, then `=`."""
        while (
            i < len(self.tokens)
            and self.word(i) not in _OPEN | _CLOSE | {".", "="}
            and self.tokens[i].token_type is not TokenType.STRING
        ):
            i += 1
        return self.word(i) == ")" and self.word(i + 1) == "="

    def put(self, text: str, tokens: list[Any] | None = None) -> None:
        """A piece of the output; without tokens it is one that was not in the text."""
        self.out.append(text)
        self.left.append(self.spell(text) if tokens is None else tokens)

    def spell(self, text: str) -> list[Any]:
        """The tokens of a new piece, in the place of the token at hand."""
        here = self.tokens[min(self.at, len(self.tokens) - 1)]
        return [Token(kind, word, here.line, here.col, here.start, here.end) for kind, word in _NEW[text.strip()]]

    # --- moving --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while self.at < len(self.tokens):
            if self.words[self.at] not in _TURNS:
                self.pass_plain()
            elif self.item_ahead():
                self.take_item()
            elif self.bracket_ahead():
                self.take_bracket()
            else:
                self.step()
        self.close_clause()
        self.put(self.text[self.done :], [])

    def pass_plain(self) -> None:
        """Copies the tokens up to one at which anything can turn."""
        first, many = self.at, len(self.tokens)
        while self.at < many and self.words[self.at] not in _TURNS:
            self.at += 1
        end = self.tokens[self.at - 1].end + 1
        self.put(self.text[self.done : end], self.tokens[first : self.at])
        self.done = end

    def step(self) -> None:
        """Copies one token, keeping track of clauses at depth 0."""
        word, token = self.word(self.at), self.tokens[self.at]
        self.at += 1
        goes_on = False
        if word in _OPEN:
            self.depth += 1
        elif word in _CLOSE:
            self.depth -= 1
        elif self.depth == 0 and self.word(self.at - 2) != ".":
            goes_on = self.turn(word)
        if goes_on:
            self.put(" AND (")
        else:
            self.put(self.text[self.done : token.end + 1], [token])
        self.done = token.end + 1
        if self.depth == 0 and word in ("WHERE", "ON"):
            self.begin = len(self.out)

    def turn(self, word: str) -> bool:
        """A word at depth 0 may end one clause and begin another; True of WHERE after items that stood before it: it goes on with their clause."""
        self.seen_from = self.seen_from or word == "FROM"
        if not self.seen_from:
            return False
        if word in ("WHERE", "ON"):
            return self.begin_clause(word)
        ends_on = self.clause == "ON" and (word in _JOINS or word == ",")
        if word in _CLAUSES or word == ";" or ends_on:
            self.close_clause()
            self.in_tail = self.in_tail or word in _CLAUSES
        self.has_or = self.has_or or (word == "OR" and self.clause != "")
        if word in (",", "JOIN") and not self.clause:
            self.connectors.append("CROSS" if word == "JOIN" and self.word(self.at - 2) == "CROSS" else word)
        return False

    def begin_clause(self, word: str) -> bool:
        goes_on = self.is_added and word == "WHERE"
        if self.clause == word and not goes_on:
            raise ParseError(f"{word} stands twice: join the conditions with AND")
        if goes_on:
            self.close_segment()
        else:
            self.close_clause()
        self.clause, self.is_added, self.owed = word, False, ")" if goes_on else ""
        return goes_on

    def close_clause(self) -> None:
        self.close_segment()
        self.put(self.owed)
        self.clause = self.owed = ""

    def close_segment(self) -> None:
        if self.has_or and self.anded:
            raise WindowError(
                f"window item {self.anded!r} cannot stand beside OR: put parentheses around the OR, and the window item outside them"
            )
        self.has_or, self.anded = False, ""

    # --- cutting -------------------------------------------------------------------------------------------------

    def take_item(self) -> None:
        """Reads one item and closes the gap that it leaves."""
        first, names = self.at, self.take_names()
        is_path = self.word(first) == "PATH"
        spans = self.take_list() if is_path and self.word(self.at) == "(" else [self.take_span()]
        start, end = self.tokens[first].start, self.tokens[self.at - 1].end + 1
        text = self.text[start:end]
        if self.depth:
            raise WindowError(f"window item {text!r} stands inside parentheses: write it after them, joined with AND")
        us = [read_span(span, text) for span in spans]
        kind = self.word(first).lower()
        self.items.append(WindowItem.path(names, us, text) if is_path else WindowItem.read(kind, names, us[0], text))
        if not self.clause and self.in_tail:  # after GROUP BY, or a clause that is refused later, by name
            self.put(self.text[self.done : start].rstrip(), [])
            self.done = end
            self.skip_and()
            return
        if not self.clause:
            self.put(self.text[self.done : start].rstrip(), [])
            self.put(" WHERE")
            self.clause, self.is_added, self.begin = "WHERE", True, len(self.out)
        self.done = end
        self.close_gap(self.word(first - 1) or "?", text)

    def take_span(self) -> str:
        """The text up to what can stand in no span."""
        begin = self.at
        while (
            self.at < len(self.tokens)
            and self.word(self.at) not in _STOPS
            and not (self.at > begin and self.item_ahead())
        ):
            self.at += 1
        return self.text[self.tokens[begin].start : self.tokens[self.at - 1].end + 1] if begin < self.at else ""

    def take_list(self) -> list[str]:
        """`(span, span, ...)`."""
        spans = []
        while self.word(self.at) in ("(", ","):
            self.at += 1
            spans.append(self.take_span())
        if self.word(self.at) != ")":
            raise ParseError(
                f"no closing ) after {', '.join(spans)!r}: write the bounds of a path as (10 SECONDS, 1 MINUTE)"
            )
        self.at += 1
        return spans

    def take_names(self) -> list[str]:
        """The names in parentheses, if any, and the `=`."""
        names: list[str] = []
        self.at += 1
        if self.word(self.at) == "(":
            self.at += 1
            while self.word(self.at) != ")":
                names += [str(self.tokens[self.at].text)] * (self.word(self.at) != ",")
                self.at += 1
            self.at += 1
        self.at += self.word(self.at) == "="
        return names

    def close_gap(self, before: str, text: str) -> None:
        """TRUE for an item: with AND before it, it is a part of its segment; without, it closes it."""
        follows = self.word(self.at)
        if before in ("OR", "NOT") or follows == "OR":
            raise WindowError(
                f"window item {text!r} cannot stand under {before if before == 'NOT' else 'OR'}: join it with AND"
            )
        if self.out[-1].endswith(_TRUE):
            self.put(f" AND{_TRUE}")
        elif before == "AND" or len(self.out) == self.begin:
            self.put(_TRUE)
            self.anded = text if before == "AND" else self.anded
        else:
            self.close_segment()
            self.out.insert(self.begin, "(")
            self.left.insert(self.begin, self.spell("("))
            self.put(f") AND{_TRUE}")
            self.begin = len(self.out)
        if follows == "AND":
            self.done, self.at, self.anded = self.tokens[self.at].end + 1, self.at + 1, text
            if self.at == len(self.tokens) or (self.word(self.at) in _STOPS and self.word(self.at) != "("):
                raise ParseError(f"AND after {text!r} has nothing to its right")
            self.put(" AND")
            self.begin += self.begin == len(self.out) - 1

    def skip_and(self) -> None:
        """The AND between two items that no condition surrounds."""
        self.at += 1
        if self.word(self.at - 1) == "AND" and self.item_ahead():
            self.done = self.tokens[self.at - 1].end + 1
        else:
            self.at -= 1

    def take_bracket(self) -> None:
        """`s a [RANGE t]`, `s AS a [ROWS n]`, `s [TUMBLING n ROWS] AS a`: the name next to the bracket is the alias."""
        start = self.tokens[self.at].start
        close = self.at
        while close < len(self.tokens) and self.word(close) != "]":
            close += 1
        if close == len(self.tokens):
            raise ParseError(f"no closing ] after {self.text[start : start + 20]!r}")
        text = self.text[start : self.tokens[close].end + 1]
        inside = self.text[self.tokens[self.at + 1].end + 1 : self.tokens[close].start].strip()
        alias = str(self.tokens[self.find_alias(close)].text)
        kind = self.word(self.at + 1)
        if kind == "ROWS":
            self.items.append(WindowItem("rows", (alias,), 0, read_rows(inside, text), text))
        elif kind == "TUMBLING":
            self.items.append(WindowItem("rows", (alias,), 0, read_tumbling_rows(inside, text), text, tumbles=True))
        else:
            self.items.append(WindowItem("range", (alias,), read_span(inside, text), 0, text))
        self.put(self.text[self.done : start].rstrip(), [])
        self.done, self.at = self.tokens[close].end + 1, close + 1

    def find_alias(self, close: int) -> int:
        """The token that names the bracket's alias: after `]` if an alias stands there, else before `[`; brackets that follow one another have the same."""
        first = self.at
        while self.word(first - 1) == "]" and "[" in self.words[:first]:
            first -= 1 + self.words[:first][::-1].index("[")
        while self.word(close + 1) == "[" and "]" in self.words[close + 1 :]:
            close = self.words.index("]", close + 1)
        if self.word(close + 1) == "AS" and close + 2 < len(self.tokens):
            return close + 2
        after = self.tokens[close + 1] if close + 1 < len(self.tokens) else None
        plain = (
            after is not None
            and after.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            and self.word(close + 1) not in _STOPS | _WORDS
        )
        return close + 1 if plain else first - 1
