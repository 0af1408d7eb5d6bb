"""For each condition across streams: who evaluates it.

    comparison of codable sides       -> compiled residual (both sides computed by Spark, before the join)
    band of numbers or dates          -> compiled residual
    anything else that is portable    -> the library evaluator inside the unit: candidates are not shipped in vain
    the rest                          -> Spark's own `where` after the join: exact by construction

Portable means made of operations for which a property test shows that DuckDB answers as Spark does in ANSI mode; with
ANSI mode off, arithmetic that overflows goes on with other values, so nothing but plain comparisons stays inside.
Of conditions inside the unit it is kept where their partners can be, if that is known (`Hint`).

Invariant: every condition is placed exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from watersmeet.errors import UnsupportedError
from watersmeet.plan.model import Part, Plan
from watersmeet.plan.options import Given, Inside
from watersmeet.plan.residual import Clue, Compare, Difference, Hint, Near, Residual, Same
from watersmeet.plan.rules.value_band import SHIFTED
from watersmeet.plan.types import Types, exact, kind_of
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Band, Comparison, Condition, Equality, Predicate, Within
from watersmeet.query.stream import DECIMAL, INTEGERS

Clued = Equality | Comparison | Band | Within
"""Predicates that can be clues."""


def place_conditions(plan: Plan, given: Given) -> Plan:
    """Place every condition, in a tree those of every join."""
    if not plan.parts:
        residuals, inside, after = sort(plan.join.predicates, given)
        hints = find_hints(plan.join.predicates, given)
        return replace(plan, residuals=tuple(residuals), inside=tuple(inside), after=tuple(after), hints=hints)
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
        return Difference(left, right, *_inside_doubles(predicate), "double", str(predicate))
    decimal, kind = DECIMAL.fullmatch(common), kind_of(common)
    if kind == "decimal" or common in (*INTEGERS, "date"):
        lo, hi = _inside_codes(predicate, int(decimal[2]) if decimal else 0)
        return Difference(left, right, lo, hi, "decimal" if decimal else "integer", str(predicate))
    return None


def find_hints(predicates: Iterable[Predicate], given: Given) -> tuple[Hint, ...]:
    """The ways to partners by conditions that units evaluate; a condition of which one way cannot be coded has none."""
    hints = []
    for predicate in (p for p in predicates if isinstance(p, Condition) and given.keeps_inside(p.condition)):
        clues = [[_find_clue(p, given.types, given.inside) for p in way] for way in predicate.ways]
        ways = [tuple(clue for clue in way if clue is not None) for way in clues]
        if ways and all(ways):
            hints.append(Hint(str(predicate), tuple(ways)))
    return tuple(hints)


def _find_clue(predicate: Clued, types: Types, allowed: Inside) -> Clue | None:
    operands = find_operands(predicate, types)
    if operands is None:
        return None
    if isinstance(predicate, Comparison | Band):
        return _compile(predicate, types, allowed)
    left, right, *radius = [(expr.alias, f"{expr}::{type_}") for expr, type_ in operands]
    if radius:
        return Near(left, right, *radius)
    kind = kind_of(operands[0][1])
    return None if kind is None else Same(left, right, kind)


def find_operands(predicate: Clued, types: Types) -> list[tuple[Expr, str]] | None:
    """What tuples bring along for a clue, with the types that it is looked at in; None if there are none.

    These are columns, as they are or shifted by a constant: other parts may fail for values that the rest of the condition keeps from them.
    """
    every = (predicate.left, predicate.right, *((predicate.radius,) if isinstance(predicate, Within) else ()))
    if not all(SHIFTED.fullmatch(expr.spark_template) for expr in every):
        return None
    if isinstance(predicate, Within):
        return [(expr, _real_type(types.type_of(expr))) for expr in (predicate.left, predicate.right, predicate.radius)]
    common = types.common(types.type_of(predicate.left), types.type_of(predicate.right))
    return None if common is None else [(predicate.left, common), (predicate.right, common)]


def _real_type(own: str) -> str:
    """Whole numbers become doubles where they are looked at, all others before."""
    return own if own in (*INTEGERS, "double") else "double"


def _inside_doubles(band: Band) -> tuple[float | None, float | None]:
    """The first and the last double of a band."""
    lo, hi = (None if bound is None else float(bound) for bound in (band.lo, band.hi))
    if band.strict:
        lo = None if lo is None else math.nextafter(lo, math.inf)
        hi = None if hi is None else math.nextafter(hi, -math.inf)
    return lo, hi


def _inside_codes(band: Band, scale: int) -> tuple[int | None, int | None]:
    """The first and the last difference of a band, in units of the last digit.

    >>> from decimal import Decimal
    >>> from watersmeet.query.expr import binary, column
    >>> a, b = column("a", "d"), column("b", "d")
    >>> _inside_codes(Band(a, b, binary(a, "-", b), Decimal("-0.205"), Decimal("0.2"), strict=True), 2)
    (-20, 19)
    """
    lo, hi = (None if bound is None else Fraction(bound) * 10**scale for bound in (band.lo, band.hi))
    first = None if lo is None else math.floor(lo) + 1 if band.strict else math.ceil(lo)
    last = None if hi is None else math.ceil(hi) - 1 if band.strict else math.floor(hi)
    return first, last
