"""Resolves the names of a query: streams in FROM, columns in expressions.

A name that is spelled exactly as in the schema wins over one that differs in case. A resolved column is a sqlglot Column
with `table` the alias as FROM spells it and `this` the column as the schema spells it; fields of a struct are Dots on it. A column of a table
that belongs to the tuples of another alias has that alias as its `host`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from watersmeet.errors import UnknownNameError
from watersmeet.query.expr import ColumnRef
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.table import Spec, TableSpec
from watersmeet.sql.copies import copy_tree, list_columns, list_nodes

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NESTED = ("struct", "map", "array", "variant")


def find(name: str, names: Collection[str]) -> str | None:
    """The name among names: exact, else the first that differs in case only.

    >>> find("K", ["k", "j"]), find("x", ["k"])
    ('k', None)
    """
    return name if name in names else next((n for n in names if n.lower() == name.lower()), None)


def stream_named(name: str, streams: Mapping[str, Spec]) -> str:
    """The key of a supplied stream."""
    key = find(name, streams)
    if key is None:
        raise UnknownNameError(
            f"stream {name!r} is not supplied; supplied are {', '.join(streams) or 'none'}{_did_you_mean(name, streams)}"
        )
    return key


@dataclass(frozen=True)
class Scope:
    """The aliases of a query in FROM's order, and the columns that USING merged (name in lower case -> alias)."""

    specs: Mapping[str, Spec]
    merged: Mapping[str, str] = field(default_factory=dict)
    session: Session = IN_UTC
    hosts: Mapping[str, str] = field(default_factory=dict)
    """By alias of a table that of the stream whose tuples it is joined to."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The aliases of streams."""
        return tuple(alias for alias, spec in self.specs.items() if not isinstance(spec, TableSpec))

    @property
    def tables(self) -> frozenset[str]:
        """The aliases of tables."""
        return frozenset(self.specs) - {*self.streams}

    def only(self, aliases: Collection[str]) -> Scope:
        """The scope that knows these aliases only."""
        specs = {alias: spec for alias, spec in self.specs.items() if alias in aliases}
        return replace(self, specs=specs, merged={c: a for c, a in self.merged.items() if a in specs})

    def alias(self, name: str, where: str) -> str:
        """An alias as FROM spells it."""
        alias = find(name, self.specs)
        if alias is None:
            raise UnknownNameError(
                f"{where}: no alias {name!r} in FROM; the aliases are {', '.join(self.specs)}{_did_you_mean(name, self.specs)}"
            )
        return alias

    def column(self, alias: str, name: str) -> ColumnRef:
        """A column of one alias."""
        schema = self.specs[alias].schema
        column = find(name, schema)
        if column is None:
            raise UnknownNameError(
                f"alias {alias!r} (stream {self.specs[alias].name!r}) has no column {name!r}; its columns are {', '.join(schema)}{_did_you_mean(name, schema)}"
            )
        return ColumnRef(alias, column)

    def type_of(self, ref: ColumnRef) -> str:
        if ref.table:
            return self.specs[ref.table].schema[ref.column.removeprefix(f"{ref.table}.")]
        return self.specs[ref.alias].schema[ref.column]

    def find_column(self, name: str) -> ColumnRef:
        """A column that names no alias: USING's left one, else the only one of that name."""
        if name.lower() in self.merged:
            return self.column(self.merged[name.lower()], name)
        holders = [alias for alias, spec in self.specs.items() if find(name, spec.schema) is not None]
        if len(holders) > 1:
            raise UnknownNameError(
                f"column {name!r} is ambiguous: {' and '.join(holders)} have it; write {holders[0]}.{name} or {holders[1]}.{name}"
            )
        if not holders:
            columns = list(dict.fromkeys(c for spec in self.specs.values() for c in spec.schema))
            raise UnknownNameError(
                f"no stream has a column {name!r}; the columns are {', '.join(columns)}{_did_you_mean(name, columns)}"
            )
        return self.column(holders[0], name)

    def resolve(self, node: Any) -> Any:
        """A copy of the expression with every column resolved."""

        def put(part: Any) -> Any:
            if isinstance(part, exp.Star) or (isinstance(part, exp.Column) and isinstance(part.this, exp.Star)):
                raise UnknownNameError(f"{node.sql('spark')}: a star stands alone in SELECT, not inside an expression")
            return self._resolve_column(part) if isinstance(part, exp.Column) else None

        holder = exp.Paren(this=copy_tree(node, put))
        _keep_sums_together(holder)
        return holder.this

    def _resolve_column(self, column: Any) -> Any:
        parts = [part.name for part in column.parts]
        ref, fields = self._split(parts)
        if fields and not self.type_of(ref).lower().startswith(_NESTED):
            raise UnknownNameError(f"{'.'.join(parts)}: {ref} is {self.type_of(ref)} and has no field {fields[0]!r}")
        node = self.node(ref)
        for name in fields:
            node = exp.Dot(this=node, expression=identifier(name))
        return node

    def node(self, ref: ColumnRef) -> Any:
        """A resolved column, with its type."""
        node = exp.Column(this=identifier(ref.column), table=identifier(ref.alias))
        node.meta["spark_type"] = self.type_of(ref)
        if self.hosts:
            settle(node, self.hosts)
        return node

    def _split(self, parts: list[str]) -> tuple[ColumnRef, list[str]]:
        """`alias.column.field...` or `column.field...`; an alias wins over a column of the same name."""
        alias = find(parts[0], self.specs) if len(parts) > 1 else None
        if alias is not None and (find(parts[1], self.specs[alias].schema) is not None or not self.is_column(parts[0])):
            return self.column(alias, parts[1]), parts[2:]
        if len(parts) > 1 and not self.is_column(parts[0]):
            self.alias(parts[0], ".".join(parts))
        return self.find_column(parts[0]), parts[1:]

    def is_column(self, name: str) -> bool:
        return any(find(name, spec.schema) is not None for spec in self.specs.values())


