"""The fluent form as SQL: the parts of a query that methods gather, and the text that they are.

    wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")      SELECT * FROM a AS a, b AS b WHERE (a.k = b.k) AND WINDOW (a, b) = 10s

Invariant: a form means what its text means; nothing is resolved before `bind`, which is the SQL parser's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.table import Spec
from watersmeet.sql.names import is_plain
from watersmeet.sql.parse import parse, parse_condition
from watersmeet.sql.tokens import tokenize
from watersmeet.sql.windows.items import WindowItem

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
    """The parts of a fluent query; `aliases` are also the names of its streams.

    >>> Form(("a", "b"), conditions=("a.k = b.k",), projections=("a.k", "b.k + 1 AS n")).text
    'SELECT a.k, b.k + 1 AS n FROM a AS a, b AS b WHERE (a.k = b.k)'
    """

    aliases: tuple[str, ...]
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
        if self.distinct and self.keys:
            raise UnsupportedError(
                "distinct() with group_by() is not supported: groups are distinct already; leave distinct() out"
            )
        return parse(self.text, streams, session)

    @property
    def text(self) -> str:
        """The query as SQL."""
        tables = "".join(self._write_table(n) for n in range(len(self.aliases)))
        conditions = () if self.kinds else self.conditions
        items = [item.text for item in self.items if item.kind in ("window", "dwindow", "path", "tumbling")]
        where = [*(f"({condition})" for condition in (*conditions, *self.filters)), *items]
        select = "SELECT DISTINCT" if self.distinct else "SELECT"
        group = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return (
            f"{select} {', '.join(self.projections) or '*'} FROM {tables}"
            f"{_conjunction('WHERE', where)}{group}{_conjunction('HAVING', [f'({text})' for text in self.having])}"
        )

    def _write_table(self, number: int) -> str:
        """A table of FROM, with what stands before it and its ON."""
        alias = self.aliases[number]
        brackets = "".join(
            f" {item.text}" for item in self.items if item.kind in ("range", "rows") and item.aliases == (alias,)
        )
        table = f"{show_name(alias)} AS {show_name(alias)}{brackets}"
        if number == 0:
            return table
        on = _conjunction("ON", [f"({condition})" for condition in self._on(number)]) if self.kinds else ""
        if alias in self.crossed:
            return f" CROSS JOIN {table}{on}"
        return f" {KINDS[self.kinds.get(alias, 'inner')]} {table}{on}" if self.kinds else f", {table}"

    def _on(self, number: int) -> list[str]:
        """The conditions of ON that belong to the join of an alias: they name it, and none that comes later."""
        names = [alias.lower() for alias in self.aliases]

        def last(condition: str) -> int:
            found = {c.table.lower() for c in parse_condition(condition).find_all(exp.Column)}
            return max((n for n, name in enumerate(names) if name in found), default=1)

        return [condition for condition in self.conditions if max(last(condition), 1) == number]


def show_name(name: str) -> str:
    """An alias as SQL takes it: quoted where it is not plain, or a word of SQL.

    >>> show_name("orders"), show_name("select"), show_name("odd name")
    ('orders', '`select`', '`odd name`')
    """
    plain = is_plain(name) and tokenize(name)[0].token_type.name == "VAR"
    return name if plain else f"`{name.replace('`', '``')}`"


def _conjunction(word: str, conditions: list[str]) -> str:
    return f" {word} {' AND '.join(conditions)}" if conditions else ""
