"""The shared plan as a dataflow: one stage, whose units answer. Every new tuple walks the tries of all queries, then is stored once.

    round 0   tuples of all streams that some query reads -> every unit, which answers its share of the queries

    [take over what other units have for this unit's queries ->] [gather stored tuples for new queries with backfill ->] inbox -> drop the late -> walk, fan out, drop repeats (DISTINCT), write answers -> advance watermarks -> drop the dead, store the living

A unit gets all tuples of the streams that its queries read, and answers the queries whose templates are dealt to it. So tuples
are stored once per unit, whatever the number of queries: that copies tuples by the number of units and shares everything else.

Invariant: which queries a batch answers is what it has decided (`decisions["queries"]`), whatever the registry holds by now. As for
`operators.join`: late against the maxima of the batches before, expiry with those including this batch; deterministic in (inbox as a
set, state, queries). What no living query can use is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import Clock, Seen, stream_cuts
from watersmeet.dataflow.contract import HERE, Dataflow, Flows, FlowStage, Message, Origin, Turn, Yielded
from watersmeet.dataflow.report import merge_figures
from watersmeet.errors import QuotaError
from watersmeet.kernels.registered.probe_trie import LIMIT, walk
from watersmeet.plan.model import TIME
from watersmeet.registry.faults import blame_queries
from watersmeet.registry.placement import Placement, read_placement
from watersmeet.registry.plan import BATCH, RegistryPlan
from watersmeet.registry.shared.backfill import Backfill
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import Compiled, compile_share
from watersmeet.registry.shared.distinct import AnsweredRows
from watersmeet.registry.shared.fan_out import Pairs, fan_out, gather
from watersmeet.registry.shared.handover import list_handed, take_answered, take_tuples
from watersmeet.registry.shared.meter import Meter
from watersmeet.registry.shared.unmatched import Unmatched, is_due
from watersmeet.registry.shared.visible import Visible
from watersmeet.registry.subscription import Registered
from watersmeet.registry.template import retention_us
from watersmeet.registry.versions import Queries
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment, weigh_indexes

_Part = tuple[Block, Mapping[str, list[Segment]], Mapping[str, Segment | None]]
"""Queries, and the stored and the new tuples that they are answered from."""


class OwnAnswers(Protocol):
    """Who runs queries that share nothing; it travels to the workers."""

    def answer(
        self, turn: Turn, queries: Mapping[str, Registered], new: Mapping[str, Segment | None]
    ) -> Iterator[pa.Table]:
        """Their answers to new tuples; when exhausted, the unit's state has what they keep, and nothing of others, and its report what they took."""

    def take_over(self, turn: Turn, queries: Mapping[str, Registered], units_before: int) -> None:
        """Let a unit's state have what so many units kept of these, and of no others."""


@dataclass(frozen=True)
class SharedPlanFlows(Flows):
    """Every unit evaluates its share of the queries by one trie of probes."""

    plan: RegistryPlan
    registry: Queries
    own: OwnAnswers

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        placement = read_placement(decisions.get("routing") or (), self.plan.units)
        operator = Answer(self.plan, self.registry, self.own, decisions["queries"], placement)
        entries = {stream: ToAll(stream, placement.units) for stream in decisions["read"]}
        return Dataflow(self.plan.streams, (FlowStage(operator, placement.awake, wakes=True),), entries, 1)


@dataclass(frozen=True)
class ToAll:
    """A stream's tuples to all units."""

    stream: str
    units: int
    stage: int = 0

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        return Seen(), (Message(unit, self.stream, wire) for unit in range(self.units))


