"""The shared plan, one unit, one batch: every new tuple walks the tries of all queries, then is stored once.

    inbox -> drop the late -> walk, fan out, drop repeats (DISTINCT), write answers -> advance watermarks -> drop the dead, store the living

A unit gets all tuples of the streams that its queries read, and answers the queries whose templates are dealt to it. So tuples
are stored once per unit, whatever the number of queries: that copies tuples by the number of units and shares everything else.

Invariant: as for `operators.join`: late against the maxima of the batches before, expiry with those including this batch;
deterministic in (inbox as a set, state, queries). What no living query can use is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.contract import Turn
from watersmeet.kernels.registered.probe_trie import LIMIT, walk
from watersmeet.plan.model import TIME
from watersmeet.registry.plan import BATCH, RegistryPlan
from watersmeet.registry.shared.answers import answers
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.shared.distinct import AnsweredRows
from watersmeet.registry.shared.fan_out import fan_out
from watersmeet.registry.shared.visible import Visible
from watersmeet.storage.segment import Segment, Settler


class SharedPlan:
    """One unit's turn over its compiled queries; `counts`: whether it books late rows."""

    def __init__(self, plan: RegistryPlan, compiled: Compiled, *, counts: bool) -> None:
        self.plan, self.compiled, self.counts = plan, compiled, counts

    def step(self, turn: Turn) -> Iterator[pa.Table]:
        """Yields tables of answers; when exhausted, state and store are those after the batch."""
        state, store = turn.state, turn.store
        new = {s: self._on_time(turn, s) for s in self.plan.streams}
        used = self.compiled.streams
        old = {s: [store.read(i) for i in state.segments.get(s, [])] for s in used}
        distinct = AnsweredRows(state, store)
        for block in self.compiled.blocks:
            for table in self._answers(block, old, new, distinct):
                turn.report.results += table.num_rows
                yield table
        distinct.settle(self.compiled.blocks, turn.clock.after)
        self._settle(turn, new, used)

    def _answers(
        self, block: Block, old: Mapping[str, list[Segment]], new: Mapping[str, Segment | None], distinct: AnsweredRows
    ) -> Iterator[pa.Table]:
        if all(new[s] is None for s in block.streams):
            return
        visible = Visible(self.plan, list(block.streams), block.columns, old, new)
        found = _gather(self._combinations(block, visible), LIMIT // 2)
        chunks = (pairs for templates, tuples in found for pairs in fan_out(block, visible, templates, tuples))
        for pairs in distinct.once(block, chunks):
            yield answers(block, pairs)

    def _combinations(self, block: Block, visible: Visible) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(len(block.streams)):
            yield from walk(block.trie, block.width, visible.kernel, number, visible.new_rows(number))

    def _on_time(self, turn: Turn, stream: str) -> Segment | None:
        """A stream's new tuples less the late ones, with their batch."""
        tables = [t for t in turn.inbox.pop(stream, []) if t.num_rows]
        if not tables:
            return None
        table = pa.concat_tables(tables).combine_chunks()
        turn.report.rows_in[stream] = table.num_rows
        table = turn.drop_late(stream, table, integers(table.column(TIME).combine_chunks()), counts=self.counts)
        if not table.num_rows or stream not in self.compiled.streams:
            return None
        return Segment.of(table.append_column(BATCH, pa.array(np.full(table.num_rows, turn.batch))))

    def _settle(self, turn: Turn, new: Mapping[str, Segment | None], used: set[str]) -> None:
        cuts, segments = self.compiled.cuts(turn.clock.after), turn.state.segments
        for stream in self.plan.streams:
            held = segments.get(stream, [])
            if stream in used:
                settler = Settler(turn.store, cuts[stream], self.compiled.retention_us(stream))
                segments[stream] = settler.settle(held, new[stream])
            else:
                for info in held:
                    turn.store.remove(info)
                segments[stream] = []
        turn.report.watermarks = turn.clock.after
        turn.report.retained = {s: n for s, n in turn.state.rows().items() if s in self.plan.streams}
        turn.report.bytes = turn.state.bytes()


def _gather(chunks: Iterator[tuple[np.ndarray, np.ndarray]], enough: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
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