def identifier(name: str) -> Any:
    """Quoted only where it must be, so that texts stay readable."""
    return exp.to_identifier(name, quoted=not is_plain(name))


def is_plain(name: str) -> bool:
    """Whether a name needs no quotes for its letters."""
    return _PLAIN.fullmatch(name) is not None


def settle(node: Any, hosts: Mapping[str, str]) -> None:
    """Let columns of tables be columns of the aliases that these are joined to."""
    for column in list_columns(node):
        if column.table in hosts:
            column.meta["host"] = hosts[column.table]


def ref_of(column: Any) -> ColumnRef:
    """What a resolved column refers to."""
    host = column.meta.get("host")
    return (
        ColumnRef(column.table, column.name)
        if host is None
        else ColumnRef(host, f"{column.table}.{column.name}", column.table)
    )


def alias_of(column: Any) -> str:
    """The alias whose tuples have a resolved column."""
    return str(column.meta.get("host") or column.table)


def aliases_of(node: Any) -> frozenset[str]:
    """The aliases of a resolved expression."""
    return frozenset(alias_of(column) for column in list_columns(node))


def _keep_sums_together(root: Any) -> None:
    """INTERVAL 1 HOUR 5 MINUTES is parsed as a sum without parentheses: `x - (1 h + 5 min)` must not print as `x - 1 h + 5 min`."""
    for node in [part for part in list_nodes(root) if isinstance(part, exp.Add)]:
        parent = node.parent
        if isinstance(parent, exp.Neg | exp.Mul | exp.Div) or (
            isinstance(parent, exp.Sub | exp.Add) and parent.expression is node
        ):
            node.replace(exp.Paren(this=node.copy()))


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    by_lower = {n.lower(): n for n in names}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f". Did you mean {by_lower[near[0]]!r}?" if near else ""
