"""Conditions across streams, sorted by what a kernel can do with them.

Invariant: the conjunction of all predicates of a query, its filters and its window graph is its WHERE and ON clauses;
every predicate refers to at least two aliases. `condition` is a predicate as one expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from watersmeet.query.expr import Expr

Comparator = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True)
class _TwoSided:
    """Both sides are expressions of one alias each, and these differ."""

    left: Expr
    right: Expr
    condition: Expr

    def __post_init__(self) -> None:
        assert self.left.alias != self.right.alias

    @property
    def aliases(self) -> frozenset[str]:
        return self.left.aliases | self.right.aliases


@dataclass(frozen=True)
class Equality(_TwoSided):
    """`left = right`: a key."""

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class Comparison(_TwoSided):
    """`left op right`."""

    op: Comparator

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True)
class Band(_TwoSided):
    """`lo <= left - right <= hi`, or `<` if it is `strict`, lo and hi literals; None is unbounded. Dates differ by days. Types that a compiled band cannot
    take need `condition`."""

    lo: Decimal | None
    hi: Decimal | None
    strict: bool = False

    def __str__(self) -> str:
        return str(self.condition)


@dataclass(frozen=True)
class Within(_TwoSided):
    """`abs(left - right) <= radius`, or `<`, of numbers; `radius` is an expression of one of the two."""

    radius: Expr

    def __str__(self) -> str:
        return str(self.condition)


Way = tuple[Equality | Comparison | Band | Within, ...]
"""Predicates that hold together."""


@dataclass(frozen=True)
class Condition:
    """Any condition across two or more aliases. Where it holds one of `ways` holds, if there are any: then partners can be looked for by them."""

    condition: Expr
    ways: tuple[Way, ...] = ()

    @property
    def aliases(self) -> frozenset[str]:
        return self.condition.aliases

    def __str__(self) -> str:
        return str(self.condition)


Predicate = Equality | Comparison | Band | Condition
