"""The queries of one unit, compiled, as they come and go.

    [ 20,000 queries ][ 300 ][ 7 ]        blocks; a query that leaves is struck out, those that come make a new block

Neighbours are compiled anew as one block when the newer is more than a quarter of the older, so adding one query to many costs
little, and a step walks few tries. A process keeps what it has compiled: a unit's next batch finds it.

Invariant: the living queries of all blocks are exactly those of the batch; how they lie in blocks changes no answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from watersmeet.registry.shared.block import Block
from watersmeet.registry.subscription import Registered
from watersmeet.registry.template import Template, hull
from watersmeet.registry.versions import Queries, get_or_make

_SMALL = 4
"""A block stays apart if it is less than a fourth of the one before."""


def unit_of(template: Template, units: int) -> int:
    """Where all queries of a template are answered.

    >>> unit_of(Template(("r", "s"), ((0, "k", 1, "k", "integer"),), ((0, 5), (5, 0))), 1)
    0
    """
    return template.place % units


def unit_of_query(known: Registered, units: int) -> int:
    """Where a query is answered: those that watch one stream have one template, and are spread by their ids; those that share nothing, by their texts."""
    if known.query.own is not None:
        return own_place(known.query.own) % units
    if len(known.query.template.streams) > 1:
        return unit_of(known.query.template, units)
    return zlib.crc32(known.id.encode()) % units


def own_place(sql: str) -> int:
    """A number by which queries that share nothing are dealt to units: those of one text are answered together."""
    return zlib.crc32(sql.encode())


def find_own_places(queries: Iterable[Registered]) -> dict[str, list[int]]:
    """By stream the places of those that share nothing and read it."""
    out: dict[str, set[int]] = {}
    for query in (known.query for known in queries if known.query.own is not None):
        for stream in query.template.streams:
            out.setdefault(stream, set()).add(own_place(query.own or ""))
    return {stream: sorted(places) for stream, places in sorted(out.items())}


class Compiled:
    """The blocks of one unit."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._where: dict[str, tuple[Block, Registered]] = {}
        self._hull: dict[tuple[str, str], int] = {}
        self.hull: dict[tuple[str, str], int] = {}
        """For every ordered pair of streams the largest y.ts - x.ts that some query allows: what expiry goes by."""
        self._streams: set[str] = set()
        self.own: dict[str, Registered] = {}
        """Queries that run as dataflows of their own. They keep what they need themselves; tuples that they may use are stored beside, for one-time queries and for those that begin with stored tuples."""
        self.stands_for: tuple[dict[str, Any], int] | None = None
        """What a batch's intent said of the queries that are held, and of how many units."""

    def become(self, queries: Mapping[str, Registered]) -> None:
        """Hold exactly these queries; if they cannot be compiled, none."""
        try:
            self._become(queries)
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Hold nothing. Blocks keep parts of queries that have left; if a turn breaks, one of them may be why, and the next turn should not have it."""
        self.blocks, self._where, self._hull, self._streams, self.stands_for = [], {}, {}, set(), None

    def _become(self, queries: Mapping[str, Registered]) -> None:
        gone = [id for id, (_, known) in self._where.items() if (q := queries.get(id)) is not known and q != known]
        struck: dict[Block, list[str]] = {}
        for id in gone:
            struck.setdefault(self._where.pop(id)[0], []).append(id)
        for block, ids in struck.items():
            block.strike(ids)
        fresh = [q for id, q in queries.items() if id not in self._where]
        if gone or fresh:
            self._settle(fresh)
            self._hull = {}
            self._streams = {stream for block in self.blocks for stream in block.list_streams()}
            for block in self.blocks:
                _widen(self._hull, block.hull())

    def take_own(self, queries: Mapping[str, Registered]) -> None:
        """Hold these queries beside the blocks."""
        self.own, self.hull = dict(queries), dict(self._hull)
        _widen(self.hull, hull(q.query.template for q in queries.values()))

    def _settle(self, fresh: list[Registered]) -> None:
        """Lay new queries down as a block, and merge blocks that are small or half dead."""
        blocks = [b for b in self.blocks if b.alive]
        while blocks and (blocks[-1].alive <= _SMALL * len(fresh) or 2 * blocks[-1].alive < blocks[-1].size):
            fresh = [*blocks.pop().list_living(), *fresh]
        if fresh:
            blocks.append(Block(fresh))
            self._where |= {q.id: (blocks[-1], q) for q in fresh}
        self.blocks = blocks

    @property
    def streams(self) -> set[str]:
        """The streams that some query of a block reads."""
        return self._streams


def _widen(hull: dict[tuple[str, str], int], other: Mapping[tuple[str, str], int]) -> None:
    for pair, hi in other.items():
        hull[pair] = max(hull.get(pair, hi), hi)


def find_compiled(registry: str, unit: int) -> Compiled:
    """What this process has compiled for a unit of a registry."""
    return get_or_make(registry, ("compiled", unit), Compiled)


def compile_share(registry: Queries, decided: Mapping[str, Any], unit: int, units: int) -> Compiled:
    """A unit's share of the queries that a batch answers."""
    compiled = find_compiled(registry.name, unit)
    if compiled.stands_for != (decided, units):
        live = registry.at(decided)
        mine = {i: q for i, q in live.items() if unit_of_query(q, units) == unit}
        compiled.become({i: q for i, q in mine.items() if q.query.own is None})
        compiled.take_own({i: q for i, q in mine.items() if q.query.own is not None})
        compiled.stands_for = dict(decided), units
    return compiled
