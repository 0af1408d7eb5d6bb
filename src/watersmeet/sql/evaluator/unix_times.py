"""Evaluator rules for times as whole numbers since 1970, and back.

unix_micros, unix_millis, unix_seconds, CAST(.. AS BIGINT)    round down, also before 1970 (sqlglot's translation rounds to the nearest)
unix_timestamp                                                rounds towards zero
CAST(.. AS DOUBLE or FLOAT)                                   with fractions
timestamp_micros, timestamp_millis, timestamp_seconds         not portable: the years that both know differ
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.query.stream import INTEGERS
from watersmeet.sql.evaluator.types import (
    BIGINT,
    DOUBLE,
    TIMES,
    TIMESTAMP,
    Lower,
    Rule,
    SparkType,
    Typed,
    call,
    cast,
    number,
    paren,
)

_MICROS, _MILLIS, _SECONDS = 1, 1_000, 1_000_000


def count_seconds(instant: Typed) -> Typed:
    """Whole seconds since 1970, rounded down."""
    return _count(instant, _SECONDS)


def cast_seconds(instant: Typed, to: SparkType) -> Typed:
    """Seconds since 1970 as a number of some type; those with fractions are not compared with Spark's."""
    if to.kind in INTEGERS:
        whole = count_seconds(instant)
        return whole if to == BIGINT else Typed(whole.cast(to), None)
    micros, unit = cast(call("epoch_us", instant.node), DOUBLE), cast(number(_SECONDS), DOUBLE)
    return Typed(cast(exp.Div(this=micros, expression=unit), to), None)


def _count(instant: Typed, unit_us: int) -> Typed:
    """DuckDB divides towards zero, so the rest is taken off first."""
    micros, unit = call("epoch_us", instant.cast(TIMESTAMP)), number(unit_us)
    if unit_us > 1:
        rest = exp.Mod(
            this=paren(exp.Add(this=exp.Mod(this=micros, expression=unit), expression=unit)), expression=unit
        )
        micros = _divide(exp.Sub(this=micros.copy(), expression=paren(rest)), unit_us)
    return _whole(micros, instant)


def _divide(micros: Any, unit_us: int) -> Any:
    return exp.IntDiv(this=paren(micros), expression=number(unit_us))


def _whole(value: Any, instant: Typed) -> Typed:
    return Typed(cast(value, BIGINT), BIGINT if instant.type == TIMESTAMP else None)


def _since(unit_us: int) -> Rule:
    """A time to a number."""

    def rule(node: Any, lower: Lower) -> Typed:
        return _count(lower(node.this), unit_us)

    return rule


def _unix_timestamp(node: Any, lower: Lower) -> Typed:
    """Seconds of a time, towards zero; a text, and the current time, are left to sqlglot."""
    value = lower(node.this) if node.args.get("this") is not None else None
    if value is None or value.kind not in TIMES:
        return Typed(node.copy(), None)
    return _whole(_divide(call("epoch_us", value.cast(TIMESTAMP)), _SECONDS), value)


def _at(unit_us: int) -> Rule:
    """A whole number to a time; fractions are left to DuckDB, which has no such function."""

    def rule(node: Any, lower: Lower) -> Typed:
        value = lower(node.expressions[0])
        if value.type is not None and value.kind not in INTEGERS:
            return Typed(call(str(node.this), value.node), None)
        micros = exp.Mul(this=cast(value.node, BIGINT), expression=cast(number(unit_us), BIGINT))
        return Typed(call("make_timestamptz", micros), None)

    return rule


UNIX_TIMES: dict[Any, Rule] = {
    exp.UnixMicros: _since(_MICROS),
    exp.UnixMillis: _since(_MILLIS),
    exp.UnixSeconds: _since(_SECONDS),
    exp.StrToUnix: _unix_timestamp,
}
NAMED_UNIX_TIMES: dict[str, Rule] = {
    "timestamp_micros": _at(_MICROS),
    "timestamp_millis": _at(_MILLIS),
    "timestamp_seconds": _at(_SECONDS),
}
