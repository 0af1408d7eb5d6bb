"""Binds a draft (what a front end read) to the supplied streams: the logical query.

SQL text and the fluent form both become a `Draft`; from here on they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from watersmeet.errors import StreamError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.query.expr import ColumnRef, column
from watersmeet.query.join import Input, Join
from watersmeet.query.select import Distinct, Finish, Output
from watersmeet.query.session import UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import WindowGraph
from watersmeet.sql.expressions import show, to_expr
from watersmeet.sql.group import group, is_grouped
from watersmeet.sql.items import WindowItem, choices_of
from watersmeet.sql.names import Scope, find, stream_named
from watersmeet.sql.predicates import sort_conjuncts
from watersmeet.sql.refuse import refuse_inside


@dataclass(frozen=True)
class Table:
    """One entry of FROM: alias and stream as written, the columns of USING, and whether it is spelled CROSS JOIN."""

    alias: str
    stream: str
    using: tuple[str, ...] = ()
    crossed: bool = False


@dataclass(frozen=True)
class Draft:
    """A query as it was read: names unresolved, conditions, projections and keys of GROUP BY as sqlglot trees."""

    text: str
    tables: tuple[Table, ...]
    conditions: tuple[Any, ...]
    items: tuple[WindowItem, ...]
    projections: tuple[Any, ...]
    distinct: bool = False
    keys: tuple[Any, ...] | None = None


def bind(draft: Draft, streams: Mapping[str, StreamSpec], session: Session) -> Join:
    """The logical query in a session, every name resolved and every condition sorted."""
    inputs, found_scope, using, star = _from(draft, streams)
    scope = replace(found_scope, session=session)
    _refuse_mixed_times(scope)
    for node in draft.conditions:
        refuse_inside(node, replayed=True)
    conditions = [*using, *(scope.resolve(node) for node in draft.conditions)]
    found = sort_conjuncts(conditions, scope)
    items = [_with_aliases(item, scope) for item in draft.items]
    aliases = tuple(scope.specs)
    select, finish = _select(draft, scope, star)
    return Join(
        text=draft.text,
        inputs=_with_rows(inputs, items),
        streams={i.stream: streams[i.stream] for i in inputs},
        filters=tuple(found.filters),
        predicates=tuple(found.predicates),
        windows=WindowGraph.either(aliases, [[*edges, *found.edges] for edges in choices_of(items, aliases)]),
        select=select,
        crossed=frozenset(t.alias for t in draft.tables if t.crossed),
        timed=frozenset(frozenset((edge.old, edge.young)) for edge in found.edges),
        finish=finish,
        session=session,
        widened=tuple(found.widened),
    )


def _refuse_mixed_times(scope: Scope) -> None:
    """Times with and without a zone are the same numbers in UTC only."""
    kinds = {spec.schema[spec.time]: alias for alias, spec in scope.specs.items()}
    if len(kinds) > 1 and scope.session.timezone != UTC:
        zoned, local = kinds["timestamp"], kinds["timestamp_ntz"]
        raise StreamError(
            f"the event time of {zoned!r} is a timestamp and that of {local!r} a timestamp_ntz: windows in time zone {scope.session.timezone} need one kind; cast one of them in its source"
        )


def _select(draft: Draft, scope: Scope, star: Sequence[ColumnRef]) -> tuple[tuple[Output, ...], Finish | None]:
    """The SELECT list, and what is done with its rows."""
    if is_grouped(draft.projections, draft.keys):
        if draft.distinct:
            raise UnsupportedError(
                "DISTINCT over aggregates is not supported: groups are distinct already; leave it out"
            )
        return group(draft.projections, draft.keys or (), scope)
    found = (out for node in draft.projections for out in _outputs(node, scope, star, replayed=draft.distinct))
    return tuple(found), Distinct() if draft.distinct else None


def _from(draft: Draft, streams: Mapping[str, StreamSpec]) -> tuple[list[Input], Scope, list[Any], list[ColumnRef]]:
    """Inputs, scope, the equalities of USING, and what an unqualified * stands for."""
    inputs: list[Input] = []
    specs: dict[str, StreamSpec] = {}
    merged: dict[str, str] = {}
    equalities: list[Any] = []
    star: list[ColumnRef] = []
    for table in draft.tables:
        if find(table.alias, specs) is not None:
            raise UnknownNameError(
                f"alias {table.alias!r} stands twice in FROM: give each occurrence its own alias, as in FROM {table.stream} a, {table.stream} b"
            )
        key = stream_named(table.stream, streams)
        left = Scope(dict(specs), dict(merged))
        specs[table.alias] = streams[key]
        inputs.append(Input(table.alias, key))
        right = [ColumnRef(table.alias, name) for name in streams[key].schema]
        for name in reversed(table.using):
            now = Scope(specs)
            mine, theirs = left.unqualified(name), now.column(table.alias, name)
            equalities.append(exp.EQ(this=now.node(mine), expression=now.node(theirs)))
            merged[name.lower()] = mine.alias
            star.insert(0, star.pop(star.index(mine)))
            right.remove(theirs)
        star += right
    return inputs, Scope(specs, merged), equalities, star


def _with_aliases(item: WindowItem, scope: Scope) -> WindowItem:
    """The item with its aliases spelled as in FROM."""
    names = tuple(scope.alias(name, f"window {item.text!r}") for name in item.aliases)
    if item.kind == "path" and (twice := next((n for n in names if names.count(n) > 1), None)):
        raise WindowError(
            f"window {item.text!r} visits {twice!r} twice: a path has different aliases; to visit a stream again, give it a second alias in FROM"
        )
    if len(names) == 2 and names[0] == names[1]:
        raise WindowError(f"window {item.text!r} names {names[0]!r} twice: a window is between two different aliases")
    return replace(item, aliases=names)


def _with_rows(inputs: Sequence[Input], items: Sequence[WindowItem]) -> tuple[Input, ...]:
    counts: dict[str, int] = {}
    for item in items:
        if item.kind == "rows":
            counts[item.aliases[0]] = min(item.rows, counts.get(item.aliases[0], item.rows))
    return tuple(replace(i, rows=counts.get(i.alias)) for i in inputs)


def _outputs(node: Any, scope: Scope, star: Sequence[ColumnRef], *, replayed: bool) -> Iterator[Output]:
    """The columns that one item of SELECT stands for."""
    inner = node.this if isinstance(node, exp.Alias) else node
    if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
        yield from (Output(ref.column, column(ref.alias, ref.column)) for ref in _star(inner, scope, star))
        return
    if isinstance(node, exp.Aliases):
        raise UnsupportedError(f"several names for one expression are not supported: {show(node)}")
    refuse_inside(inner, replayed=replayed)
    resolved = scope.resolve(inner).unnest()
    expr = to_expr(resolved)
    plain = isinstance(inner.unnest(), exp.Column | exp.Dot)
    name = node.alias if isinstance(node, exp.Alias) else inner.unnest().name if plain else expr.text
    yield Output(name or expr.text, expr)


def _star(node: Any, scope: Scope, star: Sequence[ColumnRef]) -> Sequence[ColumnRef]:
    """`*` or `a.*`."""
    bare = node if isinstance(node, exp.Star) else node.this
    if any(bare.args.get(arg) for arg in ("except_", "except", "replace", "rename")):
        raise UnsupportedError(f"{show(node)} is not supported yet: name the columns that you want")
    if isinstance(node, exp.Star):
        return star
    if len(node.parts) != 2:
        raise UnsupportedError(f"{show(node)} is not supported yet: name the fields that you want")
    alias = scope.alias(node.table, show(node))
    return [ColumnRef(alias, name) for name in scope.specs[alias].schema]
