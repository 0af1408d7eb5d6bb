"""Evaluator rules for functions of strings and times, and for those that choose among values.

Times as whole numbers since 1970, and back:

    unix_micros, unix_millis, unix_seconds, CAST(.. AS BIGINT)    round down, also before 1970 (sqlglot's translation rounds to the nearest)
    unix_timestamp                                                rounds towards zero
    CAST(.. AS DOUBLE or FLOAT)                                   with fractions
    timestamp_micros, timestamp_millis, timestamp_seconds         not portable: the years that both know differ
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from sqlglot import exp

from watersmeet.query.stream import INTEGERS
from watersmeet.sql.copies import copy_tree
from watersmeet.sql.evaluator.patterns import translate
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
    duckdb,
    paren,
)

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
    joined = reduce(lambda x, y: exp.DPipe(this=x, expression=y, safe=True), strings)
    known = all(operand.type in (STRING, NULL) for operand in operands)
    return Typed(exp.Paren(this=joined), STRING if known else None)


def _like(node: Any, lower: Lower) -> Typed:
    """Spark's escape character is the backslash unless another is given; DuckDB has none unless one is given."""
    value, pattern = lower(node.this), lower(node.expression)
    plain = isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
    like = copy_tree(node)  # NOT LIKE is a flag on the node
    like.set("this", paren(value.node))
    like.set("expression", pattern.node)
    if plain or isinstance(node.parent, exp.Escape):
        return Typed(like, BOOLEAN if plain and value.type == STRING and isinstance(node, exp.Like) else None)
    return Typed(exp.Escape(this=like, expression=exp.Literal.string("\\")), None)


def _change_case(name: str) -> Rule:
    """upper(), lower(): a letter may become several, which DuckDB's own functions leave alone; see `expressions.evaluator`."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = lower(node.this)
        return (
            Typed(call(name, inner.node), STRING) if inner.type == STRING else Typed(type(node)(this=inner.node), None)
        )

    return rule


def _rlike(node: Any, lower: Lower) -> Typed:
    """A constant pattern that means the same to DuckDB; others are left to sqlglot."""
    value, pattern = lower(node.this), node.expression
    is_text = isinstance(pattern, exp.Literal) and pattern.is_string and node.args.get("flag") is None
    made = translate(pattern.name) if is_text else None
    if made is None:
        rest = copy_tree(node)
        rest.set("this", value.node)
        return Typed(rest, None)
    found = call("regexp_matches", value.node, exp.Literal.string(made))
    return Typed(found, BOOLEAN if value.type == STRING else None)


def _length(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(duckdb("CAST(length(x) AS INTEGER)", x=inner.node), INT if inner.type == STRING else None)


_BEGIN = "CASE WHEN a > 0 THEN a - 1 WHEN a < 0 THEN CAST(length(s) AS BIGINT) + a ELSE 0 END"
_CUT = "substring(s, greatest(b, 0) + 1, greatest(greatest(b + CAST(n AS BIGINT), 0) - greatest(b, 0), 0))"


def _substring(node: Any, lower: Lower) -> Typed:
    """Spark counts from 1, takes 0 for 1, and counts negative starts from the end, then clips; a negative length is 0."""
    text, start = lower(node.this), lower(node.args["start"])
    size = lower(node.args["length"]) if node.args.get("length") is not None else Typed(duckdb(f"{2**31 - 1}"), INT)
    begin = duckdb(_BEGIN, a=cast(start.node, BIGINT), s=text.node)
    skips_null = f"CASE WHEN a IS NULL OR n IS NULL THEN NULL ELSE {_CUT} END"  # greatest() skips NULLs
    made = duckdb(skips_null, a=start.node, n=size.node, s=text.node, b=begin)
    return Typed(made, STRING if text.type == STRING and start.kind == size.kind == "int" else None)


def _isnan(node: Any, lower: Lower) -> Typed:
    """NULL is not NaN: false, not NULL."""
    inner = lower(node.this)
    return Typed(
        duckdb("coalesce(isnan(x), FALSE)", x=inner.node), BOOLEAN if inner.kind in ("float", "double") else None
    )


def _field(name: str) -> Rule:
    """year(), hour(), ...: Spark answers INT."""

    def rule(node: Any, lower: Lower) -> Typed:
        value = lower(node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this)
        known = value.kind in TIMES and (value.kind != "date" or name in ("year", "quarter", "month", "day"))
        return Typed(duckdb(f"CAST({name}(x) AS INTEGER)", x=value.node), INT if known else None)

    return rule


def _date_trunc(node: Any, lower: Lower) -> Typed:
    value, unit = lower(node.this), node.args.get("unit")
    name = unit.name.upper() if unit is not None else ""
    by = "wm_trunc" if name in _OF_THE_CLOCK else "wm_start" if name in _OF_THE_CALENDAR else "date_trunc"
    return Typed(
        call(by if value.type == TIMESTAMP else "date_trunc", exp.Literal.string(name.lower()), value.node),
        TIMESTAMP if value.type == TIMESTAMP and name in _TRUNCATED else None,
    )


def _null_test(text: str) -> Rule:
    """isnull(x), isnotnull(x)."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = lower(node.expressions[0])
        return Typed(duckdb(text, x=inner.node), BOOLEAN if inner.type is not None else None)

    return rule


