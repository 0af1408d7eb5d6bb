"""The narrowest bounded difference between two sides, as a way to route by ranges of values.

    abs(a.v - b.v) <= 1                          one condition with two bounds
    a.v BETWEEN b.v - 1 AND b.v + 1              two comparisons, each with one bound: v and v shifted
    a.t <= b.t + INTERVAL 5 MINUTES              the same; a day is no fixed span

Bounds are in units of codes: ones, days, microseconds, the last digit of decimals.

Invariant: whatever satisfies all residuals lies inside the band. NaN satisfies no difference with a finite upper bound, so a band of differences
of doubles must come from one condition with both bounds; bounds on codes that are whole numbers may come from several. To comparisons of doubles NaN
is the largest value and equal to itself: such bands are `ordered`. Sums of doubles are rounded, so their bands are a little wider than written.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from watersmeet.plan.model import InputPlan, Plan, Side
from watersmeet.plan.residual import Compare, Difference
from watersmeet.query.duration import unit_us
from watersmeet.query.stream import DECIMAL
from watersmeet.routing.biclique import SAFETY, Cells

SHIFTED = re.compile(r"\{0\}(?: ([+-]) (?:(\d{1,15}(?:\.\d+)?)|INTERVAL '(\d{1,9})' (SECOND|MINUTE|HOUR)S?))?")
"""A column, or one plus or minus a number or a fixed span."""


@dataclass(frozen=True)
class _Operand:
    """A column of a side: what it is a shift of, and by how much."""

    column: str
    base: str
    shift: float = 0


@dataclass(frozen=True)
class _Bound:
    """lo <= left - right <= hi over columns of the two sides."""

    left: _Operand
    right: _Operand
    lo: float
    hi: float
    whole: bool
    """Whether values are whole numbers of units."""
    ordered: bool = False
    """Whether NaN is the largest value."""
    rounded: float = 0.0
    """The largest number that was added to doubles."""

    @property
    def shift(self) -> float:
        return self.left.shift - self.right.shift

    @property
    def is_useful(self) -> bool:
        """Whether it may be combined with others."""
        return self.whole or self.ordered or _is_finite(self)


def value_band(plan: Plan, left: Side, right: Side) -> Cells | None:
    """Cells by the narrowest band; None if no difference has two finite bounds."""
    found: dict[tuple[str, str, bool, bool], _Bound] = {}
    for residual in plan.residuals:
        bound = _orient(plan, residual, left, right)
        if bound is None or not bound.is_useful:
            continue
        key = bound.left.base, bound.right.base, bound.whole, bound.ordered
        found[key] = _intersect(found[key], bound) if key in found else bound
    bounded = [b for b in found.values() if _is_finite(b)]
    if not bounded:
        return None
    best = min(bounded, key=lambda b: (b.hi - b.lo, b.left.column, b.right.column))
    columns, slack = (best.left.column, best.right.column), SAFETY * best.rounded
    lo, hi = best.lo - slack, max(best.lo, best.hi) + slack
    return Cells.of_band(columns, lo, hi, integers=best.whole, ordered=best.ordered)


def _is_finite(bound: _Bound) -> bool:
    return math.isfinite(bound.lo) and math.isfinite(bound.hi)


def _intersect(first: _Bound, second: _Bound) -> _Bound:
    """Both bounds, over the columns of the first."""
    by = first.shift - second.shift
    lo, hi = max(first.lo, second.lo + by), min(first.hi, second.hi + by)
    return replace(first, lo=lo, hi=hi, rounded=max(first.rounded, second.rounded))


def _orient(plan: Plan, residual: Compare | Difference, left: Side, right: Side) -> _Bound | None:
    """A residual as bounds on left - right."""
    (x, x_column), (y, y_column) = residual.left, residual.right
    ordered = isinstance(residual, Compare) and residual.kind == "float"
    if isinstance(residual, Compare):
        if residual.kind not in ("integer", "decimal", "float"):
            return None
        lo, hi, whole = -math.inf, 0.0, not ordered
    else:
        lo = -math.inf if residual.lo is None else float(residual.lo)
        hi = math.inf if residual.hi is None else float(residual.hi)
        whole = residual.is_exact
    if y in left.aliases and x in right.aliases:
        (x, x_column), (y, y_column), lo, hi = residual.right, residual.left, -hi, -lo
    elif not (x in left.aliases and y in right.aliases):
        return None
    mine, other = _operand(plan, left, x, x_column), _operand(plan, right, y, y_column)
    return _Bound(mine, other, lo, hi, whole, ordered, 0.0 if whole else abs(mine.shift) + abs(other.shift))


def _operand(plan: Plan, side: Side, alias: str, name: str) -> _Operand:
    column, source = side.column(alias, name), plan.by_alias[alias]
    base, shift = _base(source, name)
    return _Operand(column, f"{alias}.{base}", shift)


def _base(source: InputPlan, name: str) -> tuple[str, float]:
    """`v + 3` is v, shifted by 3; in units of codes."""
    found = next((c for c in source.columns if c.name == name), None)
    if found is None:
        return name, 0
    shifted = SHIFTED.fullmatch(found.expr.spark_template)
    if shifted is None:
        return f"{found.expr.text}::{found.type}", 0
    sign, number, span, unit = shifted.groups()
    decimal = DECIMAL.fullmatch(found.type)
    shift = Fraction(number or 0) * 10 ** int(decimal[2]) if decimal else Fraction(number or 0)
    if span is not None:
        shift = Fraction(int(span) * unit_us(unit))
    is_double = found.type == "double" and not found.cast  # sums of floats are rounded to seven digits
    no_room = shift.denominator > 1 or found.type in ("float", "double")
    if shift and no_room and not is_double:
        return f"{found.expr.text}::{found.type}", 0
    signed = -shift if sign == "-" else shift
    return f"{found.expr.columns[0].column}::{found.type}", float(signed) if found.type == "double" else int(signed)
