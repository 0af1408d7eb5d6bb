"""Templates: what registered queries have in common (streams, equalities, windows), and how long their tuples are kept.

An outer template is one of two streams, one of which is preserved: its tuples leave without a partner (LEFT, ANTI), or because they have one (SEMI). Whether a
tuple x has one is asked when nobody can come any more, so partners are kept until then:

    x waits for y up to x.ts + b      watermark(y) > x.ts + b        y.ts >= x.ts - a        y is kept until watermark(y) > y.ts + a + b

Invariant: queries with equal templates are joined once. What is kept of a stream is what some template's windows still reach; a template of one stream
alone keeps nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from watersmeet.plan.types import Kind
from watersmeet.query.window import UNBOUNDED

Edge = tuple[int, str, int, str, Kind]
"""`x.column = y.column`, compared by codes of a kind; x < y."""
Outer = Literal["left", "anti", "semi"]
"""Which rows leave besides pairs, or in their place."""


@dataclass(frozen=True)
class Template:
    """What queries share: streams by alias number, equalities, and the largest y.ts - x.ts for every pair."""

    streams: tuple[str, ...]
    edges: tuple[Edge, ...]
    bounds: tuple[tuple[int, ...], ...]
    outer: Outer | None = None
    preserved: int = 0
    """The alias whose tuples an outer template preserves; the other one has their partners."""
    needed: tuple[str, ...] = ()
    """Columns of preserved tuples that are compared with partners': where one is NULL, there is no partner."""
    is_lone: bool = False
    """Whether it is that of preserved tuples by themselves: nothing is looked up for it."""

    @property
    def text(self) -> str:
        """The template as text: what templates are told apart and dealt out by."""
        inner = self.streams, self.edges, self.bounds
        return repr(inner if self.outer is None else (*inner, self.outer, self.preserved, self.needed, self.is_lone))

    @cached_property
    def place(self) -> int:
        """A number by which templates are dealt to units: the same wherever it is computed."""
        return zlib.crc32(self.text.encode())

    @property
    def partner(self) -> int:
        """The alias of the partners, of an outer template."""
        return 1 - self.preserved

    @property
    def wait_us(self) -> int:
        """How much later than a preserved tuple its last partner may be."""
        return self.bounds[self.preserved][self.partner]

    @property
    def partner_kept_us(self) -> int:
        """How long partners are kept beside each other, so that tuples which still wait can be asked for theirs."""
        return min(self.wait_us + self.bounds[self.partner][self.preserved], UNBOUNDED)

    def alone(self) -> Template:
        """The template of preserved tuples by themselves."""
        return replace(self, is_lone=True)

    def reaches(self) -> Iterator[tuple[int, int, int]]:
        """(x, y, hi): tuples of alias x are kept as long as one of y may be up to hi later."""
        for x, row in enumerate(self.bounds):
            yield from ((x, y, hi) for y, hi in enumerate(row) if x != y)
        if self.outer is not None:
            yield self.partner, self.partner, self.partner_kept_us


def hull(templates: Iterable[Template]) -> dict[tuple[str, str], int]:
    """For every ordered pair of streams the largest y.ts - x.ts that some template allows: what expiry goes by."""
    out: dict[tuple[str, str], int] = {}
    for template in set(templates):
        for x, y, hi in template.reaches():
            pair = template.streams[x], template.streams[y]
            out[pair] = max(out.get(pair, hi), hi)
    return out


def retention_us(hull: Mapping[tuple[str, str], int], stream: str) -> int:
    """How long a stream's tuples can meet later ones."""
    return max((hi for (x, _), hi in hull.items() if x == stream), default=UNBOUNDED)
