"""Routing by site: a stream's tuples go to the unit of the site where the stream arrives, and nowhere else.

Invariant: every tuple has one home; other sites know of it by messages.
Implements: Tran and Lee (2010), section 2.2: a node with its stream's window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.routing.hypercube import Content, Delivery


@dataclass(frozen=True)
class BySite:
    """Units are sites, numbered as they come in FROM; `unit_of` is by the position of the side.

    >>> BySite(("paris", "tokyo"), (0, 1, 0)).is_primary(2, 0)
    True
    """

    names: tuple[str, ...]
    unit_of: tuple[int, ...]
    kind = "sites"
    stores_all: ClassVar[bool] = True

    def units_in_sql(self, side: int) -> list[str]:
        return []

    @property
    def units(self) -> int:
        return len(self.names)

    def copies(self, side: int) -> int:
        """Units that a tuple is routed to; what sites send each other is not routing."""
        return 1

    homes = copies

    def is_primary(self, side: int, unit: int) -> bool:
        """Whether the unit is the side's home."""
        return self.unit_of[side] == unit

    def deliveries(self, side: int, content: Content) -> Iterator[Delivery]:
        """All rows to the side's home."""
        yield Delivery("both", (self.unit_of[side],))
