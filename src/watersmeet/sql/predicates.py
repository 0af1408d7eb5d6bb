"""Sorts the conjuncts of WHERE and ON: filters, edges of the window graph, and predicates by what a kernel can do.

no alias, one alias                        filter
event times of two aliases                 edges (and the condition itself if it is an Equality, or counted on the clock)
l = r, l < r, ...  one alias on each side  Equality, Comparison
abs(l - r) <= c, l - r BETWEEN c AND d     Band, of numbers; of dates in days: l - r <= INTERVAL 3 DAYS, datediff(l, r) <= 3
anything else                              Condition; of an OR of these, and of abs(l - r) <= x, it is known where partners can be
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.query.expr import Expr, binary
from watersmeet.query.predicate import Band, Comparator, Comparison, Condition, Equality, Predicate, Way, Within
from watersmeet.query.tree import Node
from watersmeet.query.window import Edge
from watersmeet.sql.evaluator.lower import type_of
from watersmeet.sql.evaluator.types import NUMERIC
from watersmeet.sql.expressions import show, to_expr
from watersmeet.sql.names import Scope, aliases_of
from watersmeet.sql.windows.time_conditions import span_us, time_condition

COMPARATORS: dict[Any, Comparator] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_SIGNS = {**COMPARATORS, exp.EQ: "="}
_MIRROR: dict[Any, Any] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
_TRUTHS = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.In,
    exp.Between,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.Like,
    exp.ILike,
    exp.RegexpLike,
)
"""What is true or false, whatever its operands are."""
_EXACT = 2**53
"""Whole numbers below this are exact as doubles, which differences of doubles are compared with."""
_DAY_US = 86_400_000_000


@dataclass
class Bound:
    """What the conditions of a query, or of a join, became."""

    filters: list[Expr] = field(default_factory=list)
    """Conditions on one alias, before the join."""
    predicates: list[Predicate] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    """All bounds that conditions on event times set."""
    widened: list[tuple[str, int]] = field(default_factory=list)
    """Conditions on the clock, and how much wider their edges are (microseconds)."""
    after: list[Expr] = field(default_factory=list)
    """Conditions on results, NULL-extended ones among them."""
    root: Node | None = None
    """The join tree, if there is anything but inner joins."""


def sort_conjuncts(nodes: Iterable[Any], scope: Scope) -> Bound:
    """Sorts resolved conditions."""
    result = Bound()
    for node in (conjunct for root in nodes for conjunct in conjuncts(root)):
        _sort_one(node, scope, result)
    return result


def conjuncts(node: Any) -> Iterator[Any]:
    """The operands of the outermost ANDs, if they are conditions; a BETWEEN across streams is two of them."""
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    elif (halves := _halves(node)) and _difference(node.this) is None:
        yield from halves
    elif not (isinstance(node, exp.Boolean) and node.this):
        _refuse_value(node)
        yield node


def _refuse_value(node: Any) -> None:
    kind = None if isinstance(node, _TRUTHS) else type_of(node)
    if kind is not None and kind.kind not in ("boolean", "null"):
        raise QueryError(f"the condition {show(node)} is {kind.kind}, not true or false: compare it with something")


def _halves(node: Any) -> list[Any]:
    """The two comparisons that a BETWEEN across streams stands for; none for anything else."""
    if not isinstance(node, exp.Between) or node.args.get("symmetric") or len(aliases_of(node)) < 2:
        return []
    sides = ((exp.GTE, "low"), (exp.LTE, "high"))
    return [op(this=node.this.copy(), expression=node.args[end].copy()) for op, end in sides]


def _sort_one(node: Any, scope: Scope, result: Bound) -> None:
    halves = _halves(node)
    if any(time_condition(half, scope) for half in halves):
        for half in halves:
            _sort_one(half, scope, result)
        return
    if len(aliases_of(node)) < 2:
        result.filters.append(to_expr(node))
        return
    timed = time_condition(node, scope)
    if timed is not None:
        written = show(node)
        result.edges += [replace(edge, text=written) for edge in timed.edges]
        result.widened += [(written, timed.widened_us)] if timed.widened_us else []
    predicate = _predicate(node)
    if timed is None or timed.widened_us or isinstance(predicate, Equality):
        result.predicates.append(predicate)


def _predicate(node: Any) -> Predicate:
    sides = _sides(node) if type(node) in _MIRROR else None
    if sides is None:
        return _band(node) or Condition(to_expr(node), tuple(_find_ways(node)))
    left, right = map(to_expr, sides)
    whole = _whole_condition(node, left, right)
    return (
        Equality(left, right, whole)
        if isinstance(node, exp.EQ)
        else Comparison(left, right, whole, COMPARATORS[type(node)])
    )


def _find_ways(node: Any) -> list[Way]:
    """Ways of which one holds wherever the condition does; none if nothing is known."""
    if not isinstance(node, exp.Or):
        return [(within,)] if (within := _within(node)) else []
    ways = [_find_way(part) for part in (node.this, node.expression)]
    return [way for found in ways for way in found] if all(ways) else []


def _find_way(node: Any) -> list[Way]:
    """The same of one operand of an OR, which may be an AND: its predicates together, or an OR inside it."""
    found = [_predicate(part) for part in conjuncts(node) if len(aliases_of(part)) > 1]
    plain = [p for p in found if not isinstance(p, Condition)]
    if plain:
        return [tuple(plain)]
    return next((list(p.ways) for p in found if isinstance(p, Condition) and p.ways), [])


def _within(node: Any) -> Within | None:
    """`abs(l - r) <= x` of numbers, x of one of the two aliases."""
    if type(node) not in COMPARATORS:
        return None
    form, radius = node.this.unnest(), node.expression.unnest()
    if type(node) in (exp.GT, exp.GTE):
        form, radius = radius, form
    pair = _difference(form.this) if isinstance(form, exp.Abs) else None
    if pair is None or not isinstance(form.this.unnest(), exp.Sub):
        return None
    kinds = [None if t is None else t.kind for t in map(type_of, (*pair, radius))]
    owner = aliases_of(radius)
    if len(owner) != 1 or not owner <= aliases_of(form) or not all(kind in NUMERIC for kind in kinds):
        return None
    left, right = map(to_expr, pair)
    return Within(left, right, to_expr(node), to_expr(radius))


def _whole_condition(node: Any, left: Expr, right: Expr) -> Expr:
    """A comparison as one expression; of two columns of one type, which are met by the thousand, it needs no rules."""
    kinds = {side.unnest().meta.get("spark_type") for side in (node.this, node.expression)}
    plain = left.is_column and right.is_column and len(kinds) == 1
    return binary(left, _SIGNS[type(node)], right) if plain else to_expr(node)


def _sides(node: Any) -> tuple[Any, Any] | None:
    """Both operands, if each has exactly one alias and they differ."""
    left, right = aliases_of(node.this), aliases_of(node.expression)
    return (node.this.unnest(), node.expression.unnest()) if len(left) == len(right) == 1 and left != right else None


def _difference(node: Any) -> tuple[Any, Any] | None:
    """`l - r` or `datediff(l, r)`, one alias on each side, different ones."""
    node = node.unnest()
    if isinstance(node, exp.Sub):
        return _sides(node)
    sides = _sides(node) if isinstance(node, exp.DateDiff) and node.args.get("unit") is None else None
    if sides is None:
        return None
    left, right = (side.this if isinstance(side, exp.TsOrDsToDate) else side for side in sides)
    return left.unnest(), right.unnest()


def _band(node: Any) -> Band | None:
    """A bounded difference of numbers or dates."""
    found = _find_bounds(node)
    if found is None:
        return None
    (left, right), lo, hi, strict = found
    kinds = [None if t is None else t.kind for t in (type_of(left), type_of(right))]
    if kinds != ["date", "date"] and not all(kind in NUMERIC for kind in kinds):
        return None
    if "decimal" in kinds and any("e" in literal.name.lower() for literal in node.find_all(exp.Literal)):
        return None  # a double, as which Spark compares the difference
    return Band(to_expr(left), to_expr(right), to_expr(node), lo, hi, strict)


def _find_bounds(node: Any) -> tuple[tuple[Any, Any], Decimal | None, Decimal | None, bool] | None:
    """The difference, its bounds, and whether they are strict."""
    if isinstance(node, exp.Between):
        low, high = (_read_bound(node.this, node.args[end]) for end in ("low", "high"))
        pair = _difference(node.this)
        if pair is None or low is None or high is None or node.args.get("symmetric"):
            return None
        return pair, low, high, False
    if type(node) not in _MIRROR:
        return None
    kind, form, bound = type(node), node.this.unnest(), _read_bound(node.this, node.expression)
    if bound is None:
        kind, form, bound = _MIRROR[kind], node.expression.unnest(), _read_bound(node.expression, node.this)
    if bound is None:
        return None
    strict = kind in (exp.LT, exp.GT)
    if isinstance(form, exp.Abs):
        pair = _difference(form.this)
        return None if pair is None or kind not in (exp.LT, exp.LTE) else (pair, -bound, bound, strict)
    pair = _difference(form)
    if pair is None:
        return None
    lo = None if kind in (exp.LT, exp.LTE) else bound
    hi = None if kind in (exp.GT, exp.GTE) else bound
    return pair, lo, hi, strict


def _read_bound(form: Any, literal: Any) -> Decimal | None:
    """What a difference is compared with: a number, or the days of an interval if it is one of dates."""
    form = form.unnest()
    form = form.this.unnest() if isinstance(form, exp.Abs) else form
    kinds = [type_of(side) for side in (form.this, form.expression)] if isinstance(form, exp.Sub) else []
    if not any(kind is not None and kind.kind == "date" for kind in kinds):
        return number(literal)
    us = span_us(literal)
    return None if us is None else Decimal(us) / _DAY_US


def number(node: Any) -> Decimal | None:
    """A signed numeric literal, not too large for a double to be exact.

    >>> from sqlglot import parse_one
    >>> number(parse_one("-(2.5)")), number(parse_one("x"))
    (Decimal('-2.5'), None)
    """
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = number(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    value = Decimal(node.name)
    return value if abs(value) < _EXACT else None
