"""Tuples that leave without a partner (outer and anti joins), or because they have one (semi joins).

    done before this batch       a stored tuple has met a partner, or has left         a bit, see `done`
    met in this batch            it is part of a combination                           a mask over rows, or notes
    leaves, without a partner    its wait is over, and it is neither of both
    leaves, since it has one     semi joins: it is met, and was not done

    wait is over    for every variant of the opposite input, for every alias z of it:   watermark(z) > y.ts + wait[y, z]  for some present y

Where a tuple is stored at one unit, that unit sees all its partners, and settles it. Where its partners are found at several units, the tuple and
notes of who has met a partner flow forward to units of a stage of their own (`Unmatched`), by the hash. Equal tuples have equal partners, so a note is of all
of them, and a tuple needs no number that its copies agree on: the hash covers what conditions and windows of the join look at.

A tuple that can match nothing, for reasons of its own, never comes here: it leaves when it enters (`LONE`).

Invariant: a tuple leaves in the first batch in which its wait is over, and never again: from then on it is done. Of tuples that are not stored nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.columns.spark_types import held_type
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Message, Onward, Pause, Turn, Yielded, first_unit
from watersmeet.kernels.instants import FIRST, LAST, shift
from watersmeet.operators.outer.done import DONE, DoneBits
from watersmeet.operators.outer.notes import Notes
from watersmeet.operators.probing.side import Bound, VisibleSide
from watersmeet.plan import model
from watersmeet.plan.model import ROWS_ONLY, TIME, Plan
from watersmeet.storage.compaction import Settler
from watersmeet.storage.manifest import OTHER
from watersmeet.storage.segment import Segment

MET = f"{OTHER}met "
"""Kinds of notes, by side."""


@dataclass(frozen=True)
class Waiting:
    """A preserved side of a join: when its tuples' wait is over, and what their partners depend on."""

    plan: Plan
    stage: model.Stage
    number: int

    @property
    def side(self) -> model.Side:
        return self.stage.sides[self.number]

    @cached_property
    def columns(self) -> list[str]:
        """The side's columns that its partners depend on."""
        side, plan = self.side, self.plan
        mine = {(alias, TIME) for alias in side.aliases}
        mine |= {(i.alias, k) for i in plan.inputs for k in i.keys.values()}
        mine |= {end for r in plan.residuals for end in (r.left, r.right)}
        mine |= {(r.alias, plan.by_alias[r.alias].column(r)) for e in plan.inside for r in e.columns}
        return sorted({side.column(a, name) for a, name in mine if a in side.aliases})

    @cached_property
    def _bounds(self) -> list[tuple[str, int]]:
        """(stream, hi) of the partners that its tuples wait for."""
        return self.plan.bounds(self.stage, self.side)

    def is_over(self, segment: Segment, clock: Clock) -> np.ndarray | None:
        """Which tuples of a segment no partner can come to any more; None: none of them."""
        if len(self.side.real_aliases) > 1:
            return self._is_over(segment.table, clock)
        cut = clock.cut(self._bounds)
        if segment.min_ts >= cut:
            return None
        return segment.ts < cut if cut < LAST else np.ones(segment.rows, bool)

    def _is_over(self, rows: pa.Table, clock: Clock) -> np.ndarray:
        """Which tuples of several aliases no partner can come to any more."""
        side, part, alive = self.side, self.stage.part, np.zeros(rows.num_rows, bool)
        assert part is not None
        node, aliases = part.node, side.real_aliases
        columns = {a: rows.column(side.column(a, TIME)).combine_chunks() for a in aliases}
        present = {a: np.asarray(pc.is_valid(c).to_numpy(zero_copy_only=False), bool) for a, c in columns.items()}
        times = {a: integers(pc.fill_null(c.cast(pa.int64()), 0)) for a, c in columns.items()}
        for variant in node.inputs[self.number].variants:
            mine = np.logical_and.reduce([present[a] == (a in variant) for a in aliases])
            for wait in node.waits(self.number, variant) if mine.any() else ():
                for z in {z for _, z in wait}:
                    stream = self.plan.by_alias[z].stream
                    gone = [clock.has_passed(stream, shift(times[y], wait[y, z])) for y in variant if y in times]
                    alive |= mine & ~np.logical_or.reduce(gone)
        return ~alive

    @property
    def is_done_when_met(self) -> bool:
        """Whether a tuple that has a partner need not be stored: it is no part of a later result."""
        return self.stage.part is not None and self.stage.part.node.kind in ("semi", "anti")

    @property
    def is_semi(self) -> bool:
        return self.stage.part is not None and self.stage.part.node.kind == "semi"

    @cached_property
    def _retention_us(self) -> int:
        return self.plan.retention_us(self.stage, self.side)

    def make_settler(self, turn: Turn) -> Settler:
        """What drops tuples that no partner can come to any more."""
        return Settler(turn.store, turn.clock.side_cut(self.side.name, self._bounds), self._retention_us)


