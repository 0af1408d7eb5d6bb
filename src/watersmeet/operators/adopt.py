"""What a changed grid, and hot keys, ask of the units of a join: a unit takes what the grid of now gives it, one that begins to hold a hot key adopts it, and all tell which keys, and which
values, are frequent among their new tuples.

    home    a a a b b         a is the anchor: its tuples stay where they are
    adopts        b b         what the home has stored of the other sides, as it was before the batch

Invariant: after adoption a unit has, of a hot key, exactly what the home has of all sides but the anchor: what it had of the key before, copies from
a time when it was hot, is dropped. It is a function of the states before the batch, so a replay adopts alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import code_together
from watersmeet.dataflow.contract import Turn, first_unit
from watersmeet.kernels.frequent import MOST_SAMPLED, find_frequent, sample_positions
from watersmeet.operators.enter import WireContent
from watersmeet.plan.model import Plan, Side, Stage
from watersmeet.routing.biclique import Biclique, Cells
from watersmeet.routing.depth import Sample, sample_values
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import Resized
from watersmeet.routing.spread import Spread
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, key_columns

MOST_FREQUENT, RAREST = 16, 64
"""So many keys a unit tells of; of rarer ones than one tuple in so many it tells nothing, nor of single tuples, unless there are so few."""

CALM = "calm"
"""In a unit's memory: by side how often in a row it has found no frequent key, and the tuples that it looked at then."""
LOOKS, RISE, EVERY = 4, 1.25, 16
"""After so many looks in vain a unit looks again if so many times the tuples have come, or once in so many batches. A key that becomes hot brings more tuples."""


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


def take_shares(turn: Turn, plan: Plan, join: Stage, stage: int) -> None:
    """Where the grid has another size from this batch on: let a unit have what is its own under it, of all that is stored, and nothing else."""
    routing, first = join.routing, first_unit(stage)
    if not isinstance(routing, Resized):
        return
    unit, before = turn.unit - first, turn.state.snapshot()
    for number, side in enumerate(join.sides):
        mine = []
        for giver in routing.find_givers(number, unit):
            source = before if giver == unit else turn.peers.get(first + giver)
            for info in [] if source is None else source.segments.get(side.name, []):
                table = turn.store.read(info).table
                keep = routing.find_taken(number, unit, giver, WireContent(plan, side.keys, table))
                if keep.all() and giver == unit:
                    mine.append(info)
                elif keep.any():
                    mine.append(turn.store.write(Segment.of(table.filter(pa.array(keep)))))
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


def count_frequent(plan: Plan, join: Stage, segment: Segment, side: Side) -> dict[str, list[list[int]]]:
    """By dimension of the grid the most frequent keys among a side's new tuples, and how many of these have them, by a sample; dimensions without any are left out.

    The codes are those that the join looks up by. Only frequent keys, of which a uniform workload has none, are hashed for placement.
    """
    routing = join.routing
    grid = routing.grid if isinstance(routing, Spread) else routing
    if not isinstance(grid, Hypercube):
        return {}
    rows, out = sample_positions(segment.rows, MOST_SAMPLED), {}
    for number, (dim, share) in enumerate(zip(grid.dimensions, grid.shares, strict=True)):
        if share > 1 and set(dim) <= set(side.keys):
            columns = key_columns(plan, side.keys, dim)
            sample = code_together([segment.codes(name, kind)[rows] for name, kind in columns])
            at, counts = _find_all(sample) if len(rows) <= MOST_FREQUENT else find_frequent(sample, RAREST)
            if len(at):
                most = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
                kept = segment.table.select([name for name, _ in dict.fromkeys(columns)]).take(pa.array(rows[at[most]]))
                keys = WireContent(plan, side.keys, kept).key(dim)
                scale = segment.rows / len(rows)
                out[str(number)] = [
                    [int(k), round(n * scale)] for k, n in zip(keys, counts[most].tolist(), strict=True)
                ]
    return out


def is_due(turn: Turn, side: str, rows: int) -> bool:
    """Whether a unit looks at the keys of a side's new tuples in this batch: not where it has found nothing for some time, and no more tuples have come than then."""
    looks, most = turn.state.extra.get(CALM, {}).get(side, (0, 0))
    return looks < LOOKS or rows > RISE * most or (turn.batch + turn.unit) % EVERY == 0


def remember_look(turn: Turn, side: str, rows: int, *, found_any: bool) -> None:
    """Remember how often in a row a unit has looked in vain, and at how many tuples."""
    calm = {name: seen for name, seen in turn.state.extra.get(CALM, {}).items() if name != side}
    if not found_any:
        looks = turn.state.extra.get(CALM, {}).get(side, (0, 0))[0]
        calm[side] = [min(looks + 1, LOOKS), rows]
    turn.state.extra[CALM] = calm


def _find_all(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of few tuples all keys count: batches may be small."""
    _, at, counts = np.unique(sample, return_index=True, return_counts=True)
    return at, counts


def sample_range(plan: Plan, join: Stage, table: pa.Table, side: Side) -> Sample:
    """A sample of the values by which ranges route a side's tuples; none where they do not."""
    routing = join.routing
    if not isinstance(routing, Biclique) or not isinstance(routing.by, Cells):
        return []
    column = routing.by.columns[join.sides.index(side)]
    rows = sample_positions(table.num_rows, MOST_SAMPLED)
    return sample_values(WireContent(plan, side.keys, table.select([column]).take(pa.array(rows))).value(column))


def find_copies(plan: Plan, join: Stage, side: int, unit: int, table: pa.Table) -> np.ndarray | np.bool_:
    """Which tuples of a side are copies of hot keys', which another unit counts if they are late."""
    if not isinstance(join.routing, Spread):
        return np.False_
    return join.routing.find_copies(side, unit, WireContent(plan, join.sides[side].keys, table))


Frequent = Mapping[str, Mapping[str, list[list[int]]]]
"""By side and dimension, what `count_frequent` tells."""
