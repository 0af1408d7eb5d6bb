"""When a registry's units are others than before: what a unit takes over for the queries that it answers now.

    units 2        unit 0: queries a c e, tuples r s      unit 1: b d, tuples r t
    units 3        unit 0: a d       takes what d needs of t from unit 1, keeps what a needs
                   unit 1: b c       unit 2: e

Segments are files that all units reach, so nothing is sent (`routing.resize`). Of tuples a unit takes what its queries may still use (`registry.kept`), each from the first unit in whose
region it lies; of rows that DISTINCT has answered, those of its queries; of queries that share nothing their whole memory (`OwnAnswers.take_over`). When a preserved tuple
leaves is known from the clock and the stored tuples alone, so outer joins have nothing else to hand over.

Invariant: a unit stores exactly what its queries may use, whichever units had it. It reads memories as they were before the batch, so the order of turns is of no importance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Turn
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.kept import Region, find_needs, lie_in
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.shared.block import FOR_EVER, UNTIL
from watersmeet.registry.shared.compiled import Compiled, unit_of_query
from watersmeet.registry.shared.distinct import EFFECT_OF_ROW, QUERIES, QUERY_OF_ROW
from watersmeet.registry.subscription import Registered
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment, SegmentInfo


class Found(NamedTuple):
    """Rows of a segment that a unit takes."""

    info: SegmentInfo
    table: pa.Table
    keep: np.ndarray
    is_own: bool
    """Whether the segment is the unit's."""


def list_handed(compiled: Compiled, batch: int) -> dict[str, Registered]:
    """The queries of a unit for which something may be stored: those that took effect before this batch."""
    shared = {q.id: q for block in compiled.blocks for q in block.list_living()}
    return {id: q for id, q in (shared | compiled.own).items() if q.effect < batch}


def take_tuples(turn: Turn, plan: RegistryPlan, queries: Mapping[str, Registered], units_before: int) -> None:
    """Store what a unit's queries may use, and no other tuple."""
    needs = find_needs(plan, queries, turn.state.maxima, units_before)
    for stream in plan.streams:
        turn.state.segments[stream] = _put_together(turn, find_in_regions(turn, stream, needs.get(stream, {})))


def find_in_regions(turn: Turn, stream: str, regions: Mapping[int, Region]) -> Iterator[Found]:
    """The stored tuples of a stream that lie in some region, each from the first unit in whose region it lies; the unit's own come first."""
    order = sorted(regions, key=lambda unit: (unit != turn.unit, unit))
    areas = [regions[unit] for unit in order]
    for n, unit in enumerate(order):
        for info in list_stored(turn, unit, stream):
            table = turn.store.read(info).table
            keep = lie_in(areas[n : n + 1], table) & ~lie_in(areas[:n], table)
            yield Found(info, table, keep, unit == turn.unit)


def list_stored(turn: Turn, unit: int, kind: str) -> Sequence[SegmentInfo]:
    """What a unit had stored of a kind when the batch began."""
    state = turn.peers.get(unit)
    return [] if state is None else state.segments.get(kind, [])


def take_answered(turn: Turn, queries: Mapping[str, Registered], units_before: int) -> None:
    """Keep the rows that DISTINCT has answered for a unit's queries, and no others."""
    by_giver: dict[int, dict[str, int]] = {}
    for known in queries.values():
        if known.query.distinct and known.query.own is None:
            by_giver.setdefault(unit_of_query(known, units_before), {})[known.id] = known.effect
    for kind in [kind for kind in turn.state.segments if kind.startswith((UNTIL, FOR_EVER))]:
        del turn.state.segments[kind]
    turn.state.extra = {name: value for name, value in turn.state.extra.items() if name != QUERIES}
    givers = {unit: turn.peers[unit] for unit in by_giver if unit in turn.peers}
    for kind in sorted({k for state in givers.values() for k in state.segments if k.startswith((UNTIL, FOR_EVER))}):
        found = (rows for unit in sorted(givers) for rows in _find_answered(turn, unit, kind, by_giver[unit]))
        held = _put_together(turn, found)
        if held:
            turn.state.segments[kind] = held


def _find_answered(turn: Turn, unit: int, kind: str, effects: Mapping[str, int]) -> Iterator[Found]:
    names = pa.array(list(effects), pa.large_string())
    since = np.array(list(effects.values()), np.int64)
    for info in list_stored(turn, unit, kind):
        table = turn.store.read(info).table
        found = pc.index_in(table.column(QUERY_OF_ROW).combine_chunks(), names)
        known = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        effect = integers(table.column(EFFECT_OF_ROW).combine_chunks())
        yield Found(info, table, known & (since[integers(found.fill_null(0))] == effect), unit == turn.unit)


def _put_together(turn: Turn, found: Iterable[Found]) -> list[SegmentInfo]:
    """Segments of the rows that are taken; a segment of the unit's own that is taken whole stays as it is."""
    kept: list[SegmentInfo] = []
    parts: list[pa.Table] = []
    for rows in found:
        if rows.is_own and rows.keep.all():
            kept.append(rows.info)
        elif rows.keep.any():
            parts.append(rows.table.filter(pa.array(rows.keep)))
    new = Segment.of(pa.concat_tables([p.select(parts[0].column_names) for p in parts])) if parts else None
    return Settler(turn.store, NEVER, UNBOUNDED).settle(sorted(kept, key=lambda i: (i.max_ts, i.id)), new)
