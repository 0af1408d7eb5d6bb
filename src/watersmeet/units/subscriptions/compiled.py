"""The queries of one unit, compiled, as they come and go.

    [ 20,000 queries ][ 300 ][ 7 ]        blocks; a query that leaves is struck out, those that come make a new block

Neighbours are compiled anew as one block when the newer is more than a quarter of the older, so adding one query to many costs
little, and a step walks few tries. A process keeps what it has compiled: a unit's next batch finds it.

Invariant: the living queries of all blocks are exactly those of the batch; how they lie in blocks changes no answer.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from typing import Any

from watersmeet.plan.subscription import Template, hull
from watersmeet.query.window import UNBOUNDED
from watersmeet.units.subscriptions.block import Block, Registered
from watersmeet.units.watermark import NEVER

_SMALL = 4
"""A block stays apart if it is less than a fourth of the one before."""


def unit_of(template: Template, units: int) -> int:
    """Where all queries of a template are answered.

    >>> unit_of(Template(("r", "s"), ((0, "k", 1, "k", "integer"),), ((0, 5), (5, 0))), 1)
    0
    """
    return zlib.crc32(template.text.encode()) % units


def cuts_of(hull: Mapping[tuple[str, str], int], marks: Mapping[str, int]) -> dict[str, int]:
    """By stream the time before which its tuples meet no later one: `hull` says how much younger y may be than x.

    >>> cuts_of({("r", "s"): 5, ("s", "r"): UNBOUNDED}, {"r": 20, "s": 30}) == {"r": 25, "s": NEVER}
    True
    """
    out: dict[str, int] = {}
    for (x, y), hi in hull.items():
        cut = NEVER if hi >= UNBOUNDED or marks[y] <= NEVER else marks[y] - hi
        out[x] = min(out.get(x, cut), cut)
    return out


class Compiled:
    """The blocks of one unit."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._where: dict[str, tuple[Block, Registered]] = {}
        self._hull: dict[tuple[str, str], int] = {}
        self.stands_for: dict[str, Any] | None = None
        """What a batch's intent said of the queries that are held."""

    def become(self, queries: Mapping[str, Registered]) -> None:
        """Hold exactly these queries."""
        gone = [id for id, (_, known) in self._where.items() if queries.get(id) != known]
        for id in gone:
            self._where.pop(id)[0].strike(id)
        fresh = [q for id, q in queries.items() if id not in self._where]
        if gone or fresh:
            self._settle(fresh)
            self._hull = hull(q.query for _, q in self._where.values())

    def _settle(self, fresh: list[Registered]) -> None:
        """Lay new queries down as a block, and merge blocks that are small or half dead."""
        blocks = [b for b in self.blocks if b.alive]
        while blocks and (blocks[-1].alive <= _SMALL * len(fresh) or 2 * blocks[-1].alive < blocks[-1].size):
            fresh = [*blocks.pop().living(), *fresh]
        if fresh:
            blocks.append(Block(fresh))
            self._where |= {q.id: (blocks[-1], q) for q in fresh}
        self.blocks = blocks

    @property
    def streams(self) -> set[str]:
        """The streams that some query reads."""
        return {stream for stream, _ in self._hull}

    @property
    def count(self) -> int:
        return len(self._where)

    def cuts(self, marks: Mapping[str, int]) -> dict[str, int]:
        """By stream the time before which no living query can use a tuple any more."""
        return cuts_of(self._hull, marks)

    def retention_us(self, stream: str) -> int:
        """How long a stream's tuples can meet later ones."""
        return max((hi for (x, _), hi in self._hull.items() if x == stream), default=UNBOUNDED)


_COMPILED: dict[tuple[str, int], Compiled] = {}
_LOCK = threading.Lock()


def compiled_in_process(registry: str, unit: int) -> Compiled:
    """What this process has compiled for a unit of a registry."""
    with _LOCK:
        return _COMPILED.setdefault((registry, unit), Compiled())
