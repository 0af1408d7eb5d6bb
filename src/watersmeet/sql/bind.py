"""Binds a draft (what a front end read) to the supplied streams: the logical query.

SQL text and the fluent form both become a `Draft`; from here on they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from watersmeet.errors import StreamError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.query.expr import ColumnRef
from watersmeet.query.join import Input, Join
from watersmeet.query.select import Distinct, Finish, Output
from watersmeet.query.session import UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.query.table import Spec
from watersmeet.query.window import WindowGraph
from watersmeet.sql.expressions import is_star, item_of, show, to_expr
from watersmeet.sql.group import group, is_grouped
from watersmeet.sql.names import Scope, find, stream_named
from watersmeet.sql.predicates import conjuncts
from watersmeet.sql.refuse import refuse_inside
from watersmeet.sql.tables import ON, hoist
from watersmeet.sql.trees import Joined, has_outer, nearest_of, place, simplify, visible_in
from watersmeet.sql.windows.group_window import refuse_endless
from watersmeet.sql.windows.items import WindowItem, choices_of
from watersmeet.sql.windows.tumbling import read_tumbling


@dataclass(frozen=True)
class FromItem:
    """One entry of FROM: alias and stream as written, the columns of USING, and whether it is spelled CROSS JOIN."""

    alias: str
    stream: str
    using: tuple[str, ...] = ()
    crossed: bool = False


@dataclass(frozen=True)
class Draft:
    """A query as it was read: names unresolved, conditions, projections and keys of GROUP BY as sqlglot trees."""

    text: str
    tables: tuple[FromItem, ...]
    conditions: tuple[Any, ...]
    items: tuple[WindowItem, ...]
    projections: tuple[Any, ...]
    shape: Joined
    """What FROM joins. Its conditions are those of ON."""
    distinct: bool = False
    keys: tuple[Any, ...] | None = None
    having: Any = None


def bind(draft: Draft, streams: Mapping[str, Spec], session: Session, *, lone: bool = False) -> Join:
    """The logical query in a session, every name resolved and every condition sorted; lone: one stream by itself will do."""
    found, scope, using, star = _from(draft, streams, session)
    _refuse_mixed_times(scope)
    items = [_with_aliases(item, scope) for item in draft.items]
    inputs = _with_rows(found, items)
    crossed = frozenset(t.alias for t in draft.tables if t.crossed)
    choices = choices_of(items, scope.streams)
    shape = _shape(draft.shape, scope, using)
    where = [c for node in draft.conditions for c in conjuncts(_resolve(node, scope.only(shape.visible)))]
    notes = [f"{i.text}: members lie in the same window of that width" for i in items if i.kind == "tumbling"]
    hoisted = hoist(simplify(shape, where, notes), where, scope, inputs, crossed)
    scope = replace(scope, hosts=hoisted.hosts)
    seen = scope.only(shape.visible)
    select, finish = _select(draft, seen, [ref for ref in star if ref.alias in seen.specs])
    if has_outer(hoisted.root):
        _refuse_rows(items)
    bound = place(hoisted.root, hoisted.where, scope, choices)
    inputs = [
        replace(i, lookups=tuple(hoisted.lookups.get(i.alias, ()))) for i in inputs if i.alias not in scope.tables
    ]
    join = Join(
        text=draft.text,
        inputs=tuple(inputs),
        streams={i.stream: spec for i in inputs if isinstance(spec := streams[i.stream], StreamSpec)},
        filters=(*hoisted.filters, *bound.filters),
        predicates=(*bound.predicates, *read_tumbling(items, scope, is_outer=bound.root is not None)),
        windows=WindowGraph.either(scope.streams, [[*edges, *bound.edges] for edges in choices]),
        select=select,
        crossed=crossed - scope.tables,
        timed=frozenset(frozenset((edge.old, edge.young)) for edge in bound.edges),
        finish=finish,
        session=session,
        widened=tuple(bound.widened),
        tree=bound.root,
        after=tuple(bound.after),
        notes=tuple(notes),
        last_lookups=tuple(hoisted.last),
        last_conditions=tuple(hoisted.last_conditions),
        lone=lone,
    )
    if lone and len(inputs) == 1 and draft.items:
        raise UnsupportedError(
            f"{draft.items[0].text}: a window relates two streams, and the query reads only {inputs[0].alias!r}; leave it out"
        )
    _refuse_late_finish(join)
    refuse_endless(join)
    return join


def _shape(item: Joined, scope: Scope, using: Mapping[str, Sequence[Any]]) -> Joined:
    """What FROM joins, every ON resolved by the aliases that stand before it."""
    inputs = [part if isinstance(part, str) else _shape(part, scope, using) for part in item.inputs]
    seen = [alias for part in inputs for alias in visible_in(part)]
    conditions = [
        c for node in item.conditions for c in conjuncts(_resolve(node, scope.only(seen), scope, item.written))
    ]
    right = inputs[-1]
    conditions += using.get(right, ()) if isinstance(right, str) else ()
    for condition in conditions:
        condition.meta[ON] = right if isinstance(right, str) else ""
    nearest = None
    if item.kind.startswith("asof"):
        if not isinstance(right, str):
            raise UnsupportedError(
                f"{item.written}: an as-of join looks into one stream, not into a join; join that first, to the left of it"
            )
        nearest, conditions = nearest_of(conditions, visible_in(inputs[0]), [right], scope, item.written)
    return Joined(item.kind, inputs, conditions, item.written, nearest)


def _resolve(node: Any, seen: Scope, every: Scope | None = None, written: str = "") -> Any:
    """A condition with its names resolved; one that names an alias that is not joined yet is refused in these words."""
    refuse_inside(node, replayed=True)
    try:
        return seen.resolve(node)
    except UnknownNameError:
        if every is None:
            raise
        later = sorted({c.table for c in every.resolve(node).find_all(exp.Column)} - {*seen.specs})
        raise UnknownNameError(
            f"ON of {written} names {', '.join(later)}, which is not joined there: an ON sees what stands before it and what it joins; move the condition to a later ON or to WHERE"
        ) from None


def _refuse_late_finish(join: Join) -> None:
    """Units drop repeats and aggregate before results are looked up."""
    if join.finish is not None and join.last_lookups:
        what = "DISTINCT" if join.distinct else "GROUP BY or an aggregate"
        raise UnsupportedError(
            f"{join.last_lookups[0]} is joined to results, since it concerns more than the tuples of one stream, and {what} over that is not supported: join it on columns of one stream, or apply that to the query's result"
        )


def _refuse_rows(items: Sequence[WindowItem]) -> None:
    for item in items:
        if item.kind == "rows":
            raise UnsupportedError(
                f"{item.aliases[0]} {item.text} in a query with outer, semi, anti or as-of joins is not supported: ROWS goes with inner joins; bound it by time, as in {item.aliases[0]} [RANGE 10 MINUTES]"
            )


def _refuse_mixed_times(scope: Scope) -> None:
    """Times with and without a zone are the same numbers in UTC only."""
    kinds = {scope.specs[alias].schema[scope.specs[alias].time]: alias for alias in scope.streams}
    if len(kinds) > 1 and scope.session.timezone != UTC:
        zoned, local = kinds["timestamp"], kinds["timestamp_ntz"]
        raise StreamError(
            f"the event time of {zoned!r} is a timestamp and that of {local!r} a timestamp_ntz: windows in time zone {scope.session.timezone} need one kind; cast one of them in its source"
        )


def _select(draft: Draft, scope: Scope, star: Sequence[ColumnRef]) -> tuple[tuple[Output, ...], Finish | None]:
    """The SELECT list, and what is done with its rows."""
    if is_grouped(draft.projections, draft.keys) or draft.having is not None:
        if draft.distinct:
            raise UnsupportedError(
                "DISTINCT over aggregates is not supported: groups are distinct already; leave it out"
            )
        return group(draft.projections, draft.keys or (), scope, draft.having)
    found = (out for node in draft.projections for out in _outputs(node, scope, star, replayed=draft.distinct))
    return tuple(found), Distinct() if draft.distinct else None


def _from(
    draft: Draft, streams: Mapping[str, Spec], session: Session
) -> tuple[list[Input], Scope, dict[str, list[Any]], list[ColumnRef]]:
    """Inputs, scope, the equalities of USING by alias, and what * stands for."""
    inputs: list[Input] = []
    specs: dict[str, Spec] = {}
    merged: dict[str, str] = {}
    equalities: dict[str, list[Any]] = {}
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
            mine, theirs = left.find_column(name), now.column(table.alias, name)
            equalities.setdefault(table.alias, []).append(exp.EQ(this=now.node(mine), expression=now.node(theirs)))
            merged[name.lower()] = mine.alias
            star.insert(0, star.pop(star.index(mine)))
            right.remove(theirs)
        star += right
    return inputs, Scope(specs, merged, session), equalities, star


def _with_aliases(item: WindowItem, scope: Scope) -> WindowItem:
    """The item with its aliases spelled as in FROM."""
    names = tuple(scope.alias(name, f"window {item.text!r}") for name in item.aliases)
    if timeless := next((n for n in names if n in scope.tables), None):
        raise WindowError(
            f"window {item.text!r} names {timeless!r}, which is a table and has no event time: windows are between streams; put conditions on its columns into ON, or give it as wm.Stream(..., time=...)"
        )
    if item.kind == "path" and (twice := next((n for n in names if names.count(n) > 1), None)):
        raise WindowError(
            f"window {item.text!r} visits {twice!r} twice: a path has different aliases; to visit a stream again, give it a second alias in FROM"
        )
    if len(names) == 2 and names[0] == names[1]:
        raise WindowError(f"window {item.text!r} names {names[0]!r} twice: a window is between two different aliases")
    return replace(item, aliases=names)


def _with_rows(inputs: Sequence[Input], items: Sequence[WindowItem]) -> list[Input]:
    """The inputs with their ROWS windows: of several [ROWS n] of an alias the least counts, and blocks allow no other."""
    counts: dict[str, WindowItem] = {}
    for item in items:
        if item.kind == "rows":
            (alias,) = item.aliases
            known = counts.setdefault(alias, item)
            if (known.tumbles or item.tumbles) and (known.tumbles, known.rows) != (item.tumbles, item.rows):
                raise WindowError(
                    f"{alias} has both {known.text} and {item.text}: blocks of tuples go with no other count; give one of them"
                )
            counts[alias] = min(known, item, key=lambda i: i.rows)
    return [
        i if (found := counts.get(i.alias)) is None else replace(i, rows=found.rows, rows_tumble=found.tumbles)
        for i in inputs
    ]


def _outputs(node: Any, scope: Scope, star: Sequence[ColumnRef], *, replayed: bool) -> Iterator[Output]:
    """The columns that one item of SELECT stands for."""
    inner, name = item_of(node)
    if is_star(inner):
        yield from (Output(ref.column, to_expr(scope.node(ref))) for ref in _star(inner, scope, star))
        return
    refuse_inside(inner, replayed=replayed)
    expr = to_expr(scope.resolve(inner).unnest())
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
