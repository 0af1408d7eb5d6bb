"""Queries that are answered from stored tuples first: what the batch in which they take effect does for them.

    batch n - 1   kept: what some query may still use (`registry.kept`), at the units that have these queries
    batch n       the unit of a new query gathers the kept tuples of its streams, its own and those of others
                  old x old       answered here, by a block of the new queries alone, to which all of them are new
                  old x new       answered as ever: the gathered tuples are the unit's stored ones from now on
    batch n + 1   as ever

    unit 0   r: t1 t2 t3            a new query over r, s at unit 1        unit 1   r: t1 t2 t3
    unit 1   s: t4                  takes t1, t2, t3 from unit 0                    s: t4

Invariant: a combination of kept tuples is answered in batch n, one with a tuple of batch n or later when its last member arrives; both once. What the unit stores
of these streams after batch n is exactly what was kept, and what came since, so the answers do not depend on which dead tuples lay somewhere. Other queries of the unit
find nothing new: a tuple that no query of the unit could use came before their effects, or lies before their cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Turn
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.kept import find_needs
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.shared.handover import find_in_regions
from watersmeet.registry.versions import BEFORE, Queries, RegistryView, get_or_make
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment


@dataclass(frozen=True)
class Backfill:
    """New queries of a unit, and the kept tuples of their streams."""

    block: Block
    kept: Mapping[str, Segment | None]

    @classmethod
    def find(
        cls,
        plan: RegistryPlan,
        registry: Queries,
        decided: Mapping[str, Any],
        compiled: Compiled,
        turn: Turn,
        units_before: int,
    ) -> Backfill | None:
        """What there is to do in a batch; None in almost all. So many units have stored what is kept."""
        if BEFORE not in decided:
            return None
        living = (q for block in compiled.blocks for q in block.list_living())
        fresh = [q for q in living if q.backfill and q.effect == turn.batch]
        if not fresh:
            return None
        block = Block(fresh)
        needs = find_needs(plan, _read_before(registry, decided), turn.state.maxima, units_before)
        kept = {}
        for stream in block.streams:
            found = find_in_regions(turn, stream, needs.get(stream, {}))
            kept[stream] = _join([rows.table.filter(pa.array(rows.keep)) for rows in found])
        return cls(block, kept)

    def replace_stored(self, turn: Turn) -> None:
        """Let the kept tuples be the unit's stored ones."""
        for stream, segment in self.kept.items():
            for info in turn.state.segments.get(stream, []):
                turn.store.remove(info)
            turn.state.segments[stream] = Settler(turn.store, NEVER, UNBOUNDED).settle([], segment)


def _read_before(registry: Queries, decided: Mapping[str, Any]) -> Mapping[str, Any]:
    """The queries of the batch before; a process keeps its own view of them, since the other one is ahead."""
    return get_or_make(registry.name, "view before", lambda: RegistryView(registry.log)).at(decided[BEFORE])


def _join(parts: Sequence[pa.Table]) -> Segment | None:
    found = [part for part in parts if part.num_rows]
    return Segment.of(pa.concat_tables([p.select(found[0].column_names) for p in found])) if found else None