@dataclass(frozen=True)
class Answer:
    """A unit's answers to its share of a batch's queries."""

    plan: RegistryPlan
    registry: Queries
    own: OwnAnswers
    queries: Mapping[str, Any]
    placement: Placement

    def step(self, turn: Turn) -> Iterator[Yielded]:
        return blame_queries(self._answer(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """All units run in every batch."""
        return {}

    def _answer(self, turn: Turn) -> Iterator[Yielded]:
        """Yields tables of answers; when exhausted, state and store are those after the batch."""
        compiled = compile_share(self.registry, self.queries, turn.unit, self.placement.units)
        try:
            yield from self._answer_compiled(turn, compiled)
        except QuotaError:
            raise
        except Exception:
            compiled.forget()
            raise

    def _answer_compiled(self, turn: Turn, compiled: Compiled) -> Iterator[Yielded]:
        state, store = turn.state, turn.store
        if self.placement.before:
            self._take_over(turn, compiled)
        used, stored_by = compiled.streams, len(self.placement.stored)
        fill = Backfill.find(self.plan, self.registry, self.queries, compiled, turn, stored_by)
        if fill is not None:
            fill.replace_stored(turn)
        alone = {stream for known in compiled.own.values() for stream in known.query.template.streams}
        new = {s: self._on_time(turn, s, used | alone) for s in self.plan.streams}
        old = {s: [store.read(i) for i in state.segments.get(s, [])] for s in used}
        distinct, meter = AnsweredRows(state, store), Meter(self.plan.quotas)
        parts: list[_Part] = [] if fill is None else [(fill.block, {}, fill.kept)]
        for block, stored, fresh in [*parts, *((block, old, new) for block in compiled.blocks)]:
            for table in meter.time(block, self._answers(block, stored, fresh, turn.clock, distinct, meter)):
                turn.report.results += table.num_rows
                yield table
        yield from self.own.answer(turn, compiled.own, new)
        distinct.settle(compiled.blocks, turn.clock.after)
        self._settle(turn, new, compiled)
        if self.placement.weighs:
            held = [s for segments in (*old.values(), filter(None, new.values())) for s in segments]
            turn.report.memory = round(turn.report.bytes * weigh_indexes(held))
        meter.weigh(compiled.blocks, state, store, turn.clock.after)
        merge_figures(turn.report.registered, meter.tell())

    def _take_over(self, turn: Turn, compiled: Compiled) -> None:
        """The first batch of so many units: a unit has what its queries need, and nothing else."""
        handed, before = list_handed(compiled, turn.batch), len(self.placement.before)
        take_tuples(turn, self.plan, handed, before)
        take_answered(turn, handed, before)
        self.own.take_over(turn, {id: q for id, q in handed.items() if q.query.own is not None}, before)

    def _answers(
        self,
        block: Block,
        old: Mapping[str, list[Segment]],
        new: Mapping[str, Segment | None],
        clock: Clock,
        distinct: AnsweredRows,
        meter: Meter,
    ) -> Iterator[pa.Table]:
        if all(new[s] is None for s in block.streams) and not is_due(block, clock):
            return
        visible = Visible(self.plan, block.lay_out(self.plan), old, new)
        made = meter.count_combinations(block, block.trie, lambda tried: self._combinations(block, visible, tried))
        found = gather(made, LIMIT // 2)
        chunks = (pairs for templates, tuples in found for pairs in self._fan_out(block, visible, templates, tuples))
        if block.outer:
            preserved = Unmatched(block, visible, clock, meter)
            chunks = (pairs for some in (preserved.firsts(chunks), preserved.leave()) for pairs in some)
        yield from distinct.answer(block, meter.count(block, chunks))

    def _fan_out(self, block: Block, visible: Visible, templates: np.ndarray, tuples: np.ndarray) -> Iterator[Pairs]:
        first = block.index.start[templates]
        return fan_out(block, visible, tuples, first, block.index.start[templates + 1] - first)

    def _combinations(
        self, block: Block, visible: Visible, tried: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """What the tries find; a new tuple by itself is one for the queries that watch its stream alone."""
        for number, stream in enumerate(block.streams):
            rows = visible.new_rows(number)
            yield from walk(
                block.trie, block.width, visible.kernel, number, rows, tried=tried, most_leaves=block.most_leaves
            )
            for begin in range(0, len(rows) if stream in block.alone else 0, LIMIT):
                part = rows[begin : begin + LIMIT]
                tuples = np.full((len(part), block.width), -1, np.int64)
                tuples[:, 0] = (visible.first[number + 1] - 1) << 32 | part
                yield np.full(len(part), block.alone[stream]), tuples

    def _on_time(self, turn: Turn, stream: str, used: set[str]) -> Segment | None:
        """A stream's new tuples less the late ones, with their batch; the first unit books these."""
        tables = [t for t in turn.inbox.pop(stream, []) if t.num_rows]
        if not tables:
            return None
        table = pa.concat_tables(tables).combine_chunks()
        turn.report.rows_in[stream] = table.num_rows
        table = turn.drop_late(stream, table, integers(table.column(TIME).combine_chunks()), counts=turn.unit == 0)
        if not table.num_rows or stream not in used:
            return None
        return Segment.of(table.append_column(BATCH, pa.array(np.full(table.num_rows, turn.batch))))

    def _settle(self, turn: Turn, new: Mapping[str, Segment | None], compiled: Compiled) -> None:
        cuts, segments = stream_cuts(compiled.hull, turn.clock.after), turn.state.segments
        for stream in self.plan.streams:
            held = segments.get(stream, [])
            if stream in cuts:
                settler = Settler(turn.store, cuts[stream], retention_us(compiled.hull, stream))
                segments[stream] = settler.settle(held, new[stream])
            else:
                for info in held:
                    turn.store.remove(info)
                segments[stream] = []
        turn.report.watermarks = turn.clock.after
        turn.report.retained = {s: n for s, n in turn.state.rows().items() if s in self.plan.streams}
        turn.report.bytes = turn.state.bytes()
