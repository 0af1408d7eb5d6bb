"""What hot keys ask of the units of a join: a unit that begins to hold one adopts it, and all tell which keys, and which values, are frequent among their new tuples.

    home    a a a b b         a is the anchor: its tuples stay where they are
    adopts        b b         what the home has stored of the other sides, as it was before the batch

Invariant: after adoption a unit has, of a hot key, exactly what the home has of all sides but the anchor: what it had of the key before, copies from
a time when it was hot, is dropped. It is a function of the states before the batch, so a replay adopts alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.contract import Turn, first_unit
from watersmeet.operators.enter import WireContent
from watersmeet.plan.model import Plan, Side, Stage
from watersmeet.routing.biclique import Biclique, Cells
from watersmeet.routing.depth import Sample, sample_values
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.spread import Spread
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo

SAMPLE = 512
"""So many new tuples of a side a unit looks at in a batch."""
MOST_FREQUENT, RAREST = 16, 64
"""So many keys a unit tells of; of rarer ones than one tuple in so many it tells nothing, nor of single tuples, unless there are so few."""


def adopt_keys(turn: Turn, plan: Plan, join: Stage, stage: int) -> None:
    """Let a unit take over what it needs of the keys that it begins to hold."""
    if not isinstance(join.routing, Spread):
        return
    first = first_unit(stage)
    for hot, giver in join.routing.find_adopted(turn.unit - first):
        dim = join.routing.grid.dimensions[hot.dimension]
        for number, side in enumerate(join.sides):
            if not set(dim) <= set(side.keys):
                continue
            mine = _select(turn, plan, side, dim, hot.key, turn.state, inside=False)
            source = turn.peers.get(first + giver)
            if number != hot.anchor and source is not None:
                mine += _select(turn, plan, side, dim, hot.key, source, inside=True)
            turn.state.segments[side.name] = sorted(mine, key=lambda i: (i.max_ts, i.id))


def _select(
    turn: Turn, plan: Plan, side: Side, dim: tuple[int, ...], key: int, state: Manifest, *, inside: bool
) -> list[SegmentInfo]:
    """The segments of a unit's side with the tuples of a key alone, or without them."""
    out = []
    for info in state.segments.get(side.name, []):
        segment = turn.store.read(info)
        keep = (WireContent(plan, side.keys, segment.table).key(dim) == key) == inside
        if keep.all() and not inside:
            out.append(info)
        elif keep.any():
            out.append(turn.store.write(Segment.of(segment.table.filter(pa.array(keep)))))
    return out


def count_frequent(plan: Plan, join: Stage, table: pa.Table, side: Side) -> dict[str, list[list[int]]]:
    """By dimension of the grid the most frequent keys among a side's tuples, and how many of these have them, by a sample."""
    routing = join.routing
    grid = routing.grid if isinstance(routing, Spread) else routing
    if not isinstance(grid, Hypercube):
        return {}
    step = -(-table.num_rows // SAMPLE)
    rows = np.arange(0, table.num_rows, step)
    out = {}
    for number, (dim, share) in enumerate(zip(grid.dimensions, grid.shares, strict=True)):
        if share > 1 and set(dim) <= set(side.keys):
            names = list(dict.fromkeys(side.keys[c] for c in dim))
            sample = table.select(names).take(pa.array(rows))
            found, counts = np.unique(WireContent(plan, side.keys, sample).key(dim), return_counts=True)
            is_small = len(rows) <= MOST_FREQUENT
            often = np.flatnonzero(((counts > 1) | is_small) & (counts * RAREST > len(rows)))
            most = often[np.argsort(-counts[often], kind="stable")][:MOST_FREQUENT]
            scale = table.num_rows / len(rows)
            out[str(number)] = [[int(found[i]), round(float(counts[i]) * scale)] for i in most]
    return out


def sample_range(plan: Plan, join: Stage, table: pa.Table, side: Side) -> Sample:
    """A sample of the values by which ranges route a side's tuples; none where they do not."""
    routing = join.routing
    if not isinstance(routing, Biclique) or not isinstance(routing.by, Cells):
        return []
    column = routing.by.columns[join.sides.index(side)]
    rows = np.arange(0, table.num_rows, -(-table.num_rows // SAMPLE))
    return sample_values(WireContent(plan, side.keys, table.select([column]).take(pa.array(rows))).value(column))


def find_copies(plan: Plan, join: Stage, side: int, unit: int, table: pa.Table) -> np.ndarray | np.bool_:
    """Which tuples of a side are copies of hot keys', which another unit counts if they are late."""
    if not isinstance(join.routing, Spread):
        return np.False_
    return join.routing.find_copies(side, unit, WireContent(plan, join.sides[side].keys, table))


Frequent = Mapping[str, Mapping[str, list[list[int]]]]
"""By side and dimension, what `count_frequent` tells."""