class Watch:
    """Which tuples of a side get a partner in a turn and, where all their partners are known here, which of them leave."""

    def __init__(self, waiting: Waiting, side: VisibleSide, most: int) -> None:
        self.waiting, self.side, self._met = waiting, side, np.zeros(most, bool)

    def see(self, bound: Bound) -> None:
        """Take combinations in."""
        self._met[bound[self.side.spec.reference]] = True

    def hear(self, notes: Notes) -> None:
        """Take notes in."""
        for first, segment in self.side.visible(True):
            self._met[first + notes.find(segment)] = True

    def write_notes(self) -> Notes:
        """Notes of all that have got one."""
        rows = np.flatnonzero(self._met)
        names = self.waiting.columns if len(rows) else ()
        return Notes.of({name: self.side.take(name, rows) for name in names}) if names else Notes.read([])

    def leave(self, turn: Turn, tuples: str) -> Iterator[pa.Table]:
        """The tuples that leave in this turn; then the others are stored, under the kind `tuples`."""
        bits = DoneBits(turn, self.side.spec.name, self.side.old)
        old, rows = len(bits.done), int(self.side.offsets[-1])
        done, met = np.append(bits.done, np.zeros(rows - old, bool)), self._met[:rows]
        leaving = met & ~done if self.waiting.is_semi else self._is_over(turn.clock) & ~(met | done)
        yield from self._take(leaving)
        done |= met | leaving
        bits.done = done[:old]
        bits.settle(tuples, self.waiting.make_settler(turn), self._find_stored(done[old:]))

    def _is_over(self, clock: Clock) -> np.ndarray:
        over = np.zeros(int(self.side.offsets[-1]), bool)
        for first, segment in self.side.visible(True):
            found = self.waiting.is_over(segment, clock)
            if found is not None:
                over[first : first + segment.rows] = found
        return over

    def _take(self, leaving: np.ndarray) -> Iterator[pa.Table]:
        for first, segment in self.side.visible(True):
            rows = np.flatnonzero(leaving[first : first + segment.rows])
            if len(rows):
                yield segment.table.take(pa.array(rows))

    def _find_stored(self, done: np.ndarray) -> Segment | None:
        """This batch's tuples as they are stored; those of a semi or anti join that are done are not."""
        new = self.side.new
        if new is None:
            return None
        if self.waiting.is_done_when_met and done.any():
            new, done = new.where(~done), done[~done]
        return new.with_column(DONE, pa.array(done))


@dataclass(frozen=True)
class Extend:
    """Tuples of a side as results of its join, or as tuples of the side that those are: NULL where the others' columns would be."""

    plan: Plan
    side: model.Side
    target: model.Side | None

    def __call__(self, rows: pa.Table) -> pa.Table:
        columns = {name: self._column(rows, alias, wire) for name, alias, wire in self._wanted}
        return pa.table(columns if self.target is None else add_time(self.target, columns))

    @cached_property
    def _wanted(self) -> list[tuple[str, str, str]]:
        """(name, alias, wire column) of every column."""
        if self.target is not None:
            return [(self.target.column(alias, wire), alias, wire) for alias, wire in self.target.carried]
        if not self.plan.output:
            return [(ROWS_ONLY, "", "")]
        return [(f"o{n}", r.alias, self.plan.by_alias[r.alias].column(r)) for n, r in enumerate(self.plan.output)]

    def _column(self, rows: pa.Table, alias: str, wire: str) -> pa.Array | pa.ChunkedArray:
        if alias in self.side.aliases:
            return rows.column(self.side.column(alias, wire))
        if not alias:
            return pa.nulls(rows.num_rows, pa.bool_())
        kind = next(c.type for c in self.plan.by_alias[alias].columns if c.name == wire)
        return pa.nulls(rows.num_rows, held_type(kind) or pa.null())


def add_time(side: model.Side, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns of a side with its time, where that is the time of whichever alias is present."""
    if not side.either:
        return columns
    times = [columns[side.column(alias, TIME)].cast(pa.int64()) for alias in side.either]
    return {**columns, TIME: pc.coalesce(*times)}


KEPT, THROUGH = f"{OTHER}kept ", "through"
"""Kinds of messages to units that settle tuples for others: tuples of a preserved side, and results that only pass."""


@dataclass(frozen=True)
class Unmatched:
    """Units that settle the preserved tuples of a join whose partners are found at several units."""

    waits: tuple[Waiting, ...]
    extend: tuple[Extend, ...]
    onward: Onward

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        yield from self.onward(self._results(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Only a turn may drop tuples: it lets them leave first."""
        return {}

    def _results(self, turn: Turn) -> Iterator[pa.Table]:
        for table in turn.inbox.pop(THROUGH, []):
            yield table.drop_columns([TIME]) if self.extend[0].target is None else table
        for waiting, extend in zip(self.waits, self.extend, strict=True):
            yield from map(extend, self._leave(turn, waiting))
        turn.report.watermarks = turn.clock.after
        turn.report.bytes = turn.state.bytes()

    def _leave(self, turn: Turn, waiting: Waiting) -> Iterator[pa.Table]:
        """The tuples of a side that leave in this turn; the others are stored."""
        kind = KEPT + waiting.side.name
        arrived = [t for t in turn.inbox.pop(kind, []) if t.num_rows]
        new = Segment.of(pa.concat_tables(arrived)) if arrived else None
        old = [turn.store.read(info) for info in turn.state.segments.get(kind, [])]
        side = VisibleSide(waiting.side, old, new)
        watch = Watch(waiting, side, int(side.offsets[-1]))
        watch.hear(Notes.read(turn.inbox.pop(MET + waiting.side.name, [])))
        return watch.leave(turn, kind)


@dataclass(frozen=True)
class Through:
    """Results of a join pass through the units that settle its tuples: on Spark a stage hears of the one before it only."""

    stage: int
    units: int

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        for n, table in enumerate(t for t in tables if not isinstance(t, Pause)):
            timed = table
            if TIME not in table.column_names:  # messages have times, by which static input is cut
                timed = table.append_column(TIME, pa.array(np.full(table.num_rows, FIRST)))
            yield Message(first_unit(self.stage) + n % self.units, THROUGH, timed)
