"""Which types become 64-bit codes, and how.

    integer   whole numbers, dates, timestamps, booleans: the value itself
    float     order-keeping bits
    decimal   the unscaled value, up to 18 digits
    bytes     a hash: equal values are verified by comparing them

Invariant: `exact(kind)` codes are equal if and only if the values are equal by Spark's rules, and keep their order.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["integer", "float", "decimal", "bytes"]

_INTEGER = {"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def kind_of(spark_type: str) -> Kind | None:
    """How values of a type are coded; None if they cannot be compared by code.

    >>> kind_of("bigint"), kind_of("decimal(10,2)"), kind_of("string"), kind_of("map<int,int>")
    ('integer', 'decimal', 'bytes', None)
    """
    if spark_type in _INTEGER or spark_type.startswith("interval day"):
        return "integer"
    if spark_type in ("float", "double"):
        return "float"
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal:
        return "decimal" if int(decimal[1]) <= 18 else "bytes"
    if spark_type in ("string", "binary") or re.fullmatch(r"(var)?char\(\d+\)", spark_type):
        return "bytes"
    return None


def exact(kind: Kind | None) -> bool:
    """Whether codes alone decide equality and order."""
    return kind in ("integer", "float", "decimal")
