"""Evaluator rules for functions of strings and times, and for those that choose among values."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.sql.evaluator.types import (
    BIGINT,
    BOOLEAN,
    INT,
    NULL,
    STRING,
    TIMES,
    TIMESTAMP,
    Lower,
    Rule,
    SparkType,
    Typed,
    call,
    cast,
    common_of,
    number,
    paren,
)
from watersmeet.sql.evaluator.unix_times import NAMED_UNIX_TIMES, UNIX_TIMES

_OF_THE_CLOCK, _OF_THE_CALENDAR = {"DAY", "HOUR", "MINUTE"}, {"YEAR", "QUARTER", "MONTH", "WEEK"}
_TRUNCATED = _OF_THE_CLOCK | _OF_THE_CALENDAR | {"SECOND", "MILLISECOND", "MICROSECOND"}


def _many(node: Any, lower: Lower) -> tuple[list[Typed], SparkType | None]:
    """All arguments, and the type in which they meet."""
    parts = ([node.this] if node.args.get("this") is not None else []) + list(node.expressions)
    operands = [lower(part) for part in parts]
    types = [operand.type for operand in operands if operand.type is not None]
    return operands, common_of(types) if len(types) == len(operands) else None


def _choose(name: str) -> Rule:
    """coalesce, greatest, least: all arguments in one type."""

    def rule(node: Any, lower: Lower) -> Typed:
        operands, meet = _many(node, lower)
        return Typed(call(name, *(operand.node if meet is None else operand.cast(meet) for operand in operands)), meet)

    return rule


def _concat(node: Any, lower: Lower) -> Typed:
    """concat() is NULL if any argument is, as || is; known types become strings first, unknown ones may be arrays."""
    operands = (
        [lower(part) for part in node.expressions]
        if isinstance(node, exp.Concat)
        else [lower(node.this), lower(node.expression)]
    )
    strings = [operand.node if operand.type in (STRING, None) else cast(operand.node, STRING) for operand in operands]
    joined = strings[0]
    for part in strings[1:]:
        joined = exp.DPipe(this=joined, expression=part, safe=True)
    return Typed(
        exp.Paren(this=joined), STRING if all(operand.type in (STRING, NULL) for operand in operands) else None
    )


def _like(node: Any, lower: Lower) -> Typed:
    """Spark's escape character is the backslash unless another is given; DuckDB has none unless one is given."""
    value, pattern = lower(node.this), lower(node.expression)
    plain = isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
    like = node.copy()  # NOT LIKE is a flag on the node
    like.set("this", paren(value.node))
    like.set("expression", pattern.node)
    if plain or isinstance(node.parent, exp.Escape):
        return Typed(like, BOOLEAN if plain and value.type == STRING and isinstance(node, exp.Like) else None)
    return Typed(exp.Escape(this=like, expression=exp.Literal.string("\\")), None)


