"""The fluent form of a query: `wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")`.

Invariant: a builder is a value. Every method gives a new one and leaves the old one as it was; nothing runs before `explain`,
`dataframe` or `start`, which bind it to its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from watersmeet.api.query import Query, Runnable
from watersmeet.errors import UnknownNameError, WindowError
from watersmeet.plan.options import Choices, Options, change, suggest
from watersmeet.query.stream import Stream
from watersmeet.query.table import Table
from watersmeet.sql.fluent import Form, show_name
from watersmeet.sql.names import find
from watersmeet.sql.parse import parse_condition, parse_keys, parse_projections
from watersmeet.sql.windows.items import WindowItem, read_rows, read_span

Span = str | timedelta


class JoinBuilder(Runnable):
    """A join in the making; `wm.join` gives the first one.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.join(a=clicks, b=clicks).on("a.user = b.user").window("a", "b", "10s")
    JoinBuilder: SELECT * FROM a AS a, b AS b WHERE (a.user = b.user) AND WINDOW (a, b) = 10s
    """

    def __init__(self, streams: Mapping[str, Stream | Table], options: Options) -> None:
        self._form, self._streams, self._options = Form(tuple(streams)), dict(streams), options

    def on(self, *conditions: str) -> Self:
        """Add conditions, as they would stand in ON; all must hold: `.on("a.k = b.k", "a.v < b.v")`."""
        return self._gather("conditions", parse_condition, conditions)

    def where(self, *conditions: str) -> Self:
        """Conditions on results: `.where("a.v > 10")`. For inner joins it is the same as `on`."""
        return self._gather("filters", parse_condition, conditions)

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
        method = kind.replace(" ", "_")
        found = self._find(method, alias)
        if found == self._form.aliases[0]:
            raise UnknownNameError(
                f"{method}({alias!r}): the first alias is joined to nothing before it; the aliases are {', '.join(self._form.aliases)}"
            )
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

    def tumble(self, span: Span) -> Self:
        """All in the same window of a fixed width: `.tumble("10 minutes")` is 10:00 to 10:10, 10:10 to 10:20 and so on."""
        return self._add_window("TUMBLING", (), span)

    def dwindow(self, first: str, then: str, span: Span) -> Self:
        """One after the other: `.dwindow("order", "refund", "2 hours")` is 0 <= refund.ts - order.ts <= 2 hours."""
        return self._add_window("DWINDOW", (first, then), span)

    def path(self, *args: Span | Sequence[Span]) -> Self:
        """Streams visited one after the other, there or back: `.path("a", "b", "c", "10s")`, or a span for each hop, `("10s", "20s")`."""
        if not args:
            raise WindowError("path takes aliases and a span, or a span for each hop: path('a', 'b', 'c', '10s')")
        *stops, last = args
        spans: list[Any] = list(last) if isinstance(last, list | tuple) else [last]
        shown = [_show_span(span) for span in spans]
        bounds = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
        text = f"PATH ({', '.join(show_name(str(alias)) for alias in stops)}) = {bounds}"
        return self._add(WindowItem.path([str(a) for a in stops], [read_span(s, text) for s in spans], text))

    def range(self, alias: str, span: Span) -> Self:
        """Tuples of the alias join tuples up to a span younger: `.range("a", "10s")` is `a [RANGE 10s]`."""
        text = f"[RANGE {_show_span(span)}]"
        return self._add(WindowItem("range", (self._find("range", alias),), read_span(span, text), 0, text))

    def rows(self, alias: str, n: int) -> Self:
        """Only the alias's last n tuples count: `.rows("a", 5)` is `a [ROWS 5]`."""
        text = f"[ROWS {n}]"
        return self._add(WindowItem("rows", (self._find("rows", alias),), 0, read_rows(n, text), text))

    def tumble_rows(self, alias: str, n: int) -> Self:
        """Only the alias's present block of n tuples counts: `.tumble_rows("a", 5)` is `a [TUMBLING 5 ROWS]`."""
        text = f"[TUMBLING {n} ROWS]"
        found = self._find("tumble_rows", alias)
        return self._add(WindowItem("rows", (found,), 0, read_rows(n, text), text, tumbles=True))

    def select(self, *projections: str) -> Self:
        """Columns and expressions of the result, all columns without it: `.select("a.k", "b.v + 1 AS n")`."""
        return self._gather("projections", parse_projections, projections)

    def distinct(self) -> Self:
        """SELECT DISTINCT: equal rows leave once per horizon of event time."""
        return self._with(distinct=True)

    def group_by(self, *keys: str) -> Self:
        """GROUP BY: `.group_by("a.k").select("a.k", "count(*) AS n")`; with `window(a.ts, '10 minutes')` among the keys each group leaves once, when it is complete."""
        return self._gather("keys", parse_keys, keys)

    def having(self, *conditions: str) -> Self:
        """HAVING, for groups with a window: `.group_by("window(a.ts, '10 minutes')").having("count(*) > 10")`."""
        return self._gather("having", parse_condition, conditions)

    def cross(self, *aliases: str) -> Self:
        """These aliases need no condition: `.cross("b")` is `CROSS JOIN b`."""
        return self._with(crossed=self._form.crossed + tuple(self._find("cross", alias) for alias in aliases))

    def _add_window(self, word: str, pair: tuple[str, ...], span: Span) -> Self:
        head = f"{word} ({', '.join(show_name(alias) for alias in pair)})" if pair else word
        text = f"{head} = {_show_span(span)}"
        return self._add(WindowItem.read(word.lower(), pair, read_span(span, text), text))

    def _add(self, item: WindowItem) -> Self:
        return self._with(items=(*self._form.items, item))

    def _gather(self, part: str, check: Callable[[str], Any], texts: tuple[str, ...]) -> Self:
        """More texts of a part; what cannot be read is an error at once."""
        for text in texts:
            check(text)
        return self._with(**{part: (*getattr(self._form, part), *texts)})

    def _find(self, method: str, alias: str) -> str:
        """An alias as it was given."""
        found = find(alias, self._form.aliases)
        if found is None:
            raise UnknownNameError(
                f"{method}({alias!r}): no such alias; the aliases are {', '.join(self._form.aliases)}"
            )
        return found

    def _with(self, **changes: Any) -> Self:
        made = copy(self)
        made._form = replace(self._form, **changes)
        return made

    def options(self, **choices: Unpack[Choices]) -> Self:
        """Force choices, such as `.options(units=16, kernel="hw")`; those set before stay."""
        made = copy(self)
        made._options = change(self._options, choices)
        return made

    def query(self) -> Query:
        """The query, bound to its streams; what is wrong with it is raised here."""
        return Query(self._form.bind, self._streams, self._options)

    def _bind(self) -> Query:
        return self.query()

    def __repr__(self) -> str:
        return f"JoinBuilder: {self._form.text}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = [method for method in dir(type(self)) if not method.startswith("_")]
            meant = suggest(name, known) or f"; it has {', '.join(known)}"
            raise AttributeError(f"a join has no method {name!r}{meant}", name=name, obj=self)


def _show_span(span: Span) -> str:
    return f"{round(span / timedelta(microseconds=1))} MICROSECONDS" if isinstance(span, timedelta) else str(span)
