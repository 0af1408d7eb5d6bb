"""SQL text to the logical query.

    text --cut the window items out--> Spark SQL --sqlglot--> tree --refuse, draft--> Draft --bind--> Join

Only errors of watersmeet leave this module, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import ParseError, UnsupportedError, WatersmeetError
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.table import Spec
from watersmeet.sql.bind import Draft, FromItem, bind
from watersmeet.sql.copies import list_nodes
from watersmeet.sql.expressions import SPARK
from watersmeet.sql.online import cut_word, refuse_final
from watersmeet.sql.refuse import kind_of_join, refuse_grouping, refuse_statement, refuse_table
from watersmeet.sql.tokens import tokenize
from watersmeet.sql.trees import Joined
from watersmeet.sql.windows.cut_items import cut_items

_ANSI = re.compile(r"\x1b\[\d*m")
_FIRST = ("SELECT", "WITH", "FROM", "(")


def parse(text: str, streams: Mapping[str, Spec], session: Session = IN_UTC, *, lone: bool = False) -> Join:
    """The query that a text means over the streams supplied, in a session; lone: one stream by itself will do.

    >>> from watersmeet.query.stream import StreamSpec
    >>> s = StreamSpec("s", {"k": "bigint", "ts": "timestamp"}, time="ts")
    >>> join = parse("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW (a, b) = 10 SECONDS", {"s": s})
    >>> join.aliases, [str(p) for p in join.predicates], join.windows.show("a", "b")
    (('a', 'b'), ['a.k = b.k'], '|b - a| <= 10 s')
    """
    if not isinstance(text, str):
        raise ParseError(f"the query must be a text, not {type(text).__name__}")
    try:
        return bind(_draft(text, streams), streams, session, lone=lone)
    except WatersmeetError:
        raise
    except RecursionError as error:
        raise ParseError("the query is nested too deeply: simplify its conditions") from error


def parse_condition(text: str) -> Any:
    """One condition, as it would stand in WHERE."""
    return _one(text, f"SELECT 1 FROM t WHERE ({_single(text)})").args["where"].this


def parse_projections(text: str) -> list[Any]:
    """What stands in one string of a SELECT list."""
    select = _one(text, f"SELECT {_single(text)} FROM t")
    if any(select.args.get(clause) for clause in ("joins", "where", "group", "distinct")):
        raise ParseError(f"{text!r} is not a column or an expression; there are .distinct() and .group_by()")
    return list(select.expressions)


def parse_keys(text: str) -> list[Any]:
    """What stands in one string of GROUP BY."""
    select = _one(text, f"SELECT 1 FROM t GROUP BY {_single(text)}")
    refuse_grouping(select)
    return list(select.args["group"].expressions)


def _single(text: str) -> str:
    """The text, if it has no more closing than opening parentheses anywhere, no comment and no second statement."""
    if not isinstance(text, str):
        raise ParseError(f"expected a text such as 'a.k = b.k', not {text!r}")
    depth, tokens = 0, tokenize(text)
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")") if token.token_type.name.endswith("PAREN") else 0
        if depth < 0 or token.token_type.name == "SEMICOLON":
            raise ParseError(f"cannot read {text!r}: unexpected {token.text!r}")
    if not tokens or depth:
        raise ParseError(f"cannot read {text!r}: {'a parenthesis is not closed' if tokens else 'it is empty'}")
    return text[: tokens[-1].end + 1]


def _one(text: str, sql: str) -> Any:
    """The only statement of a small text that was put into a frame."""
    statements = _statements(sql)
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise ParseError(f"cannot read {text!r}: it is more than one expression")
    select = statements[0]
    refuse_statement(select)
    if select.args["from_"].this.name != "t":
        raise ParseError(f"{text!r} is not a column or an expression")
    return select


def _draft(text: str, streams: Mapping[str, Spec]) -> Draft:
    tokens = tokenize(text)
    if not tokens or str(tokens[0].text).upper() not in _FIRST:
        found = f"found {str(tokens[0].text)!r}" if tokens else "the text is empty"
        raise ParseError(f"expected a SELECT statement, {found}")
    columns = {c.lower() for spec in streams.values() for c in spec.schema}
    bare, is_online = cut_word(text, tokens, columns)
    tokens = tokenize(bare) if is_online else tokens
    cut = cut_items(bare, columns, tokens)
    statements = [s for s in _statements(cut.sql, cut.tokens, bare) if s is not None]
    if len(statements) != 1:
        raise ParseError(f"expected one SELECT statement, found {len(statements)}: pass them one at a time")
    select = statements[0]
    refuse_statement(select)
    refuse_grouping(select)
    tables: list[FromItem] = []
    item = _join(select.args["from_"].this, select.args.get("joins") or [], cut.connectors, tables)
    shape = item if isinstance(item, Joined) else Joined("inner", [item])
    conditions = [select.args["where"].this] if select.args.get("where") else []
    keys = select.args.get("group")
    if is_online and keys is not None:
        refuse_final(keys.expressions)
    return Draft(
        text, tuple(tables), tuple(conditions), cut.items, tuple(select.expressions), shape,
        distinct=select.args.get("distinct") is not None, keys=None if keys is None else tuple(keys.expressions),
        having=select.args["having"].this if select.args.get("having") else None,
    )  # fmt: skip


def _join(first: Any, joins: list[Any], connectors: Sequence[str], tables: list[FromItem]) -> Joined | str:
    """What FROM joins, from left to right; the tables are added to those found so far."""
    item = _item(first, tables)
    named = connectors if len(connectors) == len(joins) else ("JOIN",) * len(joins)
    for join, connector in zip(joins, named, strict=True):
        kind, written = kind_of_join(join)
        using = tuple(c.name for c in join.args.get("using") or ())
        right = _item(join.this, tables, using, crossed=connector == "CROSS")
        if using and (not isinstance(right, str) or kind in ("right", "full")):
            raise UnsupportedError(f"USING in {written} is not supported: write ON, and name the column that you mean")
        on = join.args.get("on")
        item = Joined(kind, [item, right], [] if on is None else [on], written)
    return item


def _item(node: Any, tables: list[FromItem], using: tuple[str, ...] = (), *, crossed: bool = False) -> Joined | str:
    """A table of FROM, or joins in parentheses."""
    inner = (
        node.this if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias else node
    )
    below = (inner.args.get("joins") or []) if isinstance(inner, exp.Table) else []
    if below:
        first = inner.copy()
        first.set("joins", None)
        return _join(first, below, (), tables)
    refuse_table(node)
    tables.append(FromItem(node.alias or node.name, ".".join(part.name for part in node.parts), using, crossed))
    return tables[-1].alias


def _statements(sql: str, tokens: list[Any] | None = None, written: str = "") -> list[Any]:
    """sqlglot's trees; its parser answers odd texts with assorted built-in errors, all of which mean: unreadable. `tokens`: the text's, if they are at hand, by their places in
    what was `written`."""
    try:
        given = tokenize(sql) if tokens is None else tokens
        shown = _hide(given)
        found: list[Any] = SPARK.parser().parse(shown, written or sql)
        return found if shown is given else [_restore(statement) for statement in found]
    except SqlglotParseError as error:
        raise ParseError(_explain(error)) from error
    except (RecursionError, ParseError):
        raise
    except Exception as error:
        raise ParseError(f"cannot read the query: {error}") from error


_HIDDEN = "wm_window"


def _hide(tokens: list[Any]) -> list[Any]:
    """The tokens with another name for window() where it stands first in GROUP BY: sqlglot would take it for the WINDOW clause there."""
    out = tokens
    for n, (before, token, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False), 1):
        if before.token_type is TokenType.GROUP_BY and token.text.lower() == "window" and after.text == "(":
            hidden = Token(TokenType.VAR, _HIDDEN, token.line, token.col, token.start, token.end)
            out = [*out[:n], hidden, *out[n + 1 :]]
    return out


def _restore(statement: Any) -> Any:
    """The tree with the name as it was."""
    for node in () if statement is None else list_nodes(statement):
        if isinstance(node, exp.Anonymous) and node.this == _HIDDEN:
            node.set("this", "window")
    return statement


def _explain(error: SqlglotParseError) -> str:
    """What was wrong, and where: the place is pointed at."""
    if not error.errors:
        return f"cannot read the query: {_ANSI.sub('', str(error))}"
    place = error.errors[0]
    before, here, after = (str(place.get(part) or "") for part in ("start_context", "highlight", "end_context"))
    where = f"...{before[-40:]} >>>{here}<<< {after[:40]}...".replace("\n", " ")
    return f"cannot read the query: {place.get('description')} at line {place.get('line')}, column {place.get('col')}: {where}"
