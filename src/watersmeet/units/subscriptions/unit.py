"""The shared plan, one unit, one batch: every new tuple walks the tries of all queries, then is stored once.

    inbox -> drop the late -> walk, fan out, drop repeats (DISTINCT), write answers -> advance watermarks -> drop the dead, store the living

A unit gets all tuples of the streams that its queries read, and answers the queries whose templates are dealt to it. So tuples
are stored once per unit, whatever the number of queries: that copies tuples by the number of units and shares everything else.

Invariant: as for `units.join_unit`: late against the maxima of the batches before, expiry with those including this batch;
deterministic in (inbox as a set, state, queries). What no living query can use is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.kernels.probe_trie import LIMIT, walk
from watersmeet.plan.catalogue import BATCH, Catalogue
from watersmeet.plan.model import TIME
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import StepReport
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.settle import Settler
from watersmeet.units.state import Manifest
from watersmeet.units.subscriptions.answers import answers
from watersmeet.units.subscriptions.block import Block
from watersmeet.units.subscriptions.compiled import Compiled
from watersmeet.units.subscriptions.distinct import Distinct
from watersmeet.units.subscriptions.fan_out import fan_out
from watersmeet.units.subscriptions.visible import Visible
from watersmeet.units.watermark import advance, watermarks


@dataclass
class Arrived:
    """What a batch brings a unit: its number, tuples by stream, maxima; `counts` names streams whose late rows it books."""

    batch: int
    tables: dict[str, list[pa.Table]]
    seen: Mapping[str, int]
    counts: frozenset[str]


class SharedPlan:
    """One unit's step over its compiled queries."""

    def __init__(self, plan: Catalogue, compiled: Compiled) -> None:
        self.plan, self.compiled = plan, compiled
        self.report = StepReport()

    def step(self, arrived: Arrived, manifest: Manifest, store: SegmentStore) -> Iterator[pa.Table]:
        """Yields tables of answers; when exhausted, manifest and store hold the state after the batch."""
        marks = watermarks(self.plan, manifest.maxima)
        new = {s: self._on_time(s, arrived, marks[s], manifest) for s in self.plan.join.streams}
        used = self.compiled.streams
        old = {s: [store.read(i) for i in manifest.segments.get(s, [])] for s in used}
        distinct = Distinct(manifest, store)
        for block in self.compiled.blocks:
            for table in self._answers(block, old, new, distinct):
                self.report.results += table.num_rows
                yield table
        manifest.maxima = advance(manifest.maxima, arrived.seen)
        distinct.settle(self.compiled.blocks, watermarks(self.plan, manifest.maxima))
        self._settle(manifest, store, new, used)

    def _answers(
        self, block: Block, old: Mapping[str, list[Segment]], new: Mapping[str, Segment | None], distinct: Distinct
    ) -> Iterator[pa.Table]:
        if all(new[s] is None for s in block.streams):
            return
        visible = Visible(self.plan, list(block.streams), block.columns, old, new)
        found = _gathered(self._combinations(block, visible), LIMIT // 2)
        chunks = (pairs for templates, tuples in found for pairs in fan_out(block, visible, templates, tuples))
        for pairs in distinct.once(block, chunks):
            yield answers(block, pairs)

    def _combinations(self, block: Block, visible: Visible) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(len(block.streams)):
            yield from walk(block.trie, block.width, visible.kernel, number, visible.new_rows(number))

    def _on_time(self, stream: str, arrived: Arrived, mark: int, manifest: Manifest) -> Segment | None:
        """A stream's new tuples less the late ones, with their batch."""
        tables = [t for t in arrived.tables.pop(stream, []) if t.num_rows]
        if not tables:
            return None
        table = pa.concat_tables(tables).combine_chunks()
        self.report.rows_in[stream] = table.num_rows
        late = integers(table.column(TIME).combine_chunks()) < mark
        if late.any():
            if stream in arrived.counts:
                rows = int(np.count_nonzero(late))
                manifest.late[stream] = manifest.late.get(stream, 0) + rows
                self.report.late[stream] = rows
            table = table.filter(pa.array(~late))
        if not table.num_rows or stream not in self.compiled.streams:
            return None
        return Segment.of(table.append_column(BATCH, pa.array(np.full(table.num_rows, arrived.batch))))

    def _settle(
        self, manifest: Manifest, store: SegmentStore, new: Mapping[str, Segment | None], used: set[str]
    ) -> None:
        marks = watermarks(self.plan, manifest.maxima)
        cuts = self.compiled.cuts(marks)
        for stream in self.plan.join.streams:
            held = manifest.segments.get(stream, [])
            if stream in used:
                settler = Settler(store, cuts[stream], self.compiled.retention_us(stream))
                manifest.segments[stream] = settler.settle(held, new[stream])
            else:
                for info in held:
                    store.remove(info)
                manifest.segments[stream] = []
        self.report.watermarks = marks
        self.report.retained = {s: n for s, n in manifest.rows().items() if s in self.plan.join.streams}
        self.report.bytes = manifest.bytes()


def _gathered(chunks: Iterator[tuple[np.ndarray, np.ndarray]], enough: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same combinations in chunks that are worth the calls that each one costs."""
    held: list[tuple[np.ndarray, np.ndarray]] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk[0])
        if size >= enough:
            yield np.concatenate([t for t, _ in held]), np.concatenate([r for _, r in held])
            held, size = [], 0
    if held:
        yield np.concatenate([t for t, _ in held]), np.concatenate([r for _, r in held])
