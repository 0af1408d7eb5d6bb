"""Which part of a session a query's results depend on: so a checkpoint is refused only where a change would matter.

Invariant: what is said not to matter does not; an expression that is not known in and out counts as one that depends.
"""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.query.expr import Expr
from watersmeet.query.join import Join
from watersmeet.query.predicate import Comparison, Equality, as_expr
from watersmeet.query.stream import TIME_TYPES

_TIMES = ("date", *TIME_TYPES)
_MAKES_TIMES = ("TIMESTAMP", "DATE")


def depends_on_zone(join: Join) -> bool:
    """Whether results can differ in another time zone."""
    return any(not expr.portable or _has_times(join, expr) for expr in _computed(join))


def depends_on_ansi(join: Join) -> bool:
    """Whether results can differ in the other mode: anything is computed, or a value is cast to be compared."""
    return any(_computed(join))


def _computed(join: Join) -> Iterator[Expr]:
    """Expressions that are more than a column, and comparisons that are more than two columns of one type."""
    for predicate in join.predicates:
        if not isinstance(predicate, Equality | Comparison):
            yield as_expr(predicate)
        elif len({_type(join, side) for side in (predicate.left, predicate.right)}) > 1:
            yield predicate.condition
    for expr in (*join.filters, *(o.expr for o in join.select), *(o.expr for o in join.results)):
        if expr.spark_template != "{0}":
            yield expr


def _type(join: Join, side: Expr) -> str:
    """The type of a plain column; a text of its own for anything else."""
    if side.spark_template != "{0}":
        return side.text
    (ref,) = side.columns
    return join.spec(ref.alias).schema[ref.column]


def _has_times(join: Join, expr: Expr) -> bool:
    """Whether a time stands in an expression; a column of a group may be one."""
    if any(word in expr.duckdb_template.upper() for word in _MAKES_TIMES):
        return True
    known = set(join.aliases)
    return any(ref.alias not in known or join.spec(ref.alias).schema[ref.column] in _TIMES for ref in expr.columns)
