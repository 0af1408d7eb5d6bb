"""Spark's types as far as the evaluator must know them, Spark's (ANSI) rules for two types that meet, and trees for DuckDB with a type.

A type of None says: it runs, but nobody has proven that DuckDB answers as Spark does. It is contagious.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse_one

from watersmeet.query.stream import DECIMAL, INTEGERS
from watersmeet.sql.copies import copy_tree

NUMERIC = (*INTEGERS, "decimal", "float", "double")
_DUCKDB = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "REAL", "double": "DOUBLE", "string": "TEXT",
    "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
    "interval": "BIGINT",
}  # fmt: skip
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
TIMES = ("date", "timestamp_ntz", "timestamp")
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


@lru_cache(1024)
def read_type(name: str) -> SparkType | None:
    """A type from Spark's simple string; None for types that the evaluator knows nothing of.

    >>> read_type("decimal(10,2)"), read_type("map<string,int>")
    (SparkType(kind='decimal', digits=10, scale=2), None)
    """
    name = name.strip().lower()
    name = _SYNONYMS.get(name, name)
    if name in _DUCKDB and name != "interval":
        return SparkType(name)
    found = DECIMAL.fullmatch(name)
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
    if left.kind in TIMES and right.kind in TIMES:
        return max(left, right, key=lambda t: TIMES.index(t.kind))
    if left.kind not in NUMERIC or right.kind not in NUMERIC:
        return None
    if left.kind in INTEGERS and right.kind in INTEGERS:
        return max(left, right, key=lambda t: INTEGERS.index(t.kind))
    if {"float", "double"} & {left.kind, right.kind}:
        return _as_double(left, right)
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    return _decimal(max(a.digits - a.scale, b.digits - b.scale) + scale, scale)


def _as_double(*types: SparkType) -> SparkType | None:
    """Doubles, if no digit is lost in a different way."""
    return None if any(t.kind == "decimal" and t.digits > EXACT_DIGITS for t in types) else DOUBLE


def common_of(types: list[SparkType]) -> SparkType | None:
    """The same for many; Spark casts each of them to it in one step, whatever the types in between.

    >>> str(common_of([SparkType("bigint"), SparkType("decimal", 2, 1), DOUBLE]))
    'double'
    """
    known = set(types) - {NULL}
    if len(known) > 1 and {t.kind for t in known} & {"float", "double"} and {t.kind for t in known} <= set(NUMERIC):
        return _as_double(*known)
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


_LOCAL_TIMES = ("date", "timestamp_ntz")


@dataclass(frozen=True)
class Typed:
    """A tree for DuckDB and its Spark type."""

    node: Any
    type: SparkType | None

    @property
    def kind(self) -> str:
        return self.type.kind if self.type is not None else ""

    def cast(self, to: SparkType) -> Any:
        """The tree, as a value of that type."""
        if self.type == to or to == NULL:
            return self.node
        return cast_between(self.node, self.kind, to)


Lower = Callable[[Any], Typed]
Rule = Callable[[Any, Lower], Typed]


def cast(node: Any, to: SparkType) -> Any:
    """CAST(node AS to), in DuckDB's names."""
    return exp.Cast(this=node, to=copy_tree(_data_type(to.duckdb)))


@lru_cache(maxsize=256)
def _data_type(text: str) -> Any:
    """A type's tree; sqlglot parses its text, and a list of a thousand constants has a thousand casts."""
    return exp.DataType.build(text, dialect="duckdb")


def cast_between(node: Any, of: str, to: SparkType) -> Any:
    """The cast from a kind of type; local times become instants by macro, see `expressions.evaluator`."""
    if to == TIMESTAMP and of in _LOCAL_TIMES:
        return duckdb("wm_instant(CAST(x AS TIMESTAMP))", x=node)
    return cast(node, to)


def call(name: str, *args: Any) -> Any:
    """A DuckDB function by name."""
    return exp.Anonymous(this=name, expressions=list(args))


def duckdb(text: str, **parts: Any) -> Any:
    """The tree of DuckDB text, in which names stand for other trees.

    >>> from sqlglot import parse_one
    >>> duckdb("length(x) * y", x=parse_one("a || b"), y=parse_one("c + 1")).sql("duckdb")
    'LENGTH(a || b) * (c + 1)'
    """
    holder = exp.Paren(this=copy_tree(_read(text)))
    for name in list(holder.find_all(exp.Column)):
        part = copy_tree(parts[name.name])
        name.replace(part if isinstance(name.parent, exp.Func | exp.Paren) else paren(part))
    return holder.this


@lru_cache(1024)
def _read(text: str) -> Any:
    return parse_one(text, dialect="duckdb")


def paren(node: Any) -> Any:
    """A tree that goes with any operator."""
    simple = (exp.Paren, exp.Column, exp.Cast, exp.Anonymous, exp.Literal)
    return node if isinstance(node, simple) else exp.Paren(this=node)


def interval(operand: Typed) -> Any:
    """An operand for DuckDB's own operations: spans are BIGINTs of microseconds inside proven expressions, INTERVALs outside."""
    return duckdb("to_microseconds(us)", us=operand.node) if operand.kind == "interval" else operand.node
