"""`window(x.ts, size [, slide [, start]])` among the keys of GROUP BY: what it says, and the names by which SELECT and HAVING refer to it.

    window                  struct<start, end>, as in Spark               window(x.ts, '10 minutes')      the same, spelled out
    window.start            the key itself                                window.end                      start + size

Invariant: there is one window at most, and it is over the event time of an alias, so that watermarks tell when its groups end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.errors import QueryError, UnknownNameError, UnsupportedError, WatersmeetError, WindowError
from watersmeet.query.duration import parse_us
from watersmeet.query.join import Join
from watersmeet.query.select import GroupWindow
from watersmeet.query.window import UNBOUNDED
from watersmeet.sql.copies import copy_tree, list_columns
from watersmeet.sql.expressions import show
from watersmeet.sql.names import Scope
from watersmeet.sql.windows.time_conditions import interval_us

NAME = "window"
_USAGE = "write window(o.ts, '10 minutes'), with a slide or a slide and a start time after it if they are wanted"
_PARTS = ("size", "slide", "start time")


@dataclass(frozen=True)
class WindowKey:
    """The key, as it was written, and what it says."""

    node: Any
    """With its names resolved."""
    written: Any
    window: GroupWindow

    @property
    def column(self) -> Any:
        """The event time that rows are told apart by."""
        return self.node.expressions[0].unnest()


def is_window(node: Any) -> bool:
    """Whether a node is Spark's function window()."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == NAME


def read_window(position: int, written: Any, scope: Scope) -> WindowKey:
    """The window of a key."""
    shown = show(written)
    if not 2 <= len(written.expressions) <= 4:
        raise QueryError(f"{shown} has {len(written.expressions)} arguments: {_USAGE}")
    node = scope.resolve(written)
    column = node.expressions[0].unnest()
    _check_time(column, shown, scope)
    spans = [_span(part, name, shown) for part, name in zip(node.expressions[1:], _PARTS, strict=False)]
    size, slide, start = (*spans, *(spans[0], 0)[len(spans) - 1 :]) if len(spans) < 3 else spans
    if not 0 < slide <= size or abs(start) >= slide:
        raise WindowError(
            f"{shown}: the size must be more than nothing, the slide at most the size, and the start time less than the slide, as Spark has it"
        )
    return WindowKey(node, written, GroupWindow(position, column.table, size, slide, start, show(node)))


def only_window(found: Sequence[WindowKey]) -> WindowKey | None:
    """The one window of the keys, if there is one."""
    if len(found) > 1:
        raise UnsupportedError(
            f"GROUP BY {', '.join(show(key.written) for key in found)}: a group has one window, as in Spark; keep one of them"
        )
    return found[0] if found else None


def _check_time(column: Any, shown: str, scope: Scope) -> None:
    """Watermarks speak of event times only."""
    if isinstance(column, exp.Column) and column.table in scope.specs and column.name == scope.specs[column.table].time:
        return
    inside = sorted({c.table for c in column.find_all(exp.Column)} & {*scope.streams}) or list(scope.streams)
    time = f"{inside[0]}.{scope.specs[inside[0]].time}"
    raise QueryError(
        f"{shown}: {show(column)} is no event time, so nothing says when a group is complete; take {time}, or make it the stream's time, as in Stream(..., time={column.name!r})"
        if isinstance(column, exp.Column)
        else f"{shown}: {show(column)} is no event time, so nothing says when a group is complete; take {time}, and compute in the stream's source"
    )


def _span(node: Any, name: str, shown: str) -> int:
    """A size, slide or start time: a text, an interval, or whole microseconds, as Spark takes it."""
    node = node.unnest()
    if isinstance(node, exp.Interval) and (us := interval_us(node)) is not None:
        return us
    negative = isinstance(node, exp.Neg)
    bare = node.this if negative else node
    try:
        if isinstance(bare, exp.Literal):
            us = parse_us(bare.name) if bare.is_string else int(bare.name)
            return -us if negative else us
    except (WatersmeetError, ValueError, ArithmeticError) as error:
        raise WindowError(f"{shown}: cannot read {show(node)} as its {name}: {error}") from error
    raise WindowError(f"{shown}: its {name} {show(node)} is no literal; {_USAGE}")


def spell_out(node: Any, key: WindowKey | None, scope: Scope) -> Any:
    """An expression in which `window`, the column of the groups, is the window itself; a stream's column of that name comes first."""
    if not any(column.parts[0].name.lower() == NAME for column in list_columns(node)):
        return node
    if scope.is_column(NAME) or NAME in map(str.lower, scope.specs):
        return node

    def put(part: Any) -> Any:
        if not isinstance(part, exp.Column) or part.parts[0].name.lower() != NAME:
            return None
        if key is None:
            raise UnknownNameError(
                f"{show(part)}: GROUP BY has no window(); add one, as in GROUP BY window(o.ts, '10 minutes')"
            )
        spelled = copy_tree(key.written)
        for field in part.parts[1:]:
            spelled = exp.Dot(this=spelled, expression=exp.to_identifier(field.name))
        return spelled

    return copy_tree(node, put)


def fold_window(part: Any, key: WindowKey, slot: Any, end: Any) -> Any | None:
    """A part of a resolved expression that is the window, or its start or end, as columns of the group; None: it is not."""
    if isinstance(part, exp.Dot) and is_window(part.this) and show(part.this) == show(key.node):
        field = part.expression.name.lower()
        if field not in ("start", "end"):
            raise UnknownNameError(f"{show(part)}: a window has start and end, and no {part.expression.name!r}")
        return slot if field == "start" else end
    if is_window(part) and show(part) == show(key.node):
        fields = [
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
            for name, value in (("start", slot), ("end", end))
        ]
        return exp.Struct(expressions=fields)
    return None


def name_of(node: Any) -> str:
    """The name that Spark gives the window in SELECT."""
    return NAME if is_window(node.unnest()) else ""


def refuse_endless(join: Join) -> None:
    """A group must be able to learn that no result comes."""
    window = join.group_window
    if window is None:
        return
    for z, late in join.delays_of(window.alias).items():
        if late >= UNBOUNDED:
            x, (mine, its) = window.alias, (join.spec(a).time for a in (window.alias, z))
            raise WindowError(
                f"GROUP BY {window}: its groups could never leave, since no window bounds how much later than {x!r} a tuple of {z!r} may come;"
                f" add WINDOW ({x}, {z}) = 10 MINUTES or a condition such as {z}.{its} <= {x}.{mine} + INTERVAL 10 MINUTES"
            )
