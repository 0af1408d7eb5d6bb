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
from collections.abc import Iterable
from dataclasses import replace

from watersmeet.errors import UnsupportedError
from watersmeet.plan.model import Compare, Difference, Part, Plan, Residual
from watersmeet.plan.options import Given, Inside
from watersmeet.plan.types import Types, exact, kind_of
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Band, Comparison, Condition, Predicate
from watersmeet.query.stream import INTEGERS


def place_conditions(plan: Plan, given: Given) -> Plan:
    """Place every condition, in a tree those of every join."""
    if not plan.parts:
        residuals, inside, after = sort(plan.join.predicates, given)
        return replace(plan, residuals=tuple(residuals), inside=tuple(inside), after=tuple(after))
    parts: list[Part] = []
    every: tuple[list[Residual], list[Expr]] = ([], [])
    for part in plan.parts:
        residuals, inside, after = sort(part.predicates, given)
        if after:
            raise UnsupportedError(
                f"the condition {after[0]} decides which tuples have a partner, so it is evaluated inside the join, and only Spark can evaluate it; compute a column of it before the join"
            )
        first = [len(found) for found in every]
        every[0].extend(residuals)
        every[1].extend(inside)
        parts.append(replace(part, residuals=(first[0], len(every[0])), inside=(first[1], len(every[1]))))
    results = [e for e in plan.join.after if given.keeps_inside(e)]
    others = tuple(e for e in plan.join.after if e not in results)
    return replace(
        plan, parts=tuple(parts), residuals=tuple(every[0]), inside=tuple(every[1]), final=tuple(results), after=others
    )


def sort(predicates: Iterable[Predicate], given: Given) -> tuple[list[Residual], list[Expr], list[Expr]]:
    """Residuals, conditions that units evaluate, and those that are left to Spark."""
    types, allowed = given.types, given.inside
    residuals: list[Residual] = []
    inside: list[Expr] = []
    after: list[Expr] = []
    for predicate in predicates:
        compiled = _compile(predicate, types, allowed) if isinstance(predicate, Comparison | Band) else None
        if compiled is not None:
            residuals.append(compiled)
        elif isinstance(predicate, Comparison | Band | Condition):
            expr = predicate.condition
            (inside if given.keeps_inside(expr) else after).append(expr)
    return residuals, inside, after


def _compile(predicate: Comparison | Band, types: Types, allowed: Inside) -> Residual | None:
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
    if common in INTEGERS:
        lo = None if predicate.lo is None else math.ceil(predicate.lo)
        hi = None if predicate.hi is None else math.floor(predicate.hi)
        return Difference(left, right, lo, hi, True, str(predicate))
    return None
