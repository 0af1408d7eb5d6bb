"""Templates: what registered queries have in common (streams, equalities, windows), and how long their tuples are kept.

Invariant: queries with equal templates are joined once. What is kept of a stream is what some template's windows still reach; a template of one stream
alone keeps nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from watersmeet.plan.types import Kind
from watersmeet.query.window import UNBOUNDED

Edge = tuple[int, str, int, str, Kind]
"""`x.column = y.column`, compared by codes of a kind; x < y."""


@dataclass(frozen=True)
class Template:
    """What queries share: streams by alias number, equalities, and the largest y.ts - x.ts for every pair."""

    streams: tuple[str, ...]
    edges: tuple[Edge, ...]
    bounds: tuple[tuple[int, ...], ...]

    @property
    def text(self) -> str:
        """The template as text: what templates are told apart and dealt out by."""
        return repr((self.streams, self.edges, self.bounds))

    @cached_property
    def place(self) -> int:
        """A number by which templates are dealt to units: the same wherever it is computed."""
        return zlib.crc32(self.text.encode())


def hull(templates: Iterable[Template]) -> dict[tuple[str, str], int]:
    """For every ordered pair of streams the largest y.ts - x.ts that some template allows: what expiry goes by."""
    out: dict[tuple[str, str], int] = {}
    for template in set(templates):
        for x, row in enumerate(template.bounds):
            for y, hi in enumerate(row):
                if x != y:
                    pair = template.streams[x], template.streams[y]
                    out[pair] = max(out.get(pair, hi), hi)
    return out


def retention_us(hull: Mapping[tuple[str, str], int], stream: str) -> int:
    """How long a stream's tuples can meet later ones."""
    return max((hi for (x, _), hi in hull.items() if x == stream), default=UNBOUNDED)
