"""Expressions as text: Spark SQL that a front end has already resolved.

Nothing here evaluates anything. An `Expr` is a pair of templates, one for Spark and one for DuckDB, with numbered slots
in place of the columns, so that every layer can name the columns as it likes without knowing SQL.

Invariant: `len(columns)` slots, numbered from 0, occur in both templates; each column occurs once in `columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from string import Formatter


@dataclass(frozen=True, order=True)
class ColumnRef:
    """A column of one alias, spelled as the stream's schema spells it; of a table that the alias' tuples are looked up in, `u.country`.

    >>> str(ColumnRef("o", "u.country", table="u"))
    'u.country'
    """

    alias: str
    column: str
    table: str = field(default="", compare=False)
    """The alias of that table."""

    def __str__(self) -> str:
        return self.column if self.table else f"{self.alias}.{self.column}"


@dataclass(frozen=True)
class Expr:
    """A resolved expression.

    >>> e = Expr("a.k + 1", "{0} + 1", "{0} + 1", (ColumnRef("a", "k"),), portable=True)
    >>> e.spark(lambda ref: f"`{ref.alias}_{ref.column}`")
    '`a_k` + 1'
    """

    text: str
    spark_template: str
    duckdb_template: str
    columns: tuple[ColumnRef, ...]
    portable: bool
    """Made only of operations that the DuckDB evaluator is proven to answer as Spark does."""
    mismatch: str = ""
    """The operation in it that Spark refuses in ANSI mode, with its types, as far as these are known without Spark."""
    settled: str = field(default="", compare=False, repr=False)
    """Its Spark type, where our rules settle it and DuckDB is known to agree; the same expression may be without, so it is no part of what an expression is."""

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(ref.alias for ref in self.columns)

    @property
    def is_column(self) -> bool:
        """Whether it is just one column."""
        return self.spark_template == "{0}"

    @property
    def alias(self) -> str:
        """The only alias of a single-stream expression."""
        (alias,) = self.aliases
        return alias

    def spark(self, name: Callable[[ColumnRef], str]) -> str:
        return self.spark_template.format(*(name(ref) for ref in self.columns))

    def duckdb(self, name: Callable[[ColumnRef], str]) -> str:
        return self.duckdb_template.format(*(name(ref) for ref in self.columns))

    def __str__(self) -> str:
        return self.text


def column(alias: str, name: str) -> Expr:
    """The expression that is just one column."""
    return column_at(ColumnRef(alias, name))


def column_at(ref: ColumnRef) -> Expr:
    """The same of a reference."""
    return Expr(str(ref), "{0}", "{0}", (ref,), portable=True)


def binary(left: Expr, op: str, right: Expr) -> Expr:
    """`left op right` as one expression.

    >>> str(binary(column("a", "k"), "<", column("b", "k"))), binary(column("a", "k"), "<", column("b", "k")).spark_template
    ('a.k < b.k', '({0}) < ({1})')
    """
    columns = tuple(dict.fromkeys((*left.columns, *right.columns)))

    def join(x: str, y: str) -> str:
        return f"({_renumber(x, left.columns, columns)}) {op} ({_renumber(y, right.columns, columns)})"

    return Expr(
        f"{left.text} {op} {right.text}",
        join(left.spark_template, right.spark_template),
        join(left.duckdb_template, right.duckdb_template),
        columns,
        left.portable and right.portable,
        left.mismatch or right.mismatch,
    )


def cast(expr: Expr, kind: str) -> Expr:
    """An expression as a value of a type whose name Spark and DuckDB share.

    >>> cast(column("a", "k"), "bigint").duckdb_template
    'CAST({0} AS bigint)'
    """
    spark, duckdb = (f"CAST({text} AS {kind})" for text in (expr.spark_template, expr.duckdb_template))
    return replace(expr, spark_template=spark, duckdb_template=duckdb, settled="")


def _renumber(template: str, old: tuple[ColumnRef, ...], new: tuple[ColumnRef, ...]) -> str:
    parts = []
    for literal, slot, _, _ in Formatter().parse(template):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if slot is not None:
            parts.append(f"{{{new.index(old[int(slot)])}}}")
    return "".join(parts)
