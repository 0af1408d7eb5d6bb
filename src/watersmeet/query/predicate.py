"""Conditions across streams, sorted by what a kernel can do with them.

Invariant: the conjunction of all predicates of a query, its filters and its window graph is its WHERE and ON clauses;
every predicate refers to at least two aliases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watersmeet.query.expr import Expr

Comparator = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True)
class Equality:
    """`left = right`, each side an expression of exactly one alias: a key. `condition` is the same as one expression."""

    left: Expr
    right: Expr
    condition: Expr

    def __post_init__(self) -> None:
        assert self.left.alias != self.right.alias

    @property
    def aliases(self) -> frozenset[str]:
        return self.left.aliases | self.right.aliases

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class Comparison:
    """`left op right`, each side an expression of exactly one alias. `condition` is the same as one expression."""

    left: Expr
    op: Comparator
    right: Expr
    condition: Expr

    def __post_init__(self) -> None:
        assert self.left.alias != self.right.alias

    @property
    def aliases(self) -> frozenset[str]:
        return self.left.aliases | self.right.aliases

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True)
class Band:
    """`lo <= left - right <= hi`, each side an expression of one alias, lo and hi literals; None is unbounded.

    `condition` is the same predicate as one expression, for types that the compiled band cannot take.
    """

    left: Expr
    right: Expr
    lo: float | None
    hi: float | None
    condition: Expr

    def __post_init__(self) -> None:
        assert self.left.alias != self.right.alias

    @property
    def aliases(self) -> frozenset[str]:
        return self.left.aliases | self.right.aliases

    def __str__(self) -> str:
        return str(self.condition)


@dataclass(frozen=True)
class Condition:
    """Any other condition across two or more aliases."""

    expr: Expr

    @property
    def aliases(self) -> frozenset[str]:
        return self.expr.aliases

    def __str__(self) -> str:
        return str(self.expr)


Predicate = Equality | Comparison | Band | Condition


def as_expr(predicate: Predicate) -> Expr:
    """A predicate as one expression."""
    return predicate.expr if isinstance(predicate, Condition) else predicate.condition
