"""Evaluator rules for numbers: what DuckDB computes in another type, or answers with NULL where Spark raises.

x / y, x % y, x div y     an error if y = 0 and x is not NULL
x / y                     double, or decimal if one side is (not portable: DuckDB divides decimals as doubles)
+ - *                     in Spark's result type; both raise on overflow
CAST to a whole number    truncates (DuckDB rounds)
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from watersmeet.query.stream import INTEGERS, TIME_TYPES
from watersmeet.sql.copies import copy_tree
from watersmeet.sql.evaluator.functions import cast_seconds
from watersmeet.sql.evaluator.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    EXACT_DIGITS,
    INTERVAL,
    MAX_DIGITS,
    NULL,
    NUMERIC,
    STRING,
    TIMES,
    TIMESTAMP,
    Lower,
    Rule,
    SparkType,
    Typed,
    arithmetic,
    as_decimal,
    cast,
    cast_between,
    common,
    duckdb,
    interval,
    literal_type,
    paren,
    read_type,
)
from watersmeet.sql.windows.time_conditions import span_us

_SIGNS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_NARROW = 18
_DAY_US = 86_400_000_000


def _add_sub_mul(node: Any, lower: Lower) -> Typed:
    left, right, op = lower(node.this), lower(node.expression), type(node)
    if left.type is None or right.type is None:
        return Typed(op(this=interval(left), expression=interval(right)), None)
    if "interval" in (left.kind, right.kind) or left.kind in TIME_TYPES:
        return _shift(node, left, right)
    result = arithmetic(_SIGNS[op], left.type, right.type)
    if result is None:
        return Typed(op(this=left.node, expression=right.node), None)
    if result.kind == "decimal" and NULL not in (left.type, right.type):
        return _decimals(op, left, right, result)
    return Typed(op(this=left.cast(result), expression=right.cast(result)), result)


def _decimals(op: Any, left: Typed, right: Typed, result: SparkType) -> Typed:
    """Sums in the result's type. A product of two narrow decimals is made in 64 bits by DuckDB, unless one is widened first."""
    if op is not exp.Mul:
        return Typed(cast(op(this=left.cast(result), expression=right.cast(result)), result), result)
    assert left.type is not None
    assert right.type is not None
    a, b = as_decimal(left.type), as_decimal(right.type)
    wide = SparkType("decimal", max(a.digits, _NARROW + 1), a.scale) if b.digits <= _NARROW < result.digits else a
    return Typed(cast(op(this=left.cast(wide), expression=right.cast(b)), result), result)


def _shift(node: Any, left: Typed, right: Typed) -> Typed:
    """A point in time plus or minus a span; the difference of two points is a span."""
    op = type(node)
    if op is not exp.Mul and left.kind == right.kind == "interval":
        return Typed(op(this=left.node, expression=paren(right.node)), INTERVAL)
    if op is exp.Sub and left.kind == right.kind == "date":
        return Typed(duckdb(f"(y - x) * {_DAY_US}", y=left.node, x=right.node), INTERVAL)
    if op is exp.Sub and left.kind in TIME_TYPES and right.kind in TIME_TYPES:
        return _subtract_times(left, right)
    point, span = (left, node.expression) if left.kind in TIME_TYPES else (right, node.this)
    us = span_us(span) if op is exp.Add or (op is exp.Sub and point is left) else None
    if us is None or point.kind not in TIME_TYPES:
        return Typed(op(this=interval(left), expression=interval(right)), None)
    return _move(point, us if op is exp.Add else -us)


def _subtract_times(left: Typed, right: Typed) -> Typed:
    """The difference of two points is that of their local times."""
    if left.kind == right.kind == "timestamp_ntz":
        return Typed(duckdb("epoch_us(y) - epoch_us(x)", y=left.node, x=right.node), INTERVAL)
    return Typed(duckdb("wm_apart(y, x)", y=left.cast(TIMESTAMP), x=right.cast(TIMESTAMP)), INTERVAL)


def _move(point: Typed, us: int) -> Typed:
    """Whole days are added in local time, the rest of the span to the instant."""
    days = 0 if point.kind == "timestamp_ntz" else abs(us) // _DAY_US * (1 if us > 0 else -1)
    text = f"wm_shift(t, {days}, {us - days * _DAY_US})" if days else f"t + to_microseconds({us})"
    return Typed(duckdb(text, t=point.node), point.type)


def _neg(node: Any, lower: Lower) -> Typed:
    inner = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        kind = literal_type(f"-{inner.name}")
        if kind is not None:
            return Typed(cast(exp.Paren(this=exp.Neg(this=copy_tree(inner))), kind), kind)
    typed = lower(node.this)
    negated = exp.Neg(this=paren(typed.node))
    if typed.kind == "interval":
        return Typed(negated, INTERVAL)
    return (
        Typed(cast(negated, typed.type), typed.type)
        if typed.type is not None and typed.kind in NUMERIC
        else Typed(negated, None)
    )


def _divide(text: str, n: Any, d: Any, what: str = "DIVIDE_BY_ZERO: division by zero") -> Any:
    """A quotient of n by d, as text; Spark raises on a zero divisor unless the dividend is NULL, where DuckDB answers NULL."""
    return duckdb(f"CASE WHEN d = 0 AND NOT n IS NULL THEN error('{what}') ELSE {text} END", n=n, d=d)


