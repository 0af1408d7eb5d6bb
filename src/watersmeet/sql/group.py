"""GROUP BY and aggregates: what the aggregation reads, and what it makes of it (`query.select` has the picture).

A SELECT item is folded from the top: a part that is a key becomes a column of the group, an aggregate becomes another,
and a column that is left over belongs to no group: an error. A key is an expression, the number of a SELECT item or the
name that SELECT gives to one; a column of that name comes first, as in Spark. HAVING is folded like an item, and may use the names of items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from watersmeet.errors import QueryError, UnknownNameError, UnsupportedError
from watersmeet.query.expr import Expr
from watersmeet.query.select import END, Aggregate, Grouping, Output, result_type
from watersmeet.sql.aggregates import BY_TIME, Written, read_aggregate
from watersmeet.sql.copies import copy_tree, list_nodes
from watersmeet.sql.evaluator.lower import type_of
from watersmeet.sql.evaluator.types import SparkType
from watersmeet.sql.expressions import is_star, item_of, show, to_expr
from watersmeet.sql.names import Scope
from watersmeet.sql.refuse import has_aggregate, refuse_inside
from watersmeet.sql.windows.group_window import (
    WindowKey,
    fold_window,
    is_window,
    name_of,
    only_window,
    read_window,
    spell_out,
)


def is_grouped(projections: Sequence[Any], keys: Sequence[Any] | None) -> bool:
    """Whether rows are aggregated: by GROUP BY, or by an aggregate in SELECT alone."""
    return keys is not None or any(has_aggregate(node) for node in projections)


def group(
    projections: Sequence[Any], keys: Sequence[Any], scope: Scope, having: Any = None
) -> tuple[tuple[Output, ...], Grouping]:
    """The SELECT of the join, and the grouping over it."""
    items = [_item(node, projections, scope) for node in keys]
    window = only_window([read_window(n, item, scope) for n, item in enumerate(items) if is_window(item)])
    if having is not None and window is None:
        raise UnsupportedError(
            f"HAVING {show(having)} goes with groups that end: a group that stops to qualify could not be taken back; {_end_groups(scope)}, or filter the result"
        )
    folder = _Folder(scope, [_key(node, item, scope) for node, item in zip(keys, items, strict=True)], window)
    select = tuple(folder.output(node) for node in projections)
    condition = None if having is None else folder.condition(having, projections)
    if not folder.aggregates:
        folder.aggregates["count(*)"] = Aggregate("count", None, "count(*)")
    read = [Output(f"g{n}", to_expr(key)) for n, key in enumerate(folder.columns)]
    read += [Output(f"x{n}", to_expr(node)) for n, node in enumerate(folder.arguments.values())]
    ends = None if window is None else window.window
    return tuple(read), Grouping(len(folder.keys), tuple(folder.aggregates.values()), select, ends, condition)


def _key(node: Any, item: Any, scope: Scope) -> Any:
    """A key, resolved, from the item that it stands for."""
    if has_aggregate(item):
        raise QueryError(
            f"GROUP BY {show(node)}: {show(item)} is an aggregate; group by columns and expressions of them"
        )
    refuse_inside(item, replayed=True)
    resolved = scope.resolve(item).unnest()
    parts = list_nodes(resolved)
    if not any(isinstance(part, exp.Column) for part in parts):
        raise QueryError(f"GROUP BY {show(node)} is a constant: group by columns, or by the number of a SELECT item")
    if not is_window(resolved) and any(map(is_window, parts)):
        raise UnsupportedError(
            f"GROUP BY {show(node)}: window() is a key by itself; group by it, and compute with window.start and window.end in SELECT"
        )
    return resolved


def _item(node: Any, projections: Sequence[Any], scope: Scope) -> Any:
    """The expression that a key stands for: a SELECT item if it is a number or the name of one."""
    if isinstance(node, exp.Literal) and not node.is_string:
        position = int(node.name) if node.name.isdigit() else 0
        if not 1 <= position <= len(projections):
            raise UnknownNameError(f"GROUP BY {node.name}: SELECT has items 1 to {len(projections)}")
        return item_of(projections[position - 1])[0]
    if isinstance(node, exp.Column) and not node.table and not scope.is_column(node.name):
        named = [p for p in projections if isinstance(p, exp.Alias) and p.alias.lower() == node.name.lower()]
        return named[0].this if named else node
    return node


@dataclass
class _Folder:
    """Folds SELECT items; keys, arguments and aggregates are found by their text."""

    scope: Scope
    keys: list[Any]
    window: WindowKey | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kinds = {show(key): (n, _type_name(type_of(key))) for n, key in reversed([*enumerate(self.keys)])}
        """The number and the type of every key, by its text."""
        self.key_types = tuple({type(key) for key in self.keys})
        """Parts of other types are no keys, and their text is not written."""
        self.time_kind = "" if self.window is None else _type_name(type_of(self.window.column))

    @property
    def columns(self) -> list[Any]:
        """What the join selects for the keys: of a window the event time."""
        return [self.window.column if self.window is not None and is_window(key) else key for key in self.keys]

    def output(self, node: Any) -> Output:
        inner, name = item_of(node)
        if is_star(inner):
            raise QueryError(f"{show(inner)} stands beside GROUP BY or an aggregate: name the columns of the group")
        return Output(name or name_of(inner) or show(inner), self.expression(inner))

    def condition(self, node: Any, projections: Sequence[Any]) -> Expr:
        """HAVING, in which names of SELECT items stand for them."""
        holder = exp.Paren(this=copy_tree(node))
        for column in list(holder.find_all(exp.Column)):
            item = _item(column, projections, self.scope)
            if item is not column:
                column.replace(exp.Paren(this=item.copy()))
        return replace(self.expression(holder.this), text=show(node.unnest()))

    def expression(self, inner: Any) -> Expr:
        """An expression over keys and aggregates."""
        refuse_inside(inner, replayed=True, aggregated=True)
        text = show(inner)
        resolved = self.scope.resolve(spell_out(_count_rows(inner), self.window, self.scope))

        def put(part: Any) -> Any:
            folded = self.fold(part, text)
            return None if folded is part else folded

        return replace(to_expr(copy_tree(resolved, put).unnest()), text=text)

    def fold(self, part: Any, text: str) -> Any:
        """A part of a resolved item as a column of the group, or itself."""
        if isinstance(part, exp.Literal):
            return part
        if self.window is not None and isinstance(part, exp.Dot | exp.Anonymous):
            start, end = _slot(f"g{self.window.window.key}", self.time_kind), _slot(END, self.time_kind)
            folded = fold_window(part, self.window, start, end)
            if folded is not None:
                return folded
        key = self.kinds.get(show(part)) if isinstance(part, self.key_types) else None
        if key is not None:
            return _slot(f"g{key[0]}", key[1])
        written = read_aggregate(part)
        if written is not None:
            return self.aggregate(written)
        if isinstance(part, exp.Column) or is_window(part):
            where = "" if show(part) == text else f" in {text}"
            raise QueryError(
                f"{show(part)}{where} is neither in GROUP BY nor inside an aggregate: add it to GROUP BY, or write min({show(part)})"
            )
        return part

    def aggregate(self, written: Written) -> Any:
        """A column of the group that is an aggregate, of those that there are or a new one."""
        inner = written.argument
        by = self._order(written)
        shown = written.show([show(part) for part in (inner, written.by) if part is not None])
        kind = ""
        for part in (p for p in (inner, written.by) if p is not None):
            refuse_nested(part, shown)
        if not written.is_online and self.window is None:
            raise UnsupportedError(
                f"{shown} is for groups that end: {_end_groups(self.scope)}, or apply it to the result"
            )
        if inner is not None:
            found = type_of(inner)
            kind = _type_name(found)
            if found is not None and result_type(written.function, kind) is None and kind != "string":
                raise QueryError(
                    f"{shown}: {show(inner)} is {kind}, which {written.function} does not take; cast it to a number"
                )
        position, order = (None if part is None else self._read(part) for part in (inner, by))
        made = Aggregate(written.function, position, shown, order, written.skips_nulls)
        self.aggregates.setdefault(shown, made)
        at = list(self.aggregates).index(shown)
        return _slot(f"a{at}", result_type(written.function, kind or None) or "")

    def _order(self, written: Written) -> Any | None:
        """What says which value is first: what is written, or the event time of the window."""
        if written.by is not None or written.function not in BY_TIME or self.window is None:
            return written.by
        return self.window.column

    def _read(self, node: Any) -> int:
        """The position of an argument in the join's SELECT."""
        self.arguments.setdefault(show(node), node)
        return len(self.keys) + list(self.arguments).index(show(node))


def _end_groups(scope: Scope) -> str:
    """How to make groups end."""
    first, spec = next(iter(scope.specs.items()))
    return f"add window({first}.{spec.time}, '10 minutes') to GROUP BY"


def refuse_nested(node: Any, shown: str) -> None:
    """An aggregate of an aggregate has no meaning."""
    if has_aggregate(node):
        raise QueryError(f"{shown}: an aggregate inside an aggregate; aggregate columns and expressions of them")


def _count_rows(node: Any) -> Any:
    """count(*) counts a literal: a star is no expression."""
    if not any(isinstance(part, exp.Star) for part in list_nodes(node)):
        return node
    return copy_tree(node, lambda part: exp.Literal.number(1) if _is_counted(part) else None)


def _is_counted(part: Any) -> bool:
    return isinstance(part, exp.Star) and isinstance(part.parent, exp.Count)


def _slot(name: str, spark_type: str) -> Any:
    column = exp.Column(this=exp.to_identifier(name))
    column.meta["spark_type"] = spark_type
    return column


def _type_name(kind: SparkType | None) -> str:
    return "" if kind is None else str(kind)
