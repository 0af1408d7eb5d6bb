"""Tables in FROM: whose tuples each is joined to, and what is left of the join tree without them.

    o JOIN u ON u.id = o.user                 u is looked up when a tuple of o arrives; its columns are columns of o from then on
    (o LEFT JOIN c ON ..) JOIN u ON .. o ..   the same: the join with u goes down to o, which the outer join preserves
    (o LEFT JOIN c ON ..) LEFT JOIN u ON .. c ..   goes down to c, if ON is not true where c is NULL

A join with a table goes down to the alias that its ON is about, where SQL says that this is the same:

    inner   through inner joins to any input, through outer, semi, anti and as-of joins to the input that they preserve
    left    the same, and to inputs that an outer join extends with NULLs, if ON is not true for those

If ON is about several streams, or the join cannot go down, it goes up to the root, as far as inner joins and preserved inputs let it: results are looked up.

Invariant: the tree that remains, over tuples that are looked up first, with results that are looked up last, means what the text means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from watersmeet.errors import QueryError, UnsupportedError
from watersmeet.query.expr import ColumnRef, Expr, column_at
from watersmeet.query.join import Input
from watersmeet.query.table import Lookup, LookupKind
from watersmeet.sql.copies import list_columns
from watersmeet.sql.expressions import to_expr
from watersmeet.sql.names import Scope, aliases_of, settle
from watersmeet.sql.trees import Item, Joined, aliases_in, conditions_in, flatten, push, rejects, visible_in

ON = "on"
"""Where a condition remembers the table whose ON it stands in."""


@dataclass
class Hoisted:
    """A join tree without tables."""

    root: Joined
    where: list[Any]
    """Conditions on results."""
    hosts: dict[str, str] = field(default_factory=dict)
    lookups: dict[str, list[Lookup]] = field(default_factory=dict)
    """By alias of a stream, in the order in which they are joined."""
    last: list[Lookup] = field(default_factory=list)
    """Of results."""
    last_conditions: list[Expr] = field(default_factory=list)
    """On results, once they are looked up."""
    filters: list[Expr] = field(default_factory=list)
    """Tuples without a row in a table that they must have one in are none."""


def hoist(
    root: Joined, where: Sequence[Any], scope: Scope, inputs: Sequence[Input], crossed: Collection[str]
) -> Hoisted:
    """Take the tables out of a join tree; `crossed` are those that are spelled CROSS JOIN."""
    if not scope.tables:
        return Hoisted(root, list(where))
    if not scope.streams:
        raise QueryError(
            f"the query reads only tables ({', '.join(scope.tables)}): a join needs a stream; join static DataFrames with Spark's own join"
        )
    out = Hoisted(root, [c for c in where if not push(root, c)])
    rest = _Hoister(scope, {i.alias: i for i in inputs}, crossed, out).strip(root)
    out.root = rest if isinstance(rest, Joined) else Joined("inner", [rest])
    for condition in (*conditions_in(out.root), *out.where):
        settle(condition, out.hosts)
    loose = {lookup.alias for lookup in out.last}
    out.last_conditions += [to_expr(c) for c in out.where if aliases_of(c) & loose]
    out.where = [c for c in out.where if not aliases_of(c) & loose]
    return out


class _Hoister:
    def __init__(self, scope: Scope, inputs: Mapping[str, Input], crossed: Collection[str], out: Hoisted) -> None:
        self.scope, self.inputs, self.crossed, self.out = scope, inputs, crossed, out

    def strip(self, item: Item) -> Item:
        """An item of FROM without its tables."""
        if isinstance(item, str):
            return item
        self._refuse_misplaced(item)
        if item.kind == "inner":
            return self._inner(item)
        if item.kind == "left" and self._table_in(item.inputs[1]):
            return self._strip_left(item)
        inputs: list[Item] = []
        for n, part in enumerate(item.inputs):
            before = len(self.out.last)
            inputs.append(self.strip(part))
            if len(self.out.last) > before and (n or item.kind == "full"):
                raise self._not_before(self.out.last[-1].alias, item)
        for condition in item.conditions:
            for table in sorted(_aliases_of(condition) & self._loose):
                raise self._not_before(table, item)
        return Joined(item.kind, inputs, item.conditions, item.written, item.nearest)

    @property
    def _loose(self) -> set[str]:
        """The tables that are joined to results."""
        return {lookup.alias for lookup in self.out.last}

    def _table_in(self, item: Item) -> str | None:
        """The alias of a table, with conditions on it or without."""
        if isinstance(item, Joined) and len(item.inputs) == 1:
            item = item.inputs[0]
        return item if isinstance(item, str) and item in self.scope.tables else None

    def _inner(self, item: Joined) -> Item:
        inputs: list[Item] = []
        conditions = list(item.conditions)
        pending: list[str] = []
        for part in item.inputs:
            table = self._table_in(part)
            if table is None:
                inputs.append(self.strip(part))
                continue
            pending.append(table)
            conditions += part.conditions if isinstance(part, Joined) else []
        node = flatten(Joined("inner", inputs, conditions, item.written))
        while found := next((table for table in pending if self._attach(table, node, pending)), None):
            pending.remove(found)
        for n, table in enumerate(pending):
            on = [c for c in node.conditions if table in _aliases_of(c) and not _aliases_of(c) & {*pending[n + 1 :]}]
            node.conditions = [c for c in node.conditions if not any(c is o for o in on)]
            self._look_up_last(table, "inner", on)
        self.out.where += [c for c in node.conditions if _aliases_of(c) & self._loose]
        node.conditions = [c for c in node.conditions if not _aliases_of(c) & self._loose]
        return self._narrow(node)

    def _narrow(self, node: Joined) -> Item:
        """An inner join, or its only input."""
        if len(node.inputs) > 1 or isinstance(node.inputs[0], str):
            return node if len(node.inputs) > 1 or node.conditions else node.inputs[0]
        below = node.inputs[0]
        for condition in node.conditions:
            settle(condition, self.out.hosts)
            if not push(below, condition):
                self.out.where.append(condition)
        return below

    def _attach(self, table: str, node: Joined, pending: Sequence[str]) -> bool:
        """Join a table to the stream of an inner join that it is about; whether there is one."""
        mine = [c for c in node.conditions if table in _aliases_of(c) and not _aliases_of(c) & ({*pending} - {table})]
        host = self._host(table, node, mine, pending)
        if host is None or not self._reaches(node, host, None):
            return False
        own = [c for c in mine if self._streams_of(c, table) <= {host}]
        node.conditions = [c for c in node.conditions if not any(c is o for o in own)]
        self._look_up(host, table, "inner", own)
        return True

    def _host(self, table: str, node: Joined, mine: Sequence[Any], pending: Sequence[str]) -> str | None:
        """The stream that a table of an inner join is about: that of its ON, else of an equality, else of any condition."""
        on = [c for c in node.conditions if c.meta.get(ON) == table]
        concerned = {alias for c in on for alias in self._streams_of(c, table)}
        if len(concerned) > 1 or concerned & {*pending, *self._loose}:
            return None
        singles = [c for c in mine if len(self._streams_of(c, table)) == 1 and not _aliases_of(c) & self._loose]
        singles.sort(key=lambda c: (c.meta.get(ON) != table, not isinstance(c, exp.EQ)))
        if singles:
            return next(iter(self._streams_of(singles[0], table)))
        if any(table in _aliases_of(c) and len(_aliases_of(c)) > 1 for c in node.conditions):
            return None
        first = next(alias for alias in visible_in(node) if alias in self.scope.streams)
        if table not in self.crossed:
            raise QueryError(
                f"table {table!r} is joined to nothing: add a condition that relates it to {first!r}, or spell the cross product CROSS JOIN {table}"
            )
        return first

    def _strip_left(self, item: Joined) -> Item:
        table = self._table_in(item.inputs[1])
        assert table is not None
        left = self.strip(item.inputs[0])
        concerned = {alias for c in item.conditions for alias in self._streams_of(c, table)}
        host = next(iter(concerned or visible_in(left)))
        if len(concerned) > 1 or concerned & self._loose or not self._reaches(left, host, item.conditions):
            self._look_up_last(table, "left", item.conditions)
        else:
            self._look_up(host, table, "left", item.conditions)
        return left

    def _reaches(self, item: Item, host: str, conditions: Sequence[Any] | None) -> bool:
        """Whether a join with a table may go down to an alias; `conditions` are those of a left join."""
        if isinstance(item, str):
            return item == host and self.inputs[host].rows is None
        at = next(n for n, part in enumerate(item.inputs) if host in aliases_in(part))
        if item.kind != "inner" and (at or item.kind == "full"):
            if conditions is None or item.kind not in ("left", "full"):
                return False
            for condition in conditions:
                settle(condition, self.out.hosts)
            if not rejects(conditions, [host]):
                return False
        return self._reaches(item.inputs[at], host, conditions)

    def _streams_of(self, condition: Any, table: str) -> set[str]:
        """The streams that a condition compares a table with; tables stand for the streams that they are joined to."""
        return {self.out.hosts.get(alias, alias) for alias in _aliases_of(condition) - {table}}

    def _look_up_last(self, table: str, kind: LookupKind, conditions: Sequence[Any]) -> None:
        for condition in conditions:
            settle(condition, self.out.hosts)
        on, schema = tuple(map(to_expr, conditions)), self.scope.specs[table].schema
        self.out.last.append(Lookup(table, self.inputs[table].stream, kind, on, schema))

    def _look_up(self, host: str, table: str, kind: LookupKind, conditions: Sequence[Any]) -> None:
        chained = any(_aliases_of(c) & (self.scope.tables - {table}) for c in conditions)
        self.out.hosts[table] = host
        for condition in conditions:
            settle(condition, self.out.hosts)
        schema = self.scope.specs[table].schema
        lookup = Lookup(table, self.inputs[table].stream, kind, tuple(map(to_expr, conditions)), schema, chained)
        taken = lookup.columns.keys() & self.scope.specs[host].schema.keys()
        if taken:
            raise QueryError(
                f"the stream of {host!r} has a column {min(taken)!r}, which is the name of a column of table {table!r}: give the table another alias"
            )
        self.out.lookups.setdefault(host, []).append(lookup)
        if kind == "inner":
            found = column_at(ColumnRef(host, lookup.flag, table))
            self.out.filters.append(replace(found, text=f"a row of {table} is found"))

    def _not_before(self, table: str, item: Joined) -> QueryError:
        lookup = next(lookup for lookup in self.out.last if lookup.alias == table)
        return UnsupportedError(
            f"{lookup} concerns more than the tuples of one stream, so it is joined to results, and {item.written} would need it before: join {table!r} on columns of one stream, and put other conditions into WHERE"
        )

    def _refuse_misplaced(self, item: Joined) -> None:
        """A table stands on the right of inner and left joins; whatever preserves its rows, or asks for its time, is refused."""
        for n, part in enumerate(item.inputs):
            mine = [alias for alias in aliases_in(part) if alias in self.scope.tables]
            if len(mine) < len(aliases_in(part)) or item.kind == "inner":
                continue
            if len(mine) > 1:
                raise UnsupportedError(
                    f"{item.written}: a join of tables alone ({', '.join(mine)}) is none of streams; join them with Spark first, and give the result as one wm.Table"
                )
            _refuse(item, n, mine[0])


def _refuse(item: Joined, at: int, table: str) -> None:
    if item.kind.startswith("asof"):
        raise UnsupportedError(
            f"{item.written}: {table!r} is a table and has no event time, which an as-of join is about; join it with JOIN or LEFT JOIN, or give it as a wm.Stream with a time"
        )
    if item.kind in ("semi", "anti") and at:
        raise UnsupportedError(
            f"{item.written}: {item.kind} joins with a table are not supported; LEFT JOIN {table}, and ask in WHERE whether one of its columns is NULL, or filter the stream's source by it"
        )
    if at == 0 or item.kind == "full":
        raise UnsupportedError(
            f"{item.written} keeps rows of table {table!r} that have no partner, and a table has no time at which they could leave: put the stream first, as in FROM stream s LEFT JOIN {table} ON ..."
        )


def _aliases_of(condition: Any) -> frozenset[str]:
    """The aliases that a condition names, tables among them."""
    return frozenset(column.table for column in list_columns(condition))
