"""Window items: what a query says about time, and the edges that it means.

WINDOW = w, WITHIN w     abs(difference) <= w, every pair
WINDOW (a, b) = w        the same, that pair
DWINDOW (a, b) = w       0 <= b.ts - a.ts <= w
PATH (a, b, c) = w       0 <= b.ts - a.ts <= w and 0 <= c.ts - b.ts <= w, or the same from c to a
PATH (a, b, c) = (v, w)  the same with a bound for each hop
TUMBLING = w             floor(ts / w) is the same for all aliases
a [RANGE t]              y.ts - a.ts <= t, every other alias y
a [ROWS n]               no edge: a count
a [TUMBLING n ROWS]      no edge: a count, in blocks
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations, pairwise, product
from typing import Literal, cast

from watersmeet.errors import WindowError
from watersmeet.query.duration import parse_us
from watersmeet.query.window import Edge, directed_edges, symmetric_edges

Kind = Literal["window", "dwindow", "path", "tumbling", "range", "rows"]
LONGEST_US = 2**60
"""36,000 years: longer windows would not add up within 64 bits."""
MOST_PATHS = 3
"""Every path doubles the alternatives."""


@dataclass(frozen=True)
class WindowItem:
    """One item; `aliases` as written: none for every pair, two for a pair, all stops of a PATH, one for RANGE and ROWS.

    `hops` are the bounds of a PATH, from stop to stop; `tumbles` says of ROWS that they are counted in blocks.
    """

    kind: Kind
    aliases: tuple[str, ...]
    us: int
    rows: int
    text: str
    hops: tuple[int, ...] = ()
    tumbles: bool = field(default=False, repr=False)

    @classmethod
    def path(cls, aliases: Sequence[str], hops: Sequence[int], text: str) -> WindowItem:
        """A PATH with one bound for all hops, or one for each."""
        if len(aliases) < 2:
            raise WindowError(
                f"window {text!r} names {len(aliases) or 'no'} alias{'' if len(aliases) == 1 else 'es'}: a path has two or more stops, as in PATH (a, b, c) = 10 SECONDS"
            )
        if len(hops) not in (1, len(aliases) - 1):
            raise WindowError(
                f"window {text!r} has {len(hops)} bound{'' if len(hops) == 1 else 's'} for {len(aliases) - 1} hop{'' if len(aliases) == 2 else 's'}: give one bound for all hops, or one for each, as in PATH (a, b, c) = (10 SECONDS, 1 MINUTE)"
            )
        each = tuple(hops) * (len(aliases) - 1) if len(hops) == 1 else tuple(hops)
        return cls("path", tuple(aliases), 0, 0, text, each)

    @classmethod
    def read(cls, kind: str, aliases: Sequence[str], us: int, text: str) -> WindowItem:
        """An item with or without a pair."""
        if kind == "dwindow" and not aliases:
            raise WindowError(f"window {text!r} has a direction but no pair: write DWINDOW (a, b) = ..., a first")
        if kind == "tumbling":
            if aliases:
                raise WindowError(
                    f"window {text!r} names aliases: a tumbling window holds for all streams; write TUMBLING = 10 SECONDS"
                )
            return cls("tumbling", (), us, 0, text)
        if kind == "within" or not aliases:
            return cls("window", (), us, 0, text)
        if len(aliases) != 2:
            raise WindowError(
                f"window {text!r} names {len(aliases)} aliases: write one item for each pair, as in WINDOW (a, b) = 10 SECONDS"
            )
        return cls(cast(Kind, kind), tuple(aliases), us, 0, text)

    def edges(self, aliases: Sequence[str]) -> Iterator[Edge]:
        """The edges among the aliases of a query; the item's own aliases are already spelled as in FROM."""
        if self.kind in ("window", "tumbling") and not self.aliases:
            for x, y in combinations(aliases, 2):
                yield from symmetric_edges(x, y, self.us, self.text)
        elif self.kind == "window":
            x, y = self.aliases
            yield from symmetric_edges(x, y, self.us, self.text)
        elif self.kind == "dwindow":
            x, y = self.aliases
            yield from directed_edges(x, y, self.us, self.text)
        elif self.kind == "path" and len(self.hops) == 1:
            x, y = self.aliases
            yield from symmetric_edges(x, y, self.hops[0], self.text)
        elif self.kind == "range":
            (x,) = self.aliases
            yield from (Edge(x, y, self.us, f"{x} {self.text}") for y in aliases if y != x)

    @property
    def directions(self) -> tuple[list[Edge], ...]:
        """The edges of each direction of a PATH; none of other items, and of a single hop, which has no direction."""
        if len(self.hops) < 2:
            return ()
        steps = list(zip(pairwise(self.aliases), self.hops, strict=True))
        there = [edge for (x, y), us in steps for edge in directed_edges(x, y, us, self.text)]
        return there, [edge for (x, y), us in steps for edge in directed_edges(y, x, us, self.text)]


