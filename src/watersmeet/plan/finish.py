"""How DISTINCT and GROUP BY are done: the second stage of a plan, after the units that join.

    DISTINCT   units project their results and drop repeats  --by hash of the row-->    deduplicators
    GROUP BY   units make local views of their results       --by hash of the group-->  mergers

A local view has one row per group: the group's keys g0, g1, ... and the partials v0, v1, ... that all its aggregates can
be made of. Partials of two views of a group merge into partials of their union, in any order:

    count   count, merged by sum          min, max   by themselves
    sum     sum, merged by sum            avg        sum and count

Groups that end have more of them (`operators.finish.partials`): sets, lists, the first and the last, squares.

Invariant: merge(view(A), view(B)) = view(A + B), up to the order in which doubles are added.
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.4.1 (deduplicator) and 3.4.2 (two phases, updates batched by micro-batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watersmeet.query.duration import show_us
from watersmeet.query.join import Join
from watersmeet.query.select import Aggregate
from watersmeet.query.window import UNBOUNDED, horizon

PartialFunction = Literal["count", "sum", "min", "max", "m2", "set", "list", "first", "last"]


@dataclass(frozen=True)
class Partial:
    """A column of a local view: a function of a projected column, in a type; count(*) has no column. What is first or last is so by another one."""

    function: PartialFunction
    argument: str | None
    type: str
    by: str | None = None
    by_type: str = ""
    needs: Literal["", "value", "by"] = ""
    """Rows in which this is NULL are left out."""

    @property
    def merge(self) -> PartialFunction:
        """The function that merges partials of one group."""
        return "sum" if self.function == "count" else self.function


@dataclass(frozen=True)
class Value:
    """An aggregate as it is made of merged partials, by their names."""

    aggregate: Aggregate
    type: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class FinishPlan:
    """The second stage of a plan.

    `columns` are the types of projected rows, p0, p1, ... `inside` says whether units project their results themselves;
    otherwise Spark does, after the join, and whole results leave the units. Partials and values are empty for DISTINCT.
    """

    columns: tuple[str, ...]
    inside: bool
    units: int
    """Deduplicators or mergers, where they are units of ours."""
    why_outside: str = ""
    partials: tuple[Partial, ...] = ()
    values: tuple[Value, ...] = ()

    @property
    def is_mergeable(self) -> bool:
        """Whether Spark's own functions make the aggregates of views, exactly as they would of rows."""
        online = ("count", "sum", "min", "max", "avg")
        means = [v.type for v in self.values if v.aggregate.function == "avg"]
        return all(v.aggregate.function in online for v in self.values) and set(means) <= {"double"}

    def keys(self, join: Join) -> tuple[str, ...]:
        """The types of the columns that tell results apart: of a group, or of the whole row."""
        return self.columns if join.grouping is None else self.columns[: join.grouping.keys]

    def description(self, join: Join) -> dict[str, Any]:
        """What stored state depends on, as JSON."""
        return {
            "kind": "group" if join.grouping is not None else "distinct",
            "columns": [[o.expr.text, t] for o, t in zip(join.select, self.columns, strict=True)],
            "partials": [
                [p.function, p.argument, p.type, *([p.by, p.by_type, p.needs] if p.by else [])] for p in self.partials
            ],
            "keys": len(self.keys(join)),
            "units": self.units,
            **({} if (w := join.group_window) is None else {"window": [w.alias, w.size_us, w.slide_us, w.start_us]}),
        }


def group_bounds(join: Join) -> list[tuple[str, int]]:
    """(stream, hi) of all that results in a group with a window wait for: no later one has its event time before the clock's cut of these bounds.

    Streams with a ROWS window hold all others back.
    """
    assert join.group_window is not None
    stream_of = {i.alias: i.stream for i in join.inputs}
    sequenced = [i.stream for i in join.inputs if i.rows is not None]
    late = join.delays_of(join.group_window.alias)
    return list(dict.fromkeys((stream, hi) for z, hi in late.items() for stream in (stream_of[z], *sequenced)))


def bucket_us(join: Join) -> int | None:
    """The width of the buckets of a query's DISTINCT."""
    return bucket_of(join.windows.bounds)


def bucket_of(bounds: Sequence[Sequence[int]]) -> int | None:
    """The width of DISTINCT's buckets of event time: the horizon. Zero: every instant is one; None: all time is.

    A bound can be negative (`b.ts >= a.ts + INTERVAL 5 SECONDS` and nothing else): then, too, an instant is a bucket.
    """
    largest = horizon(bounds)
    return None if largest >= UNBOUNDED else max(largest, 0)


def how_often(width: int | None) -> str:
    """How often a DISTINCT row leaves, in words.

    >>> how_often(None), how_often(10_000_000)
    ('once: full history', "once per 10 s of its youngest member's event time")
    """
    if width is None:
        return "once: full history"
    if width == 0:
        return "once for every instant of its youngest member"
    return f"once per {show_us(width)} of its youngest member's event time"
