"""What compiled loops know of conditions: residuals, which they decide, and hints, which say where partners can be.

    a.k = b.k OR abs(a.v - b.v) <= 1      two ways of one clue each: partners have the key, or lie in a range
    abs(a.v - b.v) <= a.r                 one way

Invariant: a residual over codes is true if and only if its condition is. Where the condition of a hint holds, all clues of one of its ways do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watersmeet.plan.types import Kind


@dataclass(frozen=True)
class Compare:
    """`left op right` over codes of wire columns; op is '<' or '<='."""

    left: tuple[str, str]
    op: Literal["<", "<="]
    right: tuple[str, str]
    kind: Kind
    text: str


@dataclass(frozen=True)
class Difference:
    """`lo <= left - right <= hi` over the codes of wire columns, whose differences are exact, or over doubles."""

    left: tuple[str, str]
    right: tuple[str, str]
    lo: float | None
    hi: float | None
    kind: Literal["integer", "decimal", "double"]
    text: str

    @property
    def is_exact(self) -> bool:
        """Whether codes are whole numbers, and bounds with them."""
        return self.kind != "double"


Residual = Compare | Difference


@dataclass(frozen=True)
class Same:
    """`left = right` over codes of wire columns, which may be equal for different values."""

    left: tuple[str, str]
    right: tuple[str, str]
    kind: Kind


@dataclass(frozen=True)
class Near:
    """`abs(left - right) <= radius` over wire columns of numbers; `radius` is one of either alias."""

    left: tuple[str, str]
    right: tuple[str, str]
    radius: tuple[str, str]


Clue = Same | Near | Compare | Difference


@dataclass(frozen=True)
class Hint:
    """A condition that units evaluate, and the ways to its partners."""

    text: str
    ways: tuple[tuple[Clue, ...], ...]
    """Of each the clues that hold together."""
