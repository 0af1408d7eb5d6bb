"""Types of expressions: who knows them, which become 64-bit codes, and which do not go together.

    integer   whole numbers, dates, timestamps, booleans: the value itself
    float     order-keeping bits
    decimal   the unscaled value, up to 18 digits
    bytes     a hash: equal values are verified by comparing them
    prefix    the first eight bytes of a text, in order: equal codes say nothing, different ones decide

Invariant: `exact(kind)` codes are equal if and only if the values are equal by Spark's rules, and keep their order.
"""

from __future__ import annotations

import re
from typing import Literal, Protocol

from watersmeet.errors import TypeMismatchError
from watersmeet.query.expr import Expr
from watersmeet.query.join import Join
from watersmeet.query.stream import DECIMAL, INTEGERS

Kind = Literal["integer", "float", "decimal", "bytes", "prefix"]

_INTEGER = {*INTEGERS, "date", "timestamp", "timestamp_ntz", "boolean"}
_PLAIN = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(\d+,\s*\d+\)|string|binary|boolean|date|timestamp|timestamp_ntz"
)


class Types(Protocol):
    """Who knows the types of expressions: Spark in its runtimes, DuckDB in the local one."""

    def type_of(self, expr: Expr) -> str:
        """The Spark name of an expression's type."""

    def common(self, left: str, right: str) -> str | None:
        """The type in which values of two types are compared; None if there is none."""


def kind_of(spark_type: str) -> Kind | None:
    """How values of a type are coded; None if they cannot be compared by code.

    >>> kind_of("bigint"), kind_of("decimal(10,2)"), kind_of("string"), kind_of("map<int,int>")
    ('integer', 'decimal', 'bytes', None)
    """
    if spark_type in _INTEGER or spark_type.startswith("interval day"):
        return "integer"
    if spark_type in ("float", "double"):
        return "float"
    decimal = DECIMAL.fullmatch(spark_type)
    if decimal:
        return "decimal" if int(decimal[1]) <= 18 else "bytes"
    if spark_type in ("string", "binary") or re.fullmatch(r"(var)?char\(\d+\)", spark_type):
        return "bytes"
    return None


def exact(kind: Kind | None) -> bool:
    """Whether codes alone decide equality and order."""
    return kind in ("integer", "float", "decimal")


def is_plain(spark_type: str) -> bool:
    """Whether DuckDB groups and writes values of a type as Spark does.

    >>> is_plain("decimal(10, 2)"), is_plain("array<int>")
    (True, False)
    """
    return _PLAIN.fullmatch(spark_type) is not None


def refuse_mismatch(expr: Expr) -> None:
    """Refuse what Spark would refuse for its types, by our own rules."""
    if expr.mismatch:
        raise TypeMismatchError(expr.mismatch)


def refuse_mismatches(join: Join) -> None:
    """The same for all of a query."""
    for expr in join.expressions:
        refuse_mismatch(expr)
