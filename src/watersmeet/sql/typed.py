"""A tree for DuckDB with the Spark type of its value: what the evaluator's rules take and give.

A type of None says: it runs, but nobody has proven that DuckDB answers as Spark does. It is contagious.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.sql.types import INTEGRAL, NULL, TIMESTAMP, TIMESTAMP_NTZ, SparkType

LOCAL_TIMES = ("date", "timestamp_ntz")


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
    return exp.Cast(this=node, to=exp.DataType.build(to.duckdb, dialect="duckdb"))


def cast_between(node: Any, of: str, to: SparkType) -> Any:
    """The cast from a kind of type; local times become instants by macro, see `units.zone_macros`."""
    if to == TIMESTAMP and of in LOCAL_TIMES:
        return call("wm_instant", cast(node, TIMESTAMP_NTZ))
    return cast(node, to)


def call(name: str, *args: Any) -> Any:
    """A DuckDB function by name."""
    return exp.Anonymous(this=name, expressions=list(args))


def paren(node: Any) -> Any:
    return (
        node
        if isinstance(node, exp.Paren | exp.Column | exp.Cast | exp.Anonymous | exp.Literal)
        else exp.Paren(this=node)
    )


def interval(operand: Typed) -> Any:
    """An operand for DuckDB's own operations: spans are BIGINTs of microseconds inside proven expressions, INTERVALs outside."""
    return call("to_microseconds", operand.node) if operand.kind == "interval" else operand.node


def number(value: int) -> Any:
    """A whole number, with its sign."""
    literal = exp.Literal.number(abs(value))
    return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal


def guarded(wrong: Any, message: str, value: Any) -> Any:
    """The value, or an error where `wrong` holds: DuckDB answers NULL where Spark raises."""
    return exp.Case(ifs=[exp.If(this=wrong, true=call("error", exp.Literal.string(message)))], default=value)


def is_integral(*operands: Typed) -> bool:
    return all(operand.kind in INTEGRAL for operand in operands)
