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

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.kernels import hash_window
from watersmeet.kernels.expand import pairs
from watersmeet.plan.model import TIME, Plan
from watersmeet.units.deduplicator import KEPT
from watersmeet.units.row_hash import HASH, row_hash
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.settle import FAN_IN
from watersmeet.units.state import Manifest, SegmentInfo
from watersmeet.units.views import empty_view, merged, updated
from watersmeet.units.watermark import TIMELESS


class Merger:
    """One unit of the second stage."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def step(self, views: Sequence[pa.Table], manifest: Manifest, store: SegmentStore) -> pa.Table:
        """The merged view of every group that has changed."""
        infos = manifest.segments.setdefault(KEPT, [])
        new = merged(self.plan, views)
        hashes = group_hash(self.plan, new)
        old = [_rows_of(store.read(info), hashes) for info in infos]
        infos.append(store.write(_segment(self.plan, new)))
        manifest.segments[KEPT] = self._compacted(infos, store)
        return updated(self.plan, new, old)

    def groups(self, manifest: Manifest, store: SegmentStore) -> pa.Table:
        """The merged view of all groups."""
        infos = manifest.segments.get(KEPT, [])
        if not infos:
            return empty_view(self.plan)
        return merged(self.plan, [store.read(info).table for info in infos])

    def _compacted(self, infos: list[SegmentInfo], store: SegmentStore) -> list[SegmentInfo]:
        while True:
            classes: dict[int, list[SegmentInfo]] = {}
            for info in infos:
                classes.setdefault(int(math.log(max(info.rows, 1), FAN_IN)), []).append(info)
            run = next((same for _, same in sorted(classes.items()) if len(same) >= FAN_IN), None)
            if run is None:
                return infos
            whole = _segment(self.plan, merged(self.plan, [store.read(info).table for info in run]))
            for info in run:
                store.remove(info)
            infos = [*(i for i in infos if i not in run), store.write(whole)]


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
    """The rows whose hash is among these, each once."""
    once = np.unique(hashes)
    index, when = segment.index_by(HASH), np.full(len(once), TIMELESS)
    first, count = hash_window.probe(index, once, when, when)
    found = [row_idx for _, row_idx in pairs(first, count, index.rows, max(int(count.sum()), 1))]
    return segment.table.take(pa.array(np.concatenate([np.empty(0, np.int64), *found])))
