"""Recognises conditions on event times that are compared as numbers: seconds since 1970, as casts give them.

    CAST(a.ts AS BIGINT) > CAST(b.ts AS BIGINT) + 1         n(t) = floor(t): less than a second below t
    CAST(a.ts AS DOUBLE) - CAST(b.ts AS DOUBLE) <= 0.5      n(t): t, as precisely as a double can say it

A comparison is brought to one side, n(y) - n(x) + c <= 0, where n(y) - n(x) is a whole number if both are floors:

    y - x  <=  -c + (how far y may be above n(y)) + (how far x may be below n(x))

A FLOAT has 24 bits, and is minutes away from the time: such a condition bounds nothing.

Invariant: whatever satisfies the condition satisfies its edges. The reverse does not hold, so the condition remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Literal

from sqlglot import exp

from watersmeet.query.window import Edge
from watersmeet.sql.windows.items import LONGEST_US

SECOND_US = 1_000_000
ABOVE_US = {"floor": SECOND_US - 1, "double": 100}
BELOW_US = {"floor": 0, "double": 100}
"""How far a time may be above or below its number."""
_KINDS: dict[str, Literal["floor", "double"]] = {"BIGINT": "floor", "DOUBLE": "double"}

Shifted = Callable[[Any], tuple[str, int] | None]
"""An event time and a span: the alias and the microseconds; None of anything else."""


@dataclass(frozen=True)
class Term:
    """The number of one alias' time, shifted by a span."""

    sign: int
    alias: str
    us: int
    kind: Literal["floor", "double"]


@dataclass(frozen=True)
class Sum:
    """Numbers of times, and a constant in seconds."""

    terms: tuple[Term, ...] = ()
    constant: Decimal = Decimal(0)

    def plus(self, other: Sum, sign: int) -> Sum:
        turned = tuple(Term(sign * t.sign, t.alias, t.us, t.kind) for t in other.terms)
        return Sum((*self.terms, *turned), self.constant + sign * other.constant)


def epoch_edges(node: Any, shifted: Shifted, text: str) -> tuple[tuple[Edge, ...], int]:
    """The edges that a comparison of two numbers means, and how much wider than it they may be; none if it bounds no two event times."""
    left, right = read_sum(node.this, shifted), read_sum(node.expression, shifted)
    if left is None or right is None:
        return (), 0
    if isinstance(node, exp.GT | exp.GTE):
        left, right = right, left
    found = [_edge(left.plus(right, -1), isinstance(node, exp.LT | exp.GT), text)]
    if isinstance(node, exp.EQ):
        found.append(_edge(right.plus(left, -1), False, text))
    kinds = {term.kind for term in (*left.terms, *right.terms)}
    return tuple(edge for edge in found if edge is not None), sum(ABOVE_US[k] + BELOW_US[k] for k in kinds)


def _edge(form: Sum, strict: bool, text: str) -> Edge | None:
    """`form <= 0`, or `form < 0`, as an edge."""
    by_sign = {term.sign: term for term in form.terms}
    if len(form.terms) != 2 or set(by_sign) != {1, -1} or by_sign[1].alias == by_sign[-1].alias:
        return None
    young, old = by_sign[1], by_sign[-1]
    most_us = -form.constant * SECOND_US
    if young.kind == old.kind == "floor":
        whole = (-form.constant).to_integral_value(ROUND_FLOOR)
        most_us = (whole - (strict and whole == -form.constant)) * SECOND_US
    hi_us = (
        int(most_us.to_integral_value(ROUND_CEILING)) + ABOVE_US[young.kind] + BELOW_US[old.kind] - young.us + old.us
    )
    return None if abs(hi_us) > LONGEST_US else Edge(old.alias, young.alias, hi_us, text)


def read_sum(node: Any, shifted: Shifted) -> Sum | None:
    """The sum that a number is, or None."""
    if isinstance(node, exp.Paren):
        return read_sum(node.this, shifted)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Sum(constant=Decimal(node.name))
    if isinstance(node, exp.Neg):
        inner = read_sum(node.this, shifted)
        return None if inner is None else Sum().plus(inner, -1)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = read_sum(node.this, shifted), read_sum(node.expression, shifted)
        return None if left is None or right is None else left.plus(right, 1 if isinstance(node, exp.Add) else -1)
    if isinstance(node, exp.Cast) and (kind := _KINDS.get(node.to.this.name)) is not None:
        time = shifted(node.this)
        return None if time is None else Sum((Term(1, *time, kind),))
    return None
