"""Types of expressions as DuckDB finds them, by their Spark names: for runs without a JVM.

Invariant: `common` follows Spark's ANSI rules for numbers and times; text is never compared with anything else
implicitly (the same on Spark), so such an equality is evaluated as written instead of becoming a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from watersmeet.errors import DataError, OptionError, QueryError
from watersmeet.plan.source_sql import Dialect
from watersmeet.query.expr import Expr
from watersmeet.query.session import UTC, Session
from watersmeet.runtime.arrow_types import normal, spark_name
from watersmeet.units.evaluator import evaluate, knows

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_DUCKDB = {"string": "VARCHAR", "binary": "BLOB", "timestamp_ntz": "TIMESTAMP"}


def _cast(text: str, kind: str) -> str:
    """What becomes a timestamp is a date or has no zone: a local time."""
    if kind == "timestamp":
        return f"wm_instant(CAST({text} AS TIMESTAMP))"
    return f"CAST({text} AS {_DUCKDB.get(kind, kind)})"


DUCKDB = Dialect(
    render=lambda expr, name: expr.duckdb(name),
    quote=lambda name: '"' + name.replace('"', '""') + '"',
    cast=_cast,
)


def session_in(timezone: str) -> Session:
    """The session of a run without Spark."""
    session = Session(timezone)
    if not knows(session.timezone):
        raise OptionError(
            f"unknown time zone {timezone!r}: give a name such as 'Europe/Berlin', spelled so, or an offset as '+02:00'"
        )
    return session


class DuckDBTypes:
    """Knows the types of expressions over Arrow schemas, by alias."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.schemas = schemas
        self._known: dict[str, str] = {}

    def type_of(self, expr: Expr) -> str:
        if expr.text not in self._known:
            columns = {f"{n}": self.schemas[r.alias].field(r.column) for n, r in enumerate(expr.columns)}
            if expr.duckdb_template == "{0}":
                self._known[expr.text] = spark_name(columns["0"].type)
            else:
                empty = pa.schema(
                    [f.with_name(name) for name, f in columns.items()] or [pa.field("_", pa.bool_())]
                ).empty_table()
                names = {ref: f'"{n}"' for n, ref in enumerate(expr.columns)}
                try:
                    found = normal(evaluate(empty, [expr.duckdb(lambda ref: names[ref])], f"{expr}", UTC))
                except DataError as error:
                    raise QueryError(f"{expr}: cannot be evaluated: {str(error.__cause__).splitlines()[0]}") from error
                self._known[expr.text] = spark_name(found.schema.field(0).type)
        return self._known[expr.text]

    def common(self, left: str, right: str) -> str | None:
        return common_type(left, right)


def common_type(left: str, right: str) -> str | None:
    """The type in which Spark (ANSI) compares two types.

    >>> common_type("int", "bigint"), common_type("int", "double"), common_type("int", "string")
    ('bigint', 'double', None)
    """
    if left == right:
        return left
    if left in _INTEGERS and right in _INTEGERS:
        return max(left, right, key=_INTEGERS.index)
    pair = {left, right}
    if pair <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp" if "timestamp" in pair else "timestamp_ntz"
    decimals = [_DECIMAL.fullmatch(t) for t in (left, right)]
    numbers = [
        t in _INTEGERS or t in ("float", "double") or d is not None
        for t, d in zip((left, right), decimals, strict=True)
    ]
    if not all(numbers):
        return None
    if pair & {"float", "double"}:
        return "double"
    shapes = [(int(d[1]), int(d[2])) if d else (_DIGITS[t], 0) for t, d in zip((left, right), decimals, strict=True)]
    scale = max(s for _, s in shapes)
    return f"decimal({min(max(p - s for p, s in shapes) + scale, 38)},{scale})"
