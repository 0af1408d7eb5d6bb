"""The fluent form: the same queries without SQL text.

    wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")

A `Builder` is a value: every method gives a new one. Nothing is resolved before `bind`, which is the SQL parser's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from watersmeet.errors import ParseError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.bind import Draft, Table, bind
from watersmeet.sql.items import WindowItem, read_rows, read_span
from watersmeet.sql.names import find, identifier
from watersmeet.sql.parse import parse_condition, parse_keys, parse_projections

Span = str | timedelta


@dataclass(frozen=True)
class Builder:
    """A join in the making; `aliases` are pairs of alias and stream.

    >>> s = StreamSpec("s", {"k": "bigint", "ts": "timestamp"}, time="ts")
    >>> b = Builder((("a", "s"), ("b", "s"))).on("a.k = b.k").window("a", "b", "10s").select("a.k", "b.k + 1 AS n")
    >>> join = b.bind({"s": s})
    >>> join.text
    'SELECT a.k, b.k + 1 AS n FROM s AS a, s AS b WHERE (a.k = b.k) AND WINDOW (a, b) = 10s'
    >>> [o.name for o in join.select], join.windows.show("a", "b")
    (['k', 'n'], '|b - a| <= 10 s')
    """

    aliases: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...] = ()
    items: tuple[WindowItem, ...] = ()
    projections: tuple[str, ...] = ()
    crossed: tuple[str, ...] = ()
    is_distinct: bool = False
    keys: tuple[str, ...] = ()

    def on(self, *conditions: str) -> Builder:
        """Adds conditions, as they would stand in ON; all must hold."""
        for condition in conditions:
            parse_condition(condition)
        return replace(self, conditions=self.conditions + conditions)

    def where(self, *conditions: str) -> Builder:
        """The same as `on`: for inner joins there is no difference."""
        return self.on(*conditions)

    def window(self, *args: Span) -> Builder:
        """`window(span)` for every pair of aliases, `window(a, b, span)` for one."""
        if len(args) not in (1, 3):
            raise WindowError(
                f"window takes a span, or two aliases and a span, not {len(args)} arguments: window('10s') or window('a', 'b', '10s')"
            )
        *pair, span = args
        return self._paired("WINDOW", tuple(str(alias) for alias in pair), span)

    def within(self, span: Span) -> Builder:
        """The same as `window(span)`."""
        return self._paired("WINDOW", (), span)

    def dwindow(self, a: str, b: str, span: Span) -> Builder:
        """0 <= b.ts - a.ts <= span: a first."""
        return self._paired("DWINDOW", (a, b), span)

    def path(self, *args: Span | Sequence[Span]) -> Builder:
        """`path(a, b, c, span)`: one after the other, from a to c or from c to a; `path(a, b, c, (span, span))` hop by hop."""
        if not args:
            raise WindowError("path takes aliases and a span, or a span for each hop: path('a', 'b', 'c', '10s')")
        *stops, last = args
        spans: list[Any] = list(last) if isinstance(last, list | tuple) else [last]
        shown = [_show(span) for span in spans]
        bounds = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
        text = f"PATH ({', '.join(_name(str(alias)) for alias in stops)}) = {bounds}"
        return self._with(WindowItem.path([str(a) for a in stops], [read_span(s, text) for s in spans], text))

    def range(self, alias: str, span: Span) -> Builder:
        """A tuple of the alias joins tuples up to span younger than itself."""
        text = f"[RANGE {_show(span)}]"
        return self._with(WindowItem("range", (alias,), read_span(span, text), 0, text))

    def rows(self, alias: str, n: int) -> Builder:
        """The alias's member is among its last n tuples."""
        text = f"[ROWS {n}]"
        return self._with(WindowItem("rows", (alias,), 0, read_rows(n, text), text))

    def select(self, *projections: str) -> Builder:
        """Columns and expressions of the result; all columns of all aliases unless said."""
        for projection in projections:
            parse_projections(projection)
        return replace(self, projections=self.projections + projections)

    def distinct(self) -> Builder:
        """SELECT DISTINCT: equal rows leave once per horizon of event time."""
        return replace(self, is_distinct=True)

    def group_by(self, *keys: str) -> Builder:
        """GROUP BY; `select` names the keys and aggregates of the result."""
        for key in keys:
            parse_keys(key)
        return replace(self, keys=self.keys + keys)

    def cross(self, *aliases: str) -> Builder:
        """Says that these aliases need no condition: CROSS JOIN."""
        known = [alias for alias, _ in self.aliases]
        for alias in aliases:
            if find(alias, known) is None:
                raise UnknownNameError(f"cross({alias!r}): no such alias; the aliases are {', '.join(known)}")
        return replace(self, crossed=self.crossed + tuple(find(alias, known) or alias for alias in aliases))

    def bind(self, streams: Mapping[str, StreamSpec], session: Session = IN_UTC) -> Join:
        """The logical query over the streams supplied, in a session."""
        if not self.aliases:
            raise ParseError("a join needs two or more streams: join(a=..., b=...)")
        draft = Draft(
            text=self.text,
            tables=tuple(Table(alias, stream, crossed=alias in self.crossed) for alias, stream in self.aliases),
            conditions=tuple(parse_condition(condition) for condition in self.conditions),
            items=self.items,
            projections=tuple(node for text in self.projections or ("*",) for node in parse_projections(text)),
            distinct=self.is_distinct,
            keys=tuple(node for text in self.keys for node in parse_keys(text)) if self.keys else None,
        )
        if self.is_distinct and self.keys:
            raise UnsupportedError(
                "distinct() with group_by() is not supported: groups are distinct already; leave distinct() out"
            )
        return bind(draft, streams, session)

    @property
    def text(self) -> str:
        """The query as SQL."""
        tables = "".join(f"{self._connector(i)}{self._table(*pair)}" for i, pair in enumerate(self.aliases))
        conditions = [f"({condition})" for condition in self.conditions] + [
            item.text for item in self.items if item.kind in ("window", "dwindow", "path")
        ]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        select = "SELECT DISTINCT" if self.is_distinct else "SELECT"
        group = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return f"{select} {', '.join(self.projections) or '*'} FROM {tables}{where}{group}"

    def _connector(self, i: int) -> str:
        return "" if i == 0 else " CROSS JOIN " if self.aliases[i][0] in self.crossed else ", "

    def _table(self, alias: str, stream: str) -> str:
        brackets = "".join(
            f" {item.text}"
            for item in self.items
            if item.kind in ("range", "rows") and item.aliases[0].lower() == alias.lower()
        )
        return f"{_name(stream)} AS {_name(alias)}{brackets}"

    def _paired(self, word: str, pair: tuple[str, ...], span: Span) -> Builder:
        head = f"{word} ({', '.join(_name(alias) for alias in pair)})" if pair else word
        text = f"{head} = {_show(span)}"
        return self._with(WindowItem.read(word.lower(), pair, read_span(span, text), text))

    def _with(self, item: WindowItem) -> Builder:
        return replace(self, items=(*self.items, item))


def _show(span: Span) -> str:
    return f"{round(span / timedelta(microseconds=1))} MICROSECONDS" if isinstance(span, timedelta) else str(span)


def _name(name: str) -> str:
    return str(identifier(name).sql("spark"))
