"""The fluent form: the same queries without SQL text.

    wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")

Invariant: a fluent query is a value: every method gives a new one and leaves the old one as it was. Nothing is resolved before
`Form.bind`, which is the SQL parser's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

from sqlglot import exp

from watersmeet.errors import ParseError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.table import Spec
from watersmeet.sql.bind import Draft, FromItem, bind
from watersmeet.sql.names import find, identifier
from watersmeet.sql.parse import parse_condition, parse_keys, parse_projections
from watersmeet.sql.trees import Joined
from watersmeet.sql.windows.items import WindowItem, read_rows, read_span

Span = str | timedelta
KINDS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
    "asof": "ASOF JOIN",
    "asof left": "ASOF LEFT JOIN",
}
"""How SQL writes the joins of the fluent form."""


@dataclass(frozen=True)
class Form:
    """The parts of a fluent query; `aliases` are pairs of alias and stream."""

    aliases: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...] = ()
    items: tuple[WindowItem, ...] = ()
    projections: tuple[str, ...] = ()
    crossed: tuple[str, ...] = ()
    distinct: bool = False
    keys: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    """Conditions on groups that end."""
    filters: tuple[str, ...] = ()
    """Of WHERE, where that is not the same as ON."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """By alias how it is joined, if that is not by an inner join."""

    def bind(self, streams: Mapping[str, Spec], session: Session = IN_UTC) -> Join:
        """The logical query over the streams supplied, in a session."""
        if not self.aliases:
            raise ParseError("a join needs two or more streams: join(a=..., b=...)")
        draft = Draft(
            text=self.text,
            tables=tuple(FromItem(alias, stream, crossed=alias in self.crossed) for alias, stream in self.aliases),
            conditions=tuple(parse_condition(condition) for condition in self._where),
            items=self.items,
            projections=tuple(node for text in self.projections or ("*",) for node in parse_projections(text)),
            distinct=self.distinct,
            keys=tuple(node for text in self.keys for node in parse_keys(text)) if self.keys else None,
            having=parse_condition(" AND ".join(f"({text})" for text in self.having)) if self.having else None,
            shape=self._shape() if self.kinds else None,
        )
        if self.distinct and self.keys:
            raise UnsupportedError(
                "distinct() with group_by() is not supported: groups are distinct already; leave distinct() out"
            )
        return bind(draft, streams, session)

    @property
    def _where(self) -> tuple[str, ...]:
        return self.filters if self.kinds else (*self.conditions, *self.filters)

    def _on(self, number: int) -> list[str]:
        """The conditions of ON that belong to the join of an alias: they name it, and none that comes later."""
        names = [alias.lower() for alias, _ in self.aliases]

        def last(condition: str) -> int:
            found = {c.table.lower() for c in parse_condition(condition).find_all(exp.Column)}
            return max((n for n, name in enumerate(names) if name in found), default=1)

        return [condition for condition in self.conditions if max(last(condition), 1) == number]

    def _shape(self) -> Joined | str:
        """What is joined, from left to right."""
        item: Joined | str = self.aliases[0][0]
        for number, (alias, _) in enumerate(self.aliases[1:], start=1):
            on = [parse_condition(condition) for condition in self._on(number)]
            kind = self.kinds.get(alias, "inner")
            item = Joined(kind, [item, alias], on, f"{KINDS[kind]} {alias}")
        return item

    @property
    def text(self) -> str:
        """The query as SQL."""
        tables = "".join(
            f"{self._connector(i)}{self._table(*pair)}{self._shown(i)}" for i, pair in enumerate(self.aliases)
        )
        conditions = [f"({condition})" for condition in self._where] + [
            item.text for item in self.items if item.kind in ("window", "dwindow", "path")
        ]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        select = "SELECT DISTINCT" if self.distinct else "SELECT"
        group = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        having = f" HAVING {' AND '.join(f'({text})' for text in self.having)}" if self.having else ""
        return f"{select} {', '.join(self.projections) or '*'} FROM {tables}{where}{group}{having}"

    def _connector(self, i: int) -> str:
        alias = self.aliases[i][0]
        if i and self.kinds and alias not in self.crossed:
            return f" {KINDS[self.kinds.get(alias, 'inner')]} "
        return "" if i == 0 else " CROSS JOIN " if alias in self.crossed else ", "

    def _shown(self, i: int) -> str:
        """ON of the join of an alias, where FROM has it."""
        conditions = self._on(i) if i and self.kinds else []
        return f" ON {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""

    def _table(self, alias: str, stream: str) -> str:
        brackets = "".join(
            f" {item.text}"
            for item in self.items
            if item.kind in ("range", "rows") and item.aliases[0].lower() == alias.lower()
        )
        return f"{_name(stream)} AS {_name(alias)}{brackets}"


class Fluent:
    """A join in the making.

    >>> from watersmeet.query.stream import StreamSpec
    >>> s = StreamSpec("s", {"k": "bigint", "ts": "timestamp"}, time="ts")
    >>> q = Fluent(Form((("a", "s"), ("b", "s")))).on("a.k = b.k").window("a", "b", "10s").select("a.k", "b.k + 1 AS n")
    >>> join = q._form.bind({"s": s})
    >>> join.text
    'SELECT a.k, b.k + 1 AS n FROM s AS a, s AS b WHERE (a.k = b.k) AND WINDOW (a, b) = 10s'
    >>> [o.name for o in join.select], join.windows.show("a", "b")
    (['k', 'n'], '|b - a| <= 10 s')
    """

    def __init__(self, form: Form) -> None:
        self._form = form

    def on(self, *conditions: str) -> Self:
        """Add conditions, as they would stand in ON; all must hold: `.on("a.k = b.k", "a.v < b.v")`."""
        for condition in conditions:
            parse_condition(condition)
        return self._with(conditions=self._form.conditions + conditions)

    def where(self, *conditions: str) -> Self:
        """Conditions on results: `.where("a.v > 10")`. For inner joins it is the same as `on`."""
        for condition in conditions:
            parse_condition(condition)
        return self._with(filters=self._form.filters + conditions)

    def left(self, alias: str) -> Self:
        """LEFT JOIN the alias to those before it: their tuples leave without a partner, too. Conditions of `on` that name it decide: `.left("b").on("a.k = b.k")`."""
        return self._join("left", alias)

    def right(self, alias: str) -> Self:
        """RIGHT JOIN the alias: its tuples leave without a partner, too."""
        return self._join("right", alias)

    def full(self, alias: str) -> Self:
        """FULL JOIN the alias: tuples of both sides leave without a partner, too."""
        return self._join("full", alias)

    def semi(self, alias: str) -> Self:
        """LEFT SEMI JOIN the alias: tuples before it leave once, if they have a partner."""
        return self._join("semi", alias)

    def anti(self, alias: str) -> Self:
        """LEFT ANTI JOIN the alias: tuples before it leave if they have no partner, as in `.anti("payments").on("o.id = payments.order")`."""
        return self._join("anti", alias)

    def asof(self, alias: str) -> Self:
        """ASOF JOIN the alias: tuples before it meet its one tuple nearest in time, as in `.asof("quotes").on("t.sym = quotes.sym", "t.ts >= quotes.ts")`."""
        return self._join("asof", alias)

    def asof_left(self, alias: str) -> Self:
        """ASOF LEFT JOIN the alias: the same, and tuples before it leave without a partner, too."""
        return self._join("asof left", alias)

    def _join(self, kind: str, alias: str) -> Self:
        known = [name for name, _ in self._form.aliases]
        found = find(alias, known)
        if found is None or found == known[0]:
            what = "no such alias" if found is None else "the first alias is joined to nothing before it"
            raise UnknownNameError(f"{kind.replace(' ', '_')}({alias!r}): {what}; the aliases are {', '.join(known)}")
        return self._with(kinds={**self._form.kinds, found: kind})

    def window(self, *args: Span) -> Self:
        """How far apart tuples may be: `.window("10s")` for every pair, `.window("a", "b", "10s")` for one."""
        if len(args) not in (1, 3):
            raise WindowError(
                f"window takes a span, or two aliases and a span, not {len(args)} arguments: window('10s') or window('a', 'b', '10s')"
            )
        *pair, span = args
        return self._add_window("WINDOW", tuple(str(alias) for alias in pair), span)

    def within(self, span: Span) -> Self:
        """The same as `window(span)`: `.within("10 minutes")`."""
        return self._add_window("WINDOW", (), span)

    def dwindow(self, first: str, then: str, span: Span) -> Self:
        """One after the other: `.dwindow("order", "refund", "2 hours")` is 0 <= refund.ts - order.ts <= 2 hours."""
        return self._add_window("DWINDOW", (first, then), span)

    def path(self, *args: Span | Sequence[Span]) -> Self:
        """Streams visited one after the other, there or back: `.path("a", "b", "c", "10s")`, or a span for each hop, `("10s", "20s")`."""
        if not args:
            raise WindowError("path takes aliases and a span, or a span for each hop: path('a', 'b', 'c', '10s')")
        *stops, last = args
        spans: list[Any] = list(last) if isinstance(last, list | tuple) else [last]
        shown = [_show(span) for span in spans]
        bounds = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
        text = f"PATH ({', '.join(_name(str(alias)) for alias in stops)}) = {bounds}"
        return self._add(WindowItem.path([str(a) for a in stops], [read_span(s, text) for s in spans], text))

    def range(self, alias: str, span: Span) -> Self:
        """Tuples of the alias join tuples up to a span younger: `.range("a", "10s")` is `a [RANGE 10s]`."""
        text = f"[RANGE {_show(span)}]"
        return self._add(WindowItem("range", (alias,), read_span(span, text), 0, text))

    def rows(self, alias: str, n: int) -> Self:
        """Only the alias's last n tuples count: `.rows("a", 5)` is `a [ROWS 5]`."""
        text = f"[ROWS {n}]"
        return self._add(WindowItem("rows", (alias,), 0, read_rows(n, text), text))

    def select(self, *projections: str) -> Self:
        """Columns and expressions of the result, all columns without it: `.select("a.k", "b.v + 1 AS n")`."""
        for projection in projections:
            parse_projections(projection)
        return self._with(projections=self._form.projections + projections)

    def distinct(self) -> Self:
        """SELECT DISTINCT: equal rows leave once per horizon of event time."""
        return self._with(distinct=True)

    def group_by(self, *keys: str) -> Self:
        """GROUP BY: `.group_by("a.k").select("a.k", "count(*) AS n")`; with `window(a.ts, '10 minutes')` among the keys each group leaves once, when it is complete."""
        for key in keys:
            parse_keys(key)
        return self._with(keys=self._form.keys + keys)

    def having(self, *conditions: str) -> Self:
        """HAVING, for groups with a window: `.group_by("window(a.ts, '10 minutes')").having("count(*) > 10")`."""
        for condition in conditions:
            parse_condition(condition)
        return self._with(having=self._form.having + conditions)

    def cross(self, *aliases: str) -> Self:
        """These aliases need no condition: `.cross("b")` is `CROSS JOIN b`."""
        known = [alias for alias, _ in self._form.aliases]
        for alias in aliases:
            if find(alias, known) is None:
                raise UnknownNameError(f"cross({alias!r}): no such alias; the aliases are {', '.join(known)}")
        return self._with(crossed=self._form.crossed + tuple(find(alias, known) or alias for alias in aliases))

    def _add_window(self, word: str, pair: tuple[str, ...], span: Span) -> Self:
        head = f"{word} ({', '.join(_name(alias) for alias in pair)})" if pair else word
        text = f"{head} = {_show(span)}"
        return self._add(WindowItem.read(word.lower(), pair, read_span(span, text), text))

    def _add(self, item: WindowItem) -> Self:
        return self._with(items=(*self._form.items, item))

    def _with(self, **changes: Any) -> Self:
        made = copy(self)
        made._form = replace(self._form, **changes)
        return made


def _show(span: Span) -> str:
    return f"{round(span / timedelta(microseconds=1))} MICROSECONDS" if isinstance(span, timedelta) else str(span)


def _name(name: str) -> str:
    return str(identifier(name).sql("spark"))
