"""Evaluator rules for functions of strings and times, and for those that choose among values."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.sql.typed import Lower, Rule, Typed, call, cast, number, paren
from watersmeet.sql.types import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, SparkType, common_of

_TRUNCATED = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
_POINTS = ("date", "timestamp", "timestamp_ntz")


def _many(node: Any, lower: Lower) -> tuple[list[Typed], SparkType | None]:
    """All arguments, and the type in which they meet."""
    parts = ([node.this] if node.args.get("this") is not None else []) + list(node.expressions)
    operands = [lower(part) for part in parts]
    types = [operand.type for operand in operands if operand.type is not None]
    return operands, common_of(types) if len(types) == len(operands) else None


def _chosen(name: str) -> Rule:
    """coalesce, greatest, least: all arguments in one type."""

    def rule(node: Any, lower: Lower) -> Typed:
        operands, meet = _many(node, lower)
        return Typed(call(name, *(operand.node if meet is None else operand.cast(meet) for operand in operands)), meet)

    return rule


def _concat(node: Any, lower: Lower) -> Typed:
    """concat() is NULL if any argument is, as || is; other types become strings first."""
    operands = [lower(part) for part in node.expressions] if isinstance(node, exp.Concat) else [lower(node.this), lower(node.expression)]
    strings = [operand.node if operand.type == STRING else cast(operand.node, STRING) for operand in operands]
    joined = strings[0]
    for part in strings[1:]:
        joined = exp.DPipe(this=joined, expression=part, safe=True)
    proven = all(operand.type == STRING for operand in operands)
    arrays = any(operand.type is None for operand in operands)
    if arrays and not proven:
        joined = operands[0].node
        for operand in operands[1:]:
            joined = exp.DPipe(this=joined, expression=operand.node, safe=True)
    return Typed(exp.Paren(this=joined), STRING if proven else None)


def _like(node: Any, lower: Lower) -> Typed:
    """Spark's escape character is the backslash unless another is given; DuckDB has none unless one is given."""
    value, pattern = lower(node.this), lower(node.expression)
    plain = isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
    like = type(node)(this=paren(value.node), expression=pattern.node)
    if plain or isinstance(node.parent, exp.Escape):
        return Typed(like, BOOLEAN if plain and value.type == STRING and isinstance(node, exp.Like) else None)
    return Typed(exp.Escape(this=like, expression=exp.Literal.string("\\")), None)


def _length(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(cast(call("length", inner.node), INT), INT if inner.type == STRING else None)


def _substring(node: Any, lower: Lower) -> Typed:
    """Spark counts from 1, takes 0 for 1, and counts negative starts from the end, then clips; a negative length is 0."""
    text, start = lower(node.this), lower(node.args["start"])
    size = lower(node.args["length"]) if node.args.get("length") is not None else None
    length, at = cast(call("length", text.node.copy()), BIGINT), cast(start.node, BIGINT)
    positive, negative = (op(this=at.copy(), expression=number(0)) for op in (exp.GT, exp.LT))
    begin = exp.Case(
        ifs=[exp.If(this=positive, true=exp.Sub(this=at.copy(), expression=number(1))), exp.If(this=negative, true=exp.Add(this=length, expression=at.copy()))], default=number(0)
    )
    first = call("greatest", begin, number(0))
    args = [text.node, exp.Add(this=first, expression=number(1))]
    if size is not None:
        end = call("greatest", exp.Add(this=begin.copy(), expression=cast(size.node, BIGINT)), number(0))
        args.append(call("greatest", exp.Sub(this=end, expression=first.copy()), number(0)))
    proven = text.type == STRING and start.kind == "int" and (size is None or size.kind == "int")
    cut = exp.Case(ifs=[exp.If(this=_any_null(start, size), true=exp.Null())], default=call("substring", *args))
    return Typed(cut, STRING if proven else None)


def _any_null(start: Typed, size: Typed | None) -> Any:
    """greatest() skips NULLs, so they are caught first."""
    test: Any = exp.Is(this=paren(start.node.copy()), expression=exp.Null())
    return test if size is None else exp.Or(this=test, expression=exp.Is(this=paren(size.node.copy()), expression=exp.Null()))


def _isnan(node: Any, lower: Lower) -> Typed:
    """NULL is not NaN: false, not NULL."""
    inner = lower(node.this)
    return Typed(call("coalesce", call("isnan", inner.node), exp.false()), BOOLEAN if inner.kind in ("float", "double") else None)


def _field(name: str) -> Rule:
    """year(), hour(), ...: Spark answers INT."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
        value = lower(inner)
        return Typed(cast(call(name, value.node), INT), INT if value.kind in _POINTS and (value.kind != "date" or name in ("year", "quarter", "month", "day")) else None)

    return rule


def _date_trunc(node: Any, lower: Lower) -> Typed:
    value, unit = lower(node.this), node.args.get("unit")
    name = unit.name.upper() if unit is not None else ""
    return Typed(call("date_trunc", exp.Literal.string(name.lower()), value.node), TIMESTAMP if value.type == TIMESTAMP and name in _TRUNCATED else None)


FUNCTIONS: dict[Any, Rule] = {
    exp.Coalesce: _chosen("coalesce"),
    exp.Greatest: _chosen("greatest"),
    exp.Least: _chosen("least"),
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Length: _length,
    exp.Substring: _substring,
    exp.IsNan: _isnan,
    exp.Year: _field("year"),
    exp.Quarter: _field("quarter"),
    exp.Month: _field("month"),
    exp.Day: _field("day"),
    exp.Hour: _field("hour"),
    exp.Minute: _field("minute"),
    exp.Second: _field("second"),
    exp.TimestampTrunc: _date_trunc,
}
