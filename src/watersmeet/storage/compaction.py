"""How a batch changes an alias' segments: expiry drops whole ones, compaction merges neighbours.

    dead      whole segments go by their max ts; when dead rows inside the oldest live segments pass a tenth of the
              living, those segments are rewritten without them
    compact   four neighbours of one size class (powers of four) become one segment of the next, as long as its span
              stays within the archive period (a tenth of the alias' retention) and its size within 32 MB

Invariant: live rows are never lost; retained rows are at most 1.1 times the living; the number of segments grows with the logarithm of the rows, up to the archive period.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3: the archive period, discarding whole sub-indexes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import is_

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, slice_by_bytes
from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

SEGMENT_BYTES = 32 * 2**20
MOST_SEGMENTS = 64
SLACK = 10
"""Dead rows may be a tenth of the living; an archive period is a tenth of the retention."""
FAN_IN = 4
Merge = Callable[[list[pa.Table]], Segment]


def compact(
    store: SegmentStore,
    infos: list[SegmentInfo],
    find_run: Callable[[list[SegmentInfo]], list[SegmentInfo]],
    merge: Merge,
) -> list[SegmentInfo]:
    """Segments in their order, where runs of them are merged to one as long as one is found."""
    while run := find_run(infos):
        whole = merge([store.read(info).table for info in run])
        for info in run:
            store.remove(info)
        at, merged = infos.index(run[0]), {info.id for info in run}
        left = [info for info in infos if info.id not in merged]
        infos = [*left[:at], store.write(whole), *left[at:]]
    return infos


def find_alike(infos: list[SegmentInfo]) -> list[SegmentInfo]:
    """FAN_IN segments or more of one size class, of the smallest that has so many, wherever they stand."""
    classes: dict[int, list[SegmentInfo]] = {}
    for info in infos:
        classes.setdefault(_size_class(info.rows), []).append(info)
    return next((same for _, same in sorted(classes.items()) if len(same) >= FAN_IN), [])


class Settler:
    """Applies one batch's changes to one alias' segments; `merge` makes one of several, by default with all their rows. Dead rows may be one of `slack` of the living."""

    def __init__(
        self, store: SegmentStore, cut_ts: int, retention_us: int, merge: Merge | None = None, slack: int = SLACK
    ) -> None:
        self.store, self.cut_ts, self.merge, self.slack = store, cut_ts, merge or concat, slack
        self.span_us = UNBOUNDED if retention_us >= UNBOUNDED else max(retention_us // SLACK, 1)

    def settle(self, infos: list[SegmentInfo], new: Segment | None) -> list[SegmentInfo]:
        """The live segments after the batch."""
        living = [i for i in infos if i.max_ts >= self.cut_ts]
        for dead in infos:
            if dead.max_ts < self.cut_ts:
                self.store.remove(dead)
        living = self._trim(living)
        if (new is None or not new.rows) and len(living) == len(infos) and all(map(is_, living, infos)):
            return list(infos)  # they have been compacted
        if new is not None and new.rows:
            alive = new if new.min_ts >= self.cut_ts else new.where(new.ts >= self.cut_ts)
            living += [self.store.write(piece) for piece in _pieces(alive)]
        return compact(self.store, sorted(living, key=lambda i: (i.max_ts, i.id)), self._find_run, self.merge)

    def _trim(self, infos: list[SegmentInfo]) -> list[SegmentInfo]:
        partly = [i for i in infos if i.min_ts < self.cut_ts]
        if not partly:
            return infos
        masks = {i.id: self.store.read(i).ts >= self.cut_ts for i in partly}
        dead = sum(int(np.count_nonzero(~m)) for m in masks.values())
        if dead * self.slack <= sum(i.rows for i in infos) - dead:
            return infos
        out = []
        for info in infos:
            if info.id in masks:
                segment = self.store.read(info).where(masks[info.id])
                self.store.remove(info)
                out.append(self.store.write(segment))
            else:
                out.append(info)
        return out

    def _find_run(self, infos: list[SegmentInfo]) -> list[SegmentInfo]:
        """The newest run of one size class that fits; with too many segments, the smallest neighbours that fit."""
        end = len(infos)
        while end >= FAN_IN:
            run = infos[end - FAN_IN : end]
            if len({_size_class(i.rows) for i in run}) == 1 and self._fits(run):
                return run
            end -= 1
        if len(infos) > MOST_SEGMENTS:
            neighbours = [infos[i : i + 2] for i in range(len(infos) - 1)]
            fitting = [pair for pair in neighbours if sum(i.bytes for i in pair) <= block_bytes(SEGMENT_BYTES)]
            return min(fitting, key=lambda pair: sum(i.rows for i in pair), default=[])
        return []

    def _fits(self, run: list[SegmentInfo]) -> bool:
        span = max(i.max_ts for i in run) - min(i.min_ts for i in run)
        return span <= self.span_us and sum(i.bytes for i in run) <= block_bytes(SEGMENT_BYTES)


def _size_class(rows: int) -> int:
    return int(math.log(max(rows, 1), FAN_IN))


def concat(tables: list[pa.Table]) -> Segment:
    """One segment of several tables."""
    return Segment.of(pa.concat_tables([t.select(tables[0].column_names) for t in tables]))


def _pieces(segment: Segment) -> list[Segment]:
    """A segment, cut where it is larger than a stored one may be."""
    if segment.rows == 0:
        return []
    if segment.table.nbytes <= block_bytes(SEGMENT_BYTES):
        return [segment]
    in_time = segment.table
    if not segment.is_ordered:
        in_time = in_time.take(pa.array(np.argsort(segment.ts, kind="stable")))
    return [Segment.of(block) for block in slice_by_bytes(in_time, SEGMENT_BYTES)]
