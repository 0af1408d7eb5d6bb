"""GROUP BY, second phase: local views of many units and batches become one global view.

A merger keeps the groups of one share of the hashes. What it gets in a batch it merges once, stores as a new segment, and
merges with what older segments hold of the same groups:

    views of the batch --merge--> new --+-- older rows of these groups, by hash --merge--> the groups' current values
                                        `-> a segment; four segments of one size class become one, groups merged

Invariant: the value of a group is the merge of its rows in all segments. So nothing is rewritten when a group changes, and
the rows kept are at most a few times the groups.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.4.2, the merger, with batched updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.row_hash import HASH, row_hash
from watersmeet.dataflow.clock import TIMELESS, Clock
from watersmeet.dataflow.contract import Turn, Yielded
from watersmeet.kernels.hash_window import rows_with
from watersmeet.operators.finish.distinct import KEPT, LEFT
from watersmeet.operators.finish.views import compute_values, empty_view, merge_views, update_view
from watersmeet.plan.model import TIME, Plan
from watersmeet.storage.compaction import compact, find_alike
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentStore


@dataclass(frozen=True)
class GroupUnits:
    """The units that keep groups."""

    plan: Plan

    def step(self, turn: Turn) -> Iterator[Yielded]:
        """The values of every group that has changed."""
        turn.listen()
        views = turn.inbox.pop(LEFT, [])
        if not views:
            return
        infos = turn.state.segments.setdefault(KEPT, [])
        new = merge_views(self.plan, views)
        hashes = group_hash(self.plan, new)
        old = [_rows_of(turn.store.read(info), np.unique(hashes)) for info in infos]
        infos.append(turn.store.write(_segment(self.plan, new)))
        turn.state.segments[KEPT] = compact(turn.store, infos, find_alike, self._merge)
        yield compute_values(self.plan, update_view(self.plan, new, old))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Groups stay."""
        return {}

    def _merge(self, views: list[pa.Table]) -> Segment:
        return _segment(self.plan, merge_views(self.plan, views))

    def groups(self, state: Manifest, store: SegmentStore) -> pa.Table:
        """The merged view of all groups that a unit keeps."""
        infos = state.segments.get(KEPT, [])
        if not infos:
            return empty_view(self.plan)
        return merge_views(self.plan, [store.read(info).table for info in infos])


def group_hash(plan: Plan, view: pa.Table) -> np.ndarray:
    """The hash of every group's keys."""
    assert plan.join.grouping is not None
    keys = [f"g{n}" for n in range(plan.join.grouping.keys)]
    return row_hash(view.select(keys)) if keys else np.zeros(view.num_rows, np.int64)


def _segment(plan: Plan, view: pa.Table) -> Segment:
    """Groups have no event time: they never expire."""
    times = pa.array(np.full(view.num_rows, TIMELESS))
    return Segment.of(view.append_column(TIME, times).append_column(HASH, pa.array(group_hash(plan, view))))


def _rows_of(segment: Segment, hashes: np.ndarray) -> pa.Table:
    """The rows whose hash is among these."""
    return segment.table.take(pa.array(rows_with(segment.index_by(HASH), hashes)))
