"""The narrowest bounded difference between two sides, as a way to route by ranges of values.

Invariant: whatever satisfies all residuals lies inside the band. NaN satisfies no difference with a finite upper bound, so a
float band must come from one condition with both bounds; bounds on integers may come from several.
"""

from __future__ import annotations

import math

from watersmeet.plan.model import Compare, Difference, Plan, Side
from watersmeet.routing.biclique import Cells


def value_band(plan: Plan, left: Side, right: Side) -> Cells | None:
    """Cells by the narrowest band; None if no difference has two finite bounds."""
    found: dict[tuple[str, str, bool], tuple[float, float]] = {}
    for residual in plan.residuals:
        oriented = _oriented(residual, left, right)
        if oriented is None:
            continue
        columns, lo, hi, integers = oriented
        if not integers and not (math.isfinite(lo) and math.isfinite(hi)):
            continue
        least, most = found.get((*columns, integers), (-math.inf, math.inf))
        found[*columns, integers] = max(lo, least), min(hi, most)
    bounded = {key: band for key, band in found.items() if math.isfinite(band[0]) and math.isfinite(band[1])}
    if not bounded:
        return None
    (first, second, integers), (lo, hi) = min(bounded.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    return Cells.of_band((first, second), lo, max(lo, hi), integers=integers)


def _oriented(
    residual: Compare | Difference, left: Side, right: Side
) -> tuple[tuple[str, str], float, float, bool] | None:
    """(columns, lo, hi, whether integers) for lo <= left - right <= hi."""
    (x, x_column), (y, y_column) = residual.left, residual.right
    if isinstance(residual, Compare):
        if residual.kind != "integer":
            return None
        lo, hi, integers = -math.inf, 0.0, True
    else:
        lo = -math.inf if residual.lo is None else float(residual.lo)
        hi = math.inf if residual.hi is None else float(residual.hi)
        integers = residual.integers
    if x in left.aliases and y in right.aliases:
        return (left.column(x, x_column), right.column(y, y_column)), lo, hi, integers
    if y in left.aliases and x in right.aliases:
        return (left.column(y, y_column), right.column(x, x_column)), -hi, -lo, integers
    return None