def _pmod(node: Any, lower: Lower) -> Typed:
    """The remainder that is not negative (for a positive divisor): ((a % n) + n) % n where a % n < 0."""
    a, n = (exp.Paren(this=part) for part in node.expressions)
    rest, again = (lower(duckdb(text, a=a, n=n)).node for text in ("a % n", "((a % n) + n) % n"))
    return Typed(duckdb("CASE WHEN x < 0 THEN y ELSE x END", x=rest, y=again), None)


def _day_of_week(first: int) -> Rule:
    """dayofweek(): Sunday is 1; weekday(): Monday is 0. DuckDB's isodow: Monday is 1, Sunday 7."""

    def rule(node: Any, lower: Lower) -> Typed:
        inner = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        value = lower(inner.this if isinstance(inner, exp.TsOrDsToDate) else inner)
        text = f"CAST(((isodow(x) + {6 * (1 - first)}) % 7) + {first} AS INTEGER)"
        return Typed(duckdb(text, x=value.node), INT if value.kind in TIMES else None)

    return rule


_MICROS, _MILLIS, _SECONDS = 1, 1_000, 1_000_000


def cast_seconds(instant: Typed, to: SparkType) -> Typed:
    """Seconds since 1970 as a number of some type; those with fractions are not compared with Spark's."""
    if to.kind in INTEGERS:
        whole = _count(instant, _SECONDS)
        return whole if to == BIGINT else Typed(whole.cast(to), None)
    seconds = f"CAST(CAST(epoch_us(t) AS DOUBLE) / CAST({_SECONDS} AS DOUBLE) AS {to.duckdb})"
    return Typed(duckdb(seconds, t=instant.node), None)


def _count(instant: Typed, unit_us: int) -> Typed:
    """DuckDB divides towards zero, so the rest is taken off first."""
    text = f"(epoch_us(t) - ((epoch_us(t) % {unit_us} + {unit_us}) % {unit_us})) // {unit_us}"
    return _whole(text if unit_us > 1 else "epoch_us(t)", instant)


def _whole(text: str, instant: Typed) -> Typed:
    known = BIGINT if instant.type == TIMESTAMP else None
    return Typed(duckdb(f"CAST({text} AS BIGINT)", t=instant.cast(TIMESTAMP)), known)


def _since(unit_us: int) -> Rule:
    """A time to a number."""
    return lambda node, lower: _count(lower(node.this), unit_us)


def _unix_timestamp(node: Any, lower: Lower) -> Typed:
    """Seconds of a time, towards zero; a text, and the current time, are left to sqlglot."""
    value = lower(node.this) if node.args.get("this") is not None else None
    if value is None or value.kind not in TIMES:
        return Typed(copy_tree(node), None)
    return _whole(f"epoch_us(t) // {_SECONDS}", value)


def _at(unit_us: int) -> Rule:
    """A whole number to a time; fractions are left to DuckDB, which has no such function."""

    def rule(node: Any, lower: Lower) -> Typed:
        value = lower(node.expressions[0])
        if value.type is not None and value.kind not in INTEGERS:
            return Typed(call(str(node.this), value.node), None)
        text = f"make_timestamptz(CAST(n AS BIGINT) * CAST({unit_us} AS BIGINT))"
        return Typed(duckdb(text, n=value.node), None)

    return rule


_NAMED: dict[str, Rule] = {
    "isnull": _null_test("(x IS NULL)"),
    "isnotnull": _null_test("NOT (x IS NULL)"),
    "pmod": _pmod,
    "weekday": _day_of_week(0),
    "timestamp_micros": _at(_MICROS),
    "timestamp_millis": _at(_MILLIS),
    "timestamp_seconds": _at(_SECONDS),
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
    exp.Upper: _change_case("wm_upper"),
    exp.Lower: _change_case("wm_lower"),
    exp.RegexpLike: _rlike,
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
    exp.UnixMicros: _since(_MICROS),
    exp.UnixMillis: _since(_MILLIS),
    exp.UnixSeconds: _since(_SECONDS),
    exp.StrToUnix: _unix_timestamp,
}
