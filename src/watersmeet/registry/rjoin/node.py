"""One node's turn in one round.

    round 0    tuples of the batch: they meet the rows that wait, and are stored; rates are told
    round 1    queries that take effect with this batch choose where they wait, by rates that have the batch's tuples
    round k    rows arrive from other nodes, meet the tuples that are stored, and wait; complete ones arrive at their owner

A row that stays at the node is processed at once; one that leaves takes its tuples along. Since all tuples of a batch are stored in round 0, and
a row binds a tuple in every round or waits, a query of n streams comes to rest in n + 1 rounds.

Attribute level keeps a batch's tuples until its end: a query that takes effect with the batch arrives by then, so Delta is one batch, and nothing
is missed. Rewritten queries wait at value level, whose tuples stay as long as windows need them.

Invariant: what leaves and what is stored depends on the inbox as a set, the state and the queries of the batch.
Implements: Idreos, Liarou, Koubarakis (2008), procedures 1 to 3 in supersteps; sections 4 (ALTT), 5 (windows).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import stream_cuts
from watersmeet.dataflow.contract import WORDS, Message, Turn, Yielded, write_words
from watersmeet.kernels.registered import next_key
from watersmeet.kernels.registered.rewriting import ALIASES, BOUND, INFO, KEY, TEMPLATE, TUPLE_KEY
from watersmeet.plan.model import TIME
from watersmeet.registry.placement import Placement
from watersmeet.registry.plan import BATCH, RegistryPlan
from watersmeet.registry.rjoin.allowance import Allowance
from watersmeet.registry.rjoin.index import ID, collect_rates, count_rates
from watersmeet.registry.rjoin.memory import INDEXED, RATES, RingMemory
from watersmeet.registry.rjoin.owner import answer_rows
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.shared.distinct import AnsweredRows
from watersmeet.registry.shared.meter import Meter
from watersmeet.storage.manifest import REWRITTEN
from watersmeet.storage.segment import Segment

REWRITE, ANSWER, _TUPLES = ":rewrite", ":answer", ":tuples "


@dataclass
class _Leaving:
    """Rows for other nodes."""

    rewritten: list[np.ndarray] = field(default_factory=list)
    complete: list[np.ndarray] = field(default_factory=list)


class RingNode:
    """A node in one round."""

    def __init__(
        self,
        plan: RegistryPlan,
        templates: Templates,
        compiled: Compiled,
        memory: RingMemory,
        placement: Placement,
    ) -> None:
        self.plan, self.templates, self.compiled, self.memory = plan, templates, compiled, memory
        self.placement = placement
        self.new: dict[str, Segment | None] = {}
        """By stream the batch's tuples that have come, less the late ones, in round 0."""

    def step(self, turn: Turn) -> Iterator[Yielded]:
        """Yields tables of answers, and mail; when exhausted, manifest and store hold the state after the round."""
        manifest, store, memory, templates = turn.state, turn.store, self.memory, self.templates
        before, after = turn.clock.before, turn.clock.after
        if turn.round == 0:
            memory.settle(manifest, store, before, stream_cuts(templates.hull, before), turn.batch)
        memory.recall(manifest, store, turn.batch)
        held, come = len(memory.state.rows), self._read_rows(turn, REWRITE)
        complete = self._read_rows(turn, ANSWER)
        allowance = Allowance(self.plan.quotas, templates, memory.state, come, complete)
        leaving = {unit: _Leaving() for unit in range(self.placement.units)}
        if turn.round == 0:
            copies = self._enter(turn, stream_cuts(templates.hull, after))
            self._tell(turn, copies)
            made = allowance.meet_tuples(copies)
            if len(templates.fresh(turn.batch, turn.unit)):
                yield write_words(turn.unit, {"pose": turn.batch})
        else:
            self._receive(turn, stream_cuts(templates.hull, after))
            made = (
                templates.fresh(turn.batch, turn.unit) if WORDS in turn.inbox else templates.catalogue.layout.no_rows()
            )
        leaving[turn.unit].complete.append(complete)
        self._rewrite(turn, allowance, made, come, leaving)
        memory.store_rows(manifest, store, memory.state.rows[held:])
        own = leaving.pop(turn.unit)
        distinct = AnsweredRows(manifest, store)
        yield from self._answers(turn, np.concatenate(own.complete), distinct)
        distinct.settle(self.compiled.blocks, before)
        for unit, parts in leaving.items():
            yield from self._mail(unit, parts)
        memory.is_whole = True
        if self.placement.weighs and turn.round == 0:
            turn.report.arc = memory.weigh_arc()
        self._account(turn, after)
        if self.placement.weighs:
            turn.report.memory = turn.report.bytes + memory.state.nbytes

    def _rewrite(
        self, turn: Turn, allowance: Allowance, made: np.ndarray, rows: np.ndarray, leaving: dict[int, _Leaving]
    ) -> None:
        """Rows that were made choose where they wait next. Those that wait here, and those that have come, meet the tuples, which makes others. What repeats for DISTINCT goes no further."""
        if not len(made) and not len(rows):
            return
        rates = self._rates(turn)
        marks = np.array([turn.clock.after[s] for s in self.templates.index.streams], np.int64)
        covering = self.memory.covering
        while len(made) or len(rows):
            going = self._sort(covering.drop_covered(made, waiting=False), rates, leaving, turn.unit)
            rows = covering.drop_covered(np.concatenate([rows, going]), waiting=True)
            made, rows = allowance.meet_rows(rows, marks), rows[:0]

    # ---------------------------------------------------------------- what arrives

    def _enter(self, turn: Turn, cuts: dict[str, int]) -> np.ndarray:
        """Round 0: the batch's tuples less the late ones are stored; their copies."""
        templates, memory = self.templates, self.memory
        out = [np.zeros((0, templates.catalogue.tuple_width), np.int64)]
        for stream, indexed in templates.indexed.items():
            tables = [t for t in turn.inbox.get(stream, []) if t.num_rows]
            if not tables:
                continue
            table = pa.concat_tables(tables).combine_chunks()
            turn.report.rows_in[stream] = table.num_rows
            counts = templates.index.counter(stream, indexed, templates.find_whole(stream)) == turn.unit
            table = turn.drop_late(stream, table, integers(table.column(TIME).combine_chunks()), counts=counts)
            if table.num_rows:
                table = table.append_column(BATCH, pa.array(np.full(table.num_rows, turn.batch)))
                table = table.append_column(INDEXED, pa.array(np.ones(table.num_rows, np.bool_)))
                self.new[stream] = new = Segment.of(table)
                if stream not in cuts:  # nothing looks for its tuples later
                    continue
                memory.contents.add(stream, new)
                memory.store_tuples(turn.state, turn.store, stream, table, cuts[stream])
                block = templates.index.block(stream, table, turn.batch, templates.mask)
                out.append(templates.index.copies(block, templates.mask, turn.unit, turn.batch))
        return np.concatenate(out)

    def _receive(self, turn: Turn, cuts: dict[str, int]) -> None:
        """Tuples that came along with rows; those that rows may still need after the batch are stored."""
        memory = self.memory
        for stream in self.templates.index.streams:
            tables = [t for t in turn.inbox.get(_TUPLES + stream, []) if t.num_rows]
            if not tables:
                continue
            table = pa.concat_tables([t.select(tables[0].column_names) for t in tables])
            ids = table.column(ID).to_numpy()
            _, first = np.unique(ids, return_index=True)
            new = first[~memory.contents.holds(ids[first])]
            if not len(new):
                continue
            table = table.take(pa.array(new)).combine_chunks()
            at = table.column_names.index(INDEXED)
            table = table.set_column(at, INDEXED, pa.array(np.zeros(table.num_rows, np.bool_)))
            memory.contents.add(stream, Segment.of(table))
            memory.store_tuples(turn.state, turn.store, stream, table, cuts[stream])

    def _read_rows(self, turn: Turn, kind: str) -> np.ndarray:
        tables = turn.inbox.get(kind, [])
        return np.concatenate([self.templates.catalogue.layout.no_rows(), *map(self.templates.read_rows, tables)])

    # ---------------------------------------------------------------- rates

    def _tell(self, turn: Turn, copies: np.ndarray) -> None:
        """Count the batch's tuples by key. What was told before stays until the batch ends: others may read it in this round."""
        held = turn.state.segments.get(RATES, [])
        new = count_rates(turn.store.read(held[0]) if held else None, copies[:, TUPLE_KEY])
        turn.state.segments[RATES] = [] if new is None else [turn.store.write(new)]

    def _rates(self, turn: Turn) -> tuple[np.ndarray, np.ndarray]:
        """What all nodes told last: in round 0 that is after the batch before."""
        others = [m for unit, m in sorted(turn.peers.items()) if unit != turn.unit]
        infos = [info for m in (turn.state, *others) for info in m.segments.get(RATES, [])]
        return collect_rates(turn.store.read(info) for info in infos)

    # ---------------------------------------------------------------- what leaves

    def _sort(
        self, made: np.ndarray, rates: tuple[np.ndarray, np.ndarray], leaving: dict[int, _Leaving], unit: int
    ) -> np.ndarray:
        """Complete rows by the owner of their query, others by the owner of the key where they wait next; those that stay."""
        cat = self.templates.catalogue.arrays
        is_complete = made[:, BOUND] == (1 << cat[INFO][made[:, TEMPLATE], ALIASES]) - 1
        done, going = made[is_complete], made[~is_complete]
        for to, part in _by(self.templates.owner[done[:, TEMPLATE]], done):
            leaving[to].complete.append(part)
        next_key.choose(going, cat, *rates)
        stay = going[:0]
        for to, part in _by(self.templates.index.owners(going[:, KEY]), going):
            if to == unit:
                stay = part
            else:
                leaving[to].rewritten.append(part)
        return stay

    def _mail(self, unit: int, parts: _Leaving) -> Iterator[Message]:
        every = [*parts.rewritten, *parts.complete]
        if not any(map(len, every)):
            return
        layout = self.templates.catalogue.layout
        for stream, taken in self.memory.contents.find_tuples(layout, *every).items():
            yield Message(unit, _TUPLES + stream, taken.table)
        for kind, rows in ((REWRITE, parts.rewritten), (ANSWER, parts.complete)):
            if any(map(len, rows)):
                yield Message(unit, kind, self.templates.write_rows(np.concatenate(rows)))

    def _answers(self, turn: Turn, complete: np.ndarray, distinct: AnsweredRows) -> Iterator[pa.Table]:
        """Answers of complete rows. What DISTINCT has seen is kept by the watermarks before the batch: later rounds go on with it."""
        if not len(complete):
            return
        meter = Meter(self.plan.quotas)
        for block, chunks in answer_rows(self.plan, self.templates, self.compiled, self.memory.contents, complete):
            for table in meter.time(block, distinct.answer(block, meter.count(block, chunks))):
                turn.report.results += table.num_rows
                yield table
        turn.report.registered = meter.tell()

    def _account(self, turn: Turn, marks: dict[str, int]) -> None:
        rows = turn.state.rows()
        turn.report.watermarks = marks
        turn.report.retained = {kind: rows.get(kind, 0) for kind in (*self.plan.aliases, REWRITTEN)}
        turn.report.bytes = turn.state.bytes()


def _by(units: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Rows by unit."""
    for unit in np.unique(units).tolist():
        mine = units == unit
        yield unit, rows if mine.all() else rows[mine]