_COUNTED = re.compile(r"\s*(\d+)\s+(?:row|tuple)s?\s*", re.IGNORECASE)
"""A number of tuples, where a span of time is expected."""


def read_span(span: str | timedelta, text: str) -> int:
    """The microseconds of a window; `text` is the item for the message.

    >>> read_span("INTERVAL '10' MINUTES", "WINDOW = INTERVAL '10' MINUTES")
    600000000
    """
    if counted := _COUNTED.fullmatch(str(span)):
        raise WindowError(
            f"window {text!r} counts tuples, and WINDOW, DWINDOW, PATH and TUMBLING measure time: for the last {counted[1]} tuples of a stream write FROM stream alias [ROWS {counted[1]}];"
            f" for blocks of {counted[1]} tuples write FROM stream alias [TUMBLING {counted[1]} ROWS]"
        )
    try:
        us = parse_us(span)
    except (WindowError, AttributeError, TypeError, ArithmeticError) as error:
        raise WindowError(
            f"cannot read the window {text!r}: {str(span)!r} is not a span of time; write it as 10 MINUTES, 250 MILLISECONDS or 1 HOUR 30 MINUTES"
        ) from error
    if us <= 0:
        raise WindowError(
            f"window {text!r} is {'negative' if us < 0 else 'zero'}: a window must be longer than zero; for equal times write a.ts = b.ts"
        )
    if us > LONGEST_US:
        raise WindowError(f"window {text!r} is longer than any history: leave it out")
    return us


def read_rows(count: str | int, text: str) -> int:
    """n of [ROWS n] and [TUMBLING n ROWS].

    >>> read_rows("10", "[ROWS 10]")
    10
    """
    try:
        rows = int(str(count)) if str(count).isascii() else 0
    except ValueError:
        rows = 0
    if not 0 < rows < 2**31:
        raise WindowError(f"window {text!r}: ROWS takes a positive whole number, not {str(count)!r}")
    return rows


def read_tumbling_rows(inside: str, text: str) -> int:
    """n of [TUMBLING n ROWS], from `n ROWS`.

    >>> read_tumbling_rows("10 rows", "[TUMBLING 10 rows]")
    10
    """
    count, _, unit = inside.rpartition(" ")
    if unit.upper() not in ("ROW", "ROWS"):
        raise WindowError(
            f"window {text!r}: TUMBLING in brackets counts the tuples of a stream, as in FROM stream alias [TUMBLING 5 ROWS]; for windows of time write TUMBLING = 10 SECONDS after FROM"
        )
    return read_rows(count.strip(), text)


def choices_of(items: Iterable[WindowItem], aliases: Sequence[str]) -> list[list[Edge]]:
    """All edges of all items, once for every choice of directions that the PATHs leave."""
    items = list(items)
    paths = [item for item in items if item.directions]
    if len(paths) > MOST_PATHS:
        raise WindowError(
            f"{len(paths)} PATHs in one query: {MOST_PATHS} are supported, since each doubles the alternatives; give {paths[MOST_PATHS].text!r} a direction with DWINDOW"
        )
    always = [edge for item in items for edge in item.edges(aliases)]
    return [[*always, *(edge for way in choice for edge in way)] for choice in product(*(p.directions for p in paths))]