def _div(node: Any, lower: Lower) -> Typed:
    left, right = lower(node.this), lower(node.expression)
    n, d = (operand.node if operand.type == DOUBLE else cast(operand.node, DOUBLE) for operand in (left, right))
    quotient = _divide("(n / nullif(d, 0))", n, d)
    known = all(operand.type is not None and operand.kind in NUMERIC for operand in (left, right))
    if known and "decimal" in (left.kind, right.kind) and not {"float", "double"} & {left.kind, right.kind}:
        return Typed(_as_decimal_quotient(quotient, left, right), None)
    exact = all(
        operand.kind != "decimal" or (operand.type is not None and operand.type.digits <= EXACT_DIGITS)
        for operand in (left, right)
    )
    return Typed(quotient, DOUBLE if known and exact else None)


def _as_decimal_quotient(quotient: Any, left: Typed, right: Typed) -> Any:
    """Spark's decimal of the quotient: at least six digits after the point."""
    assert left.type is not None
    assert right.type is not None
    a, b = as_decimal(left.type), as_decimal(right.type)
    scale = max(6, a.scale + b.digits + 1)
    digits = a.digits - a.scale + b.scale + scale
    if digits > MAX_DIGITS:
        scale, digits = max(MAX_DIGITS - (digits - scale), min(scale, 6)), MAX_DIGITS
    return cast(quotient, SparkType("decimal", digits, scale))


def _mod(node: Any, lower: Lower) -> Typed:
    left, right = lower(node.this), lower(node.expression)
    meet = common(left.type, right.type) if left.type is not None and right.type is not None else None
    proven = meet is not None and (meet.kind in INTEGERS or meet.kind in ("float", "double"))
    n, d = (operand.cast(meet) if meet is not None else operand.node for operand in (left, right))
    text = "n % d"
    if meet is not None and meet.kind in INTEGERS:  # the smallest number % -1 is an overflow to DuckDB, 0 to Spark
        text = f"CASE WHEN d = -1 THEN n % CAST(1 AS {meet.duckdb}) ELSE n % d END"
    return Typed(_divide(text, n, d, "REMAINDER_BY_ZERO: remainder by zero"), meet if proven else None)


def _int_div(node: Any, lower: Lower) -> Typed:
    left, right = lower(node.this), lower(node.expression)
    quotient = _divide("CAST(n // d AS BIGINT)", cast(left.node, BIGINT), cast(right.node, BIGINT))
    return Typed(quotient, BIGINT if {left.kind, right.kind} <= {*INTEGERS} else None)


def _abs(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(exp.Abs(this=inner.node), inner.type if inner.kind in NUMERIC else None)


def _cast(node: Any, lower: Lower) -> Typed:
    """CAST and `::`; both raise on failure, unlike TRY_CAST."""
    inner, to = lower(node.this), read_type(node.to.sql("spark"))
    if node.args.get("safe") or to is None:
        made = (exp.TryCast if node.args.get("safe") else exp.Cast)(this=inner.node, to=copy_tree(node.to))
        return Typed(made, None)
    if inner.type == TIMESTAMP and (to.kind in INTEGERS or to.kind in ("float", "double")):
        return cast_seconds(inner, to)
    value = inner.node
    if to.kind in INTEGERS and inner.kind in ("float", "double", "decimal"):
        value = duckdb("trunc(x)", x=value)
    if to == TIMESTAMP and inner.kind == "string":  # a text without an offset is a local time
        made = cast_between(value, "timestamp_ntz" if _is_local(node.this) else "", to)
    else:
        made = cast_between(value, inner.kind, to)
    return Typed(made, to if _cast_is_proven(node.this, inner.type, to) else None)


def _cast_is_proven(source: Any, of: SparkType | None, to: SparkType) -> bool:
    if of is None:
        return False
    if of in (to, NULL):
        return True
    if of.kind in INTEGERS:
        return to.kind in (*INTEGERS, "float", "double", "decimal", "string")
    if of.kind in ("float", "double"):
        return to.kind in (*INTEGERS, "double")
    if of.kind == "decimal":
        return to.kind in INTEGERS or (to.kind == "double" and of.digits <= EXACT_DIGITS)
    if of == BOOLEAN:
        return to.kind in (*INTEGERS, "string")
    if of.kind in TIMES:
        return to.kind in TIMES
    return (
        of == STRING
        and to.kind in ("date", "timestamp", "timestamp_ntz")
        and isinstance(source, exp.Literal)
        and _is_plain_time(source.name, to)
    )


def _is_local(source: Any) -> bool:
    return isinstance(source, exp.Literal) and _is_plain_time(source.name, TIMESTAMP)


def _is_plain_time(text: str, to: SparkType) -> bool:
    """`2024-01-31` or `2024-01-31 10:00:00.5`, read alike by both."""
    day = r"\d{4}-\d\d-\d\d"
    return re.fullmatch(day if to.kind == "date" else rf"{day}( \d\d:\d\d:\d\d(\.\d{{1,6}})?)?", text) is not None


ARITHMETIC: dict[Any, Rule] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _add_sub_mul),
    exp.Neg: _neg,
    exp.Div: _div,
    exp.Mod: _mod,
    exp.IntDiv: _int_div,
    exp.Abs: _abs,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
