"""The logical query: one n-ary join node.

Invariant: a `Join` that exists is well formed: every alias is joined to another or spelled CROSS JOIN, every reference
names an alias, the window graph covers exactly the aliases. A bad query cannot be constructed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from watersmeet.errors import QueryError, UnknownNameError
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Comparison, Equality, Predicate
from watersmeet.query.select import Distinct, Finish, Grouping, GroupWindow, Output
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.stream import TIME_TYPES, StreamSpec
from watersmeet.query.table import Lookup
from watersmeet.query.tree import Node
from watersmeet.query.window import WindowGraph, reach


@dataclass(frozen=True)
class Input:
    """One alias in FROM; `rows` is n of [ROWS n], and of [TUMBLING n ROWS] where `rows_tumble`.

    `lookups` are the tables that its tuples are joined with when they arrive.
    """

    alias: str
    stream: str
    rows: int | None = None
    lookups: tuple[Lookup, ...] = ()
    rows_tumble: bool = False


@dataclass(frozen=True)
class Join:
    """A select-project-join over n streams, and what is done with its rows in the end.

    `filters` holds the conditions on one alias; a condition on none stands with the first alias. `crossed` names the
    aliases that the user spelled CROSS JOIN; `timed` the pairs that an explicit condition on event time relates.
    `finish` is DISTINCT or GROUP BY, see `query.select`; None lets every row out. `session` is where the query was bound;
    `widened` the conditions that count time on its clock, with how many microseconds their windows are wider than they say.
    With outer, semi, anti or as-of joins there is a `tree`, whose joins have the predicates and windows; `windows` is then the graph of results in which all
    aliases are present, `after` has conditions on results, and `notes` says which joins became others. `last_lookups` are tables that results are joined with,
    and `last_conditions` hold afterwards. `lone` allows one stream by itself: a registered query may watch one.
    """

    text: str
    inputs: tuple[Input, ...]
    streams: Mapping[str, StreamSpec] = field(hash=False)
    filters: tuple[Expr, ...]
    predicates: tuple[Predicate, ...]
    windows: WindowGraph
    select: tuple[Output, ...]
    crossed: frozenset[str] = frozenset()
    timed: frozenset[frozenset[str]] = frozenset()
    finish: Finish | None = None
    session: Session = IN_UTC
    widened: tuple[tuple[str, int], ...] = ()
    tree: Node | None = None
    after: tuple[Expr, ...] = ()
    notes: tuple[str, ...] = ()
    last_lookups: tuple[Lookup, ...] = ()
    last_conditions: tuple[Expr, ...] = ()
    lone: bool = False

    def __post_init__(self) -> None:
        assert self.windows.aliases == self.aliases
        if len(self.inputs) < 2 and not self.tables and not self.lone:
            raise QueryError(f"the query reads only {self.aliases[0]!r}: a join needs two or more streams in FROM")
        if isinstance(self.finish, Grouping):
            used = [a.argument for a in self.finish.aggregates if a.argument is not None]
            assert self.finish.keys <= len(self.select) > max(used, default=-1)
        known = {*self.aliases, *(lookup.alias for lookup in self.last_lookups)}
        for expr in (*self.filters, *(o.expr for o in self.select)):
            unknown = expr.aliases - known
            if unknown:
                raise UnknownNameError(f"{expr}: no alias {', '.join(sorted(unknown))} in FROM")
        linked = reach({self.aliases[0], *self.crossed}, [*(p.aliases for p in self.predicates), *self.timed])
        lonely = [alias for alias in self.aliases if alias not in linked] if self.tree is None else []
        if lonely:
            raise QueryError(
                f"alias {lonely[0]!r} is joined to nothing: add a condition that relates it to {self.aliases[0]!r}, or spell the cross product CROSS JOIN {lonely[0]}"
            )

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(i.alias for i in self.inputs)

    @property
    def results(self) -> tuple[Output, ...]:
        """The columns of the query's results."""
        return self.finish.select if isinstance(self.finish, Grouping) else self.select

    @property
    def distinct(self) -> bool:
        return isinstance(self.finish, Distinct)

    @property
    def grouping(self) -> Grouping | None:
        return self.finish if isinstance(self.finish, Grouping) else None

    @property
    def group_window(self) -> GroupWindow | None:
        """The window among the keys of GROUP BY."""
        return None if self.grouping is None else self.grouping.window

    def delays_of(self, alias: str) -> dict[str, int]:
        """By alias z how much later a result may leave: those with a tuple of `alias` at ts have all left once watermark(z) > ts + delay, for every z."""
        if self.tree is not None:
            return self.tree.delays_of(alias)
        return {z: self.windows.hi(alias, z) for z in self.aliases}

    def spec(self, alias: str) -> StreamSpec:
        """The stream behind an alias, with the columns that lookups add to its tuples."""
        source = next(i for i in self.inputs if i.alias == alias)
        spec = self.streams[source.stream]
        more = {name: kind for lookup in source.lookups for name, kind in lookup.columns.items()}
        return replace(spec, schema={**spec.schema, **more}) if more else spec

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """All tables that tuples are joined with before they go to units."""
        return tuple(lookup for source in self.inputs for lookup in source.lookups)

    @property
    def tables(self) -> dict[str, str]:
        """All tables: the names of those supplied, by alias."""
        return {lookup.alias: lookup.table for lookup in (*self.lookups, *self.last_lookups)}

    @property
    def last_expressions(self) -> tuple[Expr, ...]:
        """By what results are looked up, and what holds afterwards."""
        return (*(e for lookup in self.last_lookups for e in lookup.on), *self.last_conditions)

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        first = self.aliases[0]
        return tuple(f for f in self.filters if f.aliases == {alias} or (not f.aliases and alias == first))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All expressions of the query."""
        return (*self._conditions, *(p.condition for p in self.predicates), *dict.fromkeys(self._outputs))

    @property
    def depends_on_zone(self) -> bool:
        """Whether results can differ in another time zone; an expression that is not fully known counts as one that depends."""
        return any(not expr.portable or self._has_times(expr) for expr in self._expressions())

    @property
    def depends_on_ansi(self) -> bool:
        """Whether results can differ in the other mode: anything is computed, or a value is cast to be compared."""
        return any(self._expressions())

    def _expressions(self) -> Iterator[Expr]:
        """Expressions that are more than a column, and comparisons that are more than two columns of one type."""
        for predicate in self.predicates:
            if not isinstance(predicate, Equality | Comparison) or self._type(predicate.left) != self._type(
                predicate.right
            ):
                yield predicate.condition
        yield from (expr for expr in (*self._conditions, *self._outputs) if not expr.is_column)

    @property
    def _conditions(self) -> tuple[Expr, ...]:
        """All conditions but the predicates: on one alias, by which tables are joined, on results, and others of a tree."""
        tables = (*(e for lookup in self.lookups for e in lookup.on), *self.last_expressions)
        own = () if self.tree is None else (e for node in self.tree.nodes for e in node.own)
        return (*self.filters, *tables, *self.after, *own)

    @property
    def _outputs(self) -> tuple[Expr, ...]:
        """What the join selects, and what is computed of groups."""
        return (*(o.expr for o in self.select), *(() if self.grouping is None else self.grouping.expressions))

    def _type(self, side: Expr) -> str:
        """The type of a plain column; a text of its own for anything else."""
        if not side.is_column:
            return side.text
        (ref,) = side.columns
        return self.spec(ref.alias).schema[ref.column]

    def _has_times(self, expr: Expr) -> bool:
        """Whether a time stands in an expression; a column of a group may be one."""
        if any(word in expr.duckdb_template.upper() for word in ("TIMESTAMP", "DATE")):
            return True
        times = ("date", *TIME_TYPES)
        return any(
            ref.alias not in self.aliases or self.spec(ref.alias).schema[ref.column] in times for ref in expr.columns
        )
