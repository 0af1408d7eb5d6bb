"""Spark's types as far as the evaluator must know them, and Spark's (ANSI) rules for two types that meet.

A rule that is not written here answers None: the expression still runs, but nobody has proven that DuckDB agrees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
NUMERIC = (*INTEGRAL, "decimal", "float", "double")
_DUCKDB = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "REAL", "double": "DOUBLE", "string": "TEXT",
    "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
    "interval": "BIGINT",
}  # fmt: skip
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_TIMES = ("date", "timestamp_ntz", "timestamp")
"""Where two meet, the later one is what they are compared as."""
MAX_DIGITS = 38
EXACT_DIGITS = 15
"""Decimals of up to so many digits become doubles exactly alike in Spark and DuckDB."""


@dataclass(frozen=True)
class SparkType:
    """A type by Spark's simple name; digits and scale for decimals."""

    kind: str
    digits: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.digits},{self.scale})" if self.kind == "decimal" else self.kind

    @property
    def duckdb(self) -> str:
        return f"DECIMAL({self.digits}, {self.scale})" if self.kind == "decimal" else _DUCKDB[self.kind]


NULL, BOOLEAN, STRING, INT, BIGINT, DOUBLE = (
    SparkType(k) for k in ("null", "boolean", "string", "int", "bigint", "double")
)
INTERVAL, TIMESTAMP, TIMESTAMP_NTZ = SparkType("interval"), SparkType("timestamp"), SparkType("timestamp_ntz")


def read_type(name: str) -> SparkType | None:
    """A type from Spark's simple string; None for types that the evaluator knows nothing of.

    >>> read_type("decimal(10,2)"), read_type("map<string,int>")
    (SparkType(kind='decimal', digits=10, scale=2), None)
    """
    name = name.strip().lower()
    name = _SYNONYMS.get(name, name)
    if name in _DUCKDB and name != "interval":
        return SparkType(name)
    found = _DECIMAL.fullmatch(name)
    return SparkType("decimal", int(found[1]), int(found[2])) if found else None


def literal_type(text: str) -> SparkType | None:
    """The type of an unsigned or signed number as written.

    >>> literal_type("3000000000").kind, literal_type("0.05"), literal_type("1e3").kind
    ('bigint', SparkType(kind='decimal', digits=2, scale=2), 'double')
    """
    if "e" in text.lower():
        return DOUBLE
    whole, _, fraction = text.lstrip("+-").partition(".")
    if "." not in text:
        value = int(text)
        if -(2**31) <= value < 2**31:
            return INT
        if -(2**63) <= value < 2**63:
            return BIGINT
    digits = max(len((whole + fraction).lstrip("0")), len(fraction), 1)
    return SparkType("decimal", digits, len(fraction)) if digits <= MAX_DIGITS else None


def common(left: SparkType, right: SparkType) -> SparkType | None:
    """The type in which Spark compares two values."""
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if left.kind in _TIMES and right.kind in _TIMES:
        return max(left, right, key=lambda t: _TIMES.index(t.kind))
    if left.kind not in NUMERIC or right.kind not in NUMERIC:
        return None
    if left.kind in INTEGRAL and right.kind in INTEGRAL:
        return max(left, right, key=lambda t: INTEGRAL.index(t.kind))
    if {"float", "double"} & {left.kind, right.kind}:
        return _floating(left, right)
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    return _decimal(max(a.digits - a.scale, b.digits - b.scale) + scale, scale)


def _floating(left: SparkType, right: SparkType) -> SparkType | None:
    """Doubles, if no digit is lost in a different way."""
    lossy = [t for t in (left, right) if t.kind == "decimal" and t.digits > EXACT_DIGITS]
    return None if lossy else DOUBLE


def common_of(types: list[SparkType]) -> SparkType | None:
    """The same for many."""
    meet: SparkType | None = NULL
    for t in types:
        meet = None if meet is None else common(meet, t)
    return meet


def as_decimal(t: SparkType) -> SparkType:
    """An integral type as the decimal that holds it."""
    return t if t.kind == "decimal" else SparkType("decimal", _DIGITS[t.kind], 0)


def arithmetic(op: str, left: SparkType, right: SparkType) -> SparkType | None:
    """The type of left op right for + - *."""
    if "decimal" not in (left.kind, right.kind) or {"float", "double", "null"} & {left.kind, right.kind}:
        meet = common(left, right)
        return meet if meet is not None and meet.kind in NUMERIC else None
    if left.kind not in NUMERIC or right.kind not in NUMERIC:
        return None
    a, b = as_decimal(left), as_decimal(right)
    if op == "*":
        return _decimal(a.digits + b.digits + 1, a.scale + b.scale)
    scale = max(a.scale, b.scale)
    return _decimal(max(a.digits - a.scale, b.digits - b.scale) + scale + 1, scale)


def _decimal(digits: int, scale: int) -> SparkType | None:
    return SparkType("decimal", digits, scale) if digits <= MAX_DIGITS else None
