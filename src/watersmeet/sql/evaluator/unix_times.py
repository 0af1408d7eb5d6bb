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
    TIMES,
    TIMESTAMP,
    Lower,
    Rule,
    SparkType,
    Typed,
    call,
    duckdb,
)

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
        return Typed(node.copy(), None)
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
