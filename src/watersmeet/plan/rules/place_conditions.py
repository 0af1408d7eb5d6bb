"""For each condition across streams: who evaluates it.

    comparison of codable sides       -> compiled residual (both sides computed by Spark, before the join)
    band over integers or doubles     -> compiled residual
    anything else that is portable    -> the library evaluator inside the unit: candidates are not shipped in vain
    the rest                          -> Spark's own `where` after the join: exact by construction

Portable means made of operations for which a property test shows that DuckDB answers as Spark does in ANSI mode; with
ANSI mode off, arithmetic that overflows goes on with other values, so nothing but plain comparisons stays inside.
Invariant: every condition is placed exactly once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from watersmeet.plan.encoding import exact, kind_of
from watersmeet.plan.model import Compare, Difference, Plan, Residual, Types
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Band, Comparison, Condition, as_expr

_BAND_INTEGERS = ("tinyint", "smallint", "int", "bigint")


Inside = Literal["everything", "portable", "nothing"]
"""What the evaluator in the unit may take: everything in a runtime without Spark, nothing with ANSI mode off."""


def place_conditions(plan: Plan, types: Types, allowed: Inside) -> Plan:
    """Place every condition."""
    residuals: list[Residual] = []
    inside: list[Expr] = []
    after: list[Expr] = []
    for predicate in plan.join.predicates:
        compiled = _compiled(predicate, types, allowed) if isinstance(predicate, Comparison | Band) else None
        if compiled is not None:
            residuals.append(compiled)
        elif isinstance(predicate, Comparison | Band | Condition):
            expr = as_expr(predicate)
            stays = allowed == "everything" or (allowed == "portable" and expr.portable)
            (inside if stays else after).append(expr)
    return replace(plan, residuals=tuple(residuals), inside=tuple(inside), after=tuple(after))


def _compiled(predicate: Comparison | Band, types: Types, allowed: Inside) -> Residual | None:
    if isinstance(predicate, Band) and allowed == "nothing":
        return None
    common = types.common(types.type_of(predicate.left), types.type_of(predicate.right))
    if common is None:
        return None
    left, right = (
        (predicate.left.alias, f"{predicate.left}::{common}"),
        (predicate.right.alias, f"{predicate.right}::{common}"),
    )
    if isinstance(predicate, Comparison):
        kind = kind_of(common)
        if kind is None or not exact(kind):
            return None
        if predicate.op in ("<", "<="):
            return Compare(left, predicate.op, right, kind, str(predicate))
        return Compare(right, "<" if predicate.op == ">" else "<=", left, kind, str(predicate))
    if common == "double":
        return Difference(left, right, predicate.lo, predicate.hi, False, str(predicate))
    if common in _BAND_INTEGERS:
        lo = None if predicate.lo is None else math.ceil(predicate.lo)
        hi = None if predicate.hi is None else math.floor(predicate.hi)
        return Difference(left, right, lo, hi, True, str(predicate))
    return None