def _length(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(cast(call("length", inner.node), INT), INT if inner.type == STRING else None)


def _substring(node: Any, lower: Lower) -> Typed:
    """Spark counts from 1, takes 0 for 1, and counts negative starts from the end, then clips; a negative length is 0."""
    text, start = lower(node.this), lower(node.args["start"])
    size = lower(node.args["length"]) if node.args.get("length") is not None else Typed(number(2**31 - 1), INT)
    length, at = cast(call("length", text.node.copy()), BIGINT), cast(start.node, BIGINT)
    positive, negative = (op(this=at.copy(), expression=number(0)) for op in (exp.GT, exp.LT))
    begin = exp.Case(
        ifs=[
            exp.If(this=positive, true=exp.Sub(this=at.copy(), expression=number(1))),
            exp.If(this=negative, true=exp.Add(this=length, expression=at.copy())),
        ],
        default=number(0),
    )
    first = call("greatest", begin, number(0))
    end = call("greatest", exp.Add(this=begin.copy(), expression=cast(size.node, BIGINT)), number(0))
    width = call("greatest", exp.Sub(this=end, expression=first.copy()), number(0))
    proven = text.type == STRING and start.kind == "int" and size.kind == "int"
    cut = exp.Case(
        ifs=[exp.If(this=_any_null(start, size), true=exp.Null())],
        default=call("substring", text.node, exp.Add(this=first, expression=number(1)), width),
    )
    return Typed(cut, STRING if proven else None)


def _any_null(*operands: Typed) -> Any:
    """greatest() skips NULLs, so they are caught first."""
    first, second = (exp.Is(this=paren(operand.node.copy()), expression=exp.Null()) for operand in operands)
    return exp.Or(this=first, expression=second)


def _isnan(node: Any, lower: Lower) -> Typed:
    """NULL is not NaN: false, not NULL."""
    inner = lower(node.this)
    return Typed(
        call("coalesce", call("isnan", inner.node), exp.false()), BOOLEAN if inner.kind in ("float", "double") else None
    )


def _field(name: str) -> Rule:
    """year(), hour(), ...: Spark answers INT."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
        value = lower(inner)
        return Typed(
            cast(call(name, value.node), INT),
            INT
            if value.kind in TIMES and (value.kind != "date" or name in ("year", "quarter", "month", "day"))
            else None,
        )

    return rule


def _date_trunc(node: Any, lower: Lower) -> Typed:
    value, unit = lower(node.this), node.args.get("unit")
    name = unit.name.upper() if unit is not None else ""
    by = "wm_trunc" if name in _OF_THE_CLOCK else "wm_start" if name in _OF_THE_CALENDAR else "date_trunc"
    return Typed(
        call(by if value.type == TIMESTAMP else "date_trunc", exp.Literal.string(name.lower()), value.node),
        TIMESTAMP if value.type == TIMESTAMP and name in _TRUNCATED else None,
    )


def _is_null(node: Any, lower: Lower) -> Typed:
    inner = lower(node.expressions[0])
    return Typed(
        exp.Paren(this=exp.Is(this=paren(inner.node), expression=exp.Null())),
        BOOLEAN if inner.type is not None else None,
    )


def _is_not_null(node: Any, lower: Lower) -> Typed:
    test = _is_null(node, lower)
    return Typed(exp.Not(this=test.node), test.type)


def _pmod(node: Any, lower: Lower) -> Typed:
    """The remainder that is not negative (for a positive divisor): ((a % n) + n) % n where a % n < 0."""
    a, n = node.expressions
    rest = lower(exp.Mod(this=exp.Paren(this=a.copy()), expression=exp.Paren(this=n.copy())))
    again = lower(
        exp.Mod(
            this=exp.Paren(
                this=exp.Add(
                    this=exp.Paren(this=exp.Mod(this=exp.Paren(this=a.copy()), expression=exp.Paren(this=n.copy()))),
                    expression=exp.Paren(this=n.copy()),
                )
            ),
            expression=exp.Paren(this=n.copy()),
        )
    )
    return Typed(
        exp.Case(
            ifs=[exp.If(this=exp.LT(this=rest.node, expression=number(0)), true=again.node)], default=rest.node.copy()
        ),
        None,
    )


def _day_of_week(first: int) -> Rule:
    """dayofweek(): Sunday is 1; weekday(): Monday is 0. DuckDB's isodow: Monday is 1, Sunday 7."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        value = lower(inner.this if isinstance(inner, exp.TsOrDsToDate) else inner)
        shifted = exp.Mod(
            this=exp.Paren(this=exp.Add(this=call("isodow", value.node), expression=number(6 * (1 - first)))),
            expression=number(7),
        )
        return Typed(
            cast(exp.Add(this=exp.Paren(this=shifted), expression=number(first)), INT),
            INT if value.kind in TIMES else None,
        )

    return rule


_NAMED: dict[str, Rule] = {
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "pmod": _pmod,
    "weekday": _day_of_week(0),
    **NAMED_UNIX_TIMES,
}


def _anonymous(node: Any, lower: Lower) -> Typed:
    """Functions that sqlglot does not know by a class of their own."""
    rule = _NAMED.get(str(node.this).lower())
    if rule is not None and node.expressions:
        return rule(node, lower)
    return Typed(call(str(node.this), *(lower(argument).node for argument in node.expressions)), None)


FUNCTIONS: dict[Any, Rule] = {
    exp.Anonymous: _anonymous,
    exp.DayOfWeek: _day_of_week(1),
    exp.Coalesce: _choose("coalesce"),
    exp.Greatest: _choose("greatest"),
    exp.Least: _choose("least"),
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
    **UNIX_TIMES,
}
