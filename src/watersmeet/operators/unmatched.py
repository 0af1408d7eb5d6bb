"""Tuples that leave without a partner (outer and anti joins), or because they have one (semi joins).

    new and old tuples of a preserved side          who has a partner is noted by hash and time:   met
    after the batch                                 a tuple whose wait is over, and is not among the met, leaves:   once

Where a tuple is stored at one unit, that unit sees all its partners, and settles it itself (`Watch`). Where its partners are found at several
units, the tuple and the notes of its partners flow forward to units of a stage of their own (`Unmatched`), by the hash. Equal tuples have equal
partners, so the hash need not tell them apart: it covers what conditions and windows of the join look at.

    wait is over    for every variant of the opposite input, for every alias z of it:   watermark(z) > y.ts + wait[y, z]  for some present y

A tuple that can match nothing, for reasons of its own, never comes here: it leaves when it enters (`LONE`).

Invariant: a tuple leaves in the first batch in which its wait is over, and never again: tuples before the cut of the last turn are settled. Notes live as long as
the tuples that they are of, and there are no more of them: a tuple that meets others in many batches is noted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.columns.row_hash import row_hash
from watersmeet.columns.spark_types import unit_type
from watersmeet.dataflow.clock import NEVER, Clock
from watersmeet.dataflow.contract import Message, Onward, Pause, Turn, Yielded, first_unit
from watersmeet.kernels.instants import FIRST, LAST, shift
from watersmeet.operators.probing.side import Bound, VisibleSide
from watersmeet.plan import model
from watersmeet.plan.model import ROWS_ONLY, TIME, Plan
from watersmeet.storage.manifest import OTHER
from watersmeet.storage.segment import Segment, Settler

MET = f"{OTHER}met "
"""Kinds of notes: hash and time of tuples that have a partner, by side."""
H1, H2 = "_h1", "_h2"
_SEED = 0x5851F42D4C957F2D


@dataclass(frozen=True)
class Waiting:
    """A preserved side of a join: when its tuples' wait is over, and what tells them apart."""

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

    def notes(self, rows: pa.Table) -> pa.Table:
        """What is noted of tuples: the side's time, and the hash."""
        if not rows.num_rows:
            return NOTHING
        found = self.hashed(rows)
        return pa.table({TIME: pa.array(_times(rows)), H1: found.column(H1), H2: found.column(H2)})

    def is_over(self, rows: pa.Table, clock: Clock) -> np.ndarray:
        """Which tuples no partner can come to any more."""
        side, part = self.side, self.stage.part
        assert part is not None
        aliases = side.real_aliases
        if len(aliases) == 1:
            cut = clock.cut(self.plan.bounds(self.stage, side))
            return _times(rows) < cut if cut < LAST else np.ones(rows.num_rows, bool)
        node, alive = part.node, np.zeros(rows.num_rows, bool)
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

    def leave(self, turn: Turn, old: Sequence[Segment], new: Segment | None, met: Met) -> Iterator[pa.Table]:
        """The tuples that leave in this turn, of those stored and those new; `met` are those that have got a partner in it."""
        left = self._with_partner(turn, met) if self.is_semi else self._without_partner(turn, old, new, met.notes)
        notes = [drop_known(met.again, self._known(turn)) if met.again.num_rows else NOTHING, met.fresh]
        if (
            not self.is_semi and len(self.side.real_aliases) > 1
        ):  # what leaves may lie behind the cut, and must not leave again
            notes.append(as_left(self.notes(left.filter(pa.array(_times(left) >= self.cut(turn.clock))))))
        self._settle(turn, pa.concat_tables(notes))
        if left.num_rows:
            yield left

    def _with_partner(self, turn: Turn, met: Met) -> pa.Table:
        """Tuples that have got their first partner."""
        first = met.old.filter(pa.array(~is_among(met.old, self._known(turn))))
        found = [t for t in (first, met.new) if t.num_rows]
        return pa.concat_tables(found) if found else first

    def _without_partner(self, turn: Turn, old: Sequence[Segment], new: Segment | None, met: pa.Table) -> pa.Table:
        """Tuples whose wait is over, and which have had no partner."""
        settled = turn.state.extra.get(MET + self.side.name, NEVER)
        known, out = pa.concat_tables([self._known(turn), met]), list[pa.Table]()
        for segment in (*old, *(() if new is None else (new,))):
            going = self.is_over(segment.table, turn.clock)
            if segment is not new:
                going &= segment.ts >= settled
            if not going.any():
                continue
            rows = self.hashed(segment.table.filter(pa.array(going)).combine_chunks())
            gone = is_among(rows, known)
            if segment is not new:  # equal tuples that have left: what is new has not
                gone |= is_among(as_left(rows), known)
            out.append(rows.filter(pa.array(~gone)))
        return pa.concat_tables(out) if out else NOTHING

    def hashed(self, rows: pa.Table) -> pa.Table:
        """Tuples with their hashes."""
        if H1 in rows.column_names:
            return rows
        h1, h2 = row_hash(rows.select(self.columns)), row_hash(rows.select(self.columns), _SEED)
        return rows.append_column(H1, pa.array(h1)).append_column(H2, pa.array(h2))

    @property
    def is_done_when_met(self) -> bool:
        """Whether a tuple that has a partner need not be stored: it is no part of a later result."""
        return self.stage.part is not None and self.stage.part.node.kind in ("semi", "anti")

    @property
    def is_semi(self) -> bool:
        return self.stage.part is not None and self.stage.part.node.kind == "semi"

    def cut(self, clock: Clock) -> int:
        """The time before which all tuples are settled."""
        return clock.side_cut(self.side.name, self.plan.bounds(self.stage, self.side))

    @property
    def retention_us(self) -> int:
        return self.plan.retention_us(self.stage, self.side)

    def _known(self, turn: Turn) -> pa.Table:
        """The notes of earlier batches."""
        infos = turn.state.segments.get(MET + self.side.name, [])
        return pa.concat_tables([NOTHING, *(turn.store.read(info).table for info in infos)])

    def _settle(self, turn: Turn, met: pa.Table) -> None:
        """Keep the notes of this turn with those of others that are still asked for."""
        kind, cut = MET + self.side.name, self.cut(turn.clock)
        new = Segment.of(met.combine_chunks()) if met.num_rows else None
        settler = Settler(turn.store, cut, self.retention_us)
        turn.state.segments[kind] = settler.settle(turn.state.segments.get(kind, []), new)
        turn.state.extra[kind] = cut


def _times(rows: pa.Table) -> np.ndarray:
    return integers(rows.column(TIME).combine_chunks())


NOTHING = pa.table({name: pa.array([], pa.int64()) for name in (TIME, H1, H2)})


@dataclass
class Met:
    """The tuples of a side that have got a partner in a turn: notes of all of them, and of semi joins the tuples, with their hashes."""

    notes: pa.Table
    again: pa.Table
    """Of these notes those of tuples that may have met others in earlier batches."""
    fresh: pa.Table
    """Those of new tuples, which will be stored."""
    old: pa.Table
    new: pa.Table


class Watch:
    """Which tuples of a side get a partner in a turn."""

    def __init__(self, waiting: Waiting, side: VisibleSide, most: int) -> None:
        self.waiting, self.side, self._met = waiting, side, np.zeros(most, bool)

    def see(self, bound: Bound) -> None:
        """Take combinations in."""
        self._met[bound[self.side.spec.reference]] = True

    def notes(self) -> pa.Table:
        """Notes of all that have got one."""
        return self.waiting.notes(self._rows(np.flatnonzero(self._met), self.waiting.columns))

    def met(self) -> Met:
        """All that have got one; of a semi join, as they leave."""
        rows, first = np.flatnonzero(self._met), int(self.side.offsets[len(self.side.old)])
        names = self.waiting.columns
        if self.waiting.is_semi:
            names = self.side.segments[0].table.column_names if self.side.segments else [TIME]
        old, new = (self.waiting.hashed(self._rows(idx, names)) for idx in (rows[rows < first], rows[rows >= first]))
        of_old, of_new = (self.waiting.notes(t) for t in (old, new))
        fresh = NOTHING if self.waiting.is_done_when_met else of_new
        return Met(pa.concat_tables([of_old, of_new]), of_old, fresh, old, new)

    def drop_met(self, new: Segment) -> Segment | None:
        """This batch's tuples that are to be stored: of a semi or anti join those without a partner."""
        met = self._met[self.side.new_idx]
        if not self.waiting.is_done_when_met or not met.any():
            return new
        return None if met.all() else new.where(~met)

    def _rows(self, rows: np.ndarray, names: Sequence[str]) -> pa.Table:
        if not len(rows):
            return NOTHING
        return pa.table({name: self.side.take(name, rows) for name in names})


def drop_known(notes: pa.Table, known: pa.Table) -> pa.Table:
    """The notes that are not among those known, one of each. It sorts the few and looks the many up."""
    n1, n2 = (integers(notes.column(name).combine_chunks()) for name in (H1, H2))
    order = np.lexsort((n2, n1))
    n1, n2 = n1[order], n2[order]
    wanted = np.append(True, (n1[1:] != n1[:-1]) | (n2[1:] != n2[:-1]))
    order, n1, n2 = order[wanted], n1[wanted], n2[wanted]
    k1, k2 = (integers(known.column(name).combine_chunks()) for name in (H1, H2))
    at = np.minimum(np.searchsorted(n1, k1), len(n1) - 1)
    old = np.zeros(len(n1), bool)
    old[at[(n1[at] == k1) & (n2[at] == k2)]] = True
    return notes.take(pa.array(order[~old]))


def as_left(notes: pa.Table) -> pa.Table:
    """Notes of tuples that have left without a partner: they tell nothing of equal tuples that come later."""
    if not notes.num_rows:
        return notes
    flipped = pa.array(~integers(notes.column(H2).combine_chunks()))
    return notes.set_column(notes.column_names.index(H2), H2, flipped)


def is_among(rows: pa.Table, notes: pa.Table) -> np.ndarray:
    """Which rows, with their hashes, have a note."""
    if not rows.num_rows or not notes.num_rows:
        return np.zeros(rows.num_rows, bool)
    (h1, h2), (n1, n2) = ([integers(t.column(name).combine_chunks()) for name in (H1, H2)] for t in (rows, notes))
    order = np.lexsort((n2, n1))
    n1, n2 = n1[order], n2[order]
    found = np.zeros(len(h1), bool)
    at, end = np.searchsorted(n1, h1, "left"), np.searchsorted(n1, h1, "right")
    live = at < end
    while live.any():
        rest = np.flatnonzero(live)
        found[rest] |= n2[at[rest]] == h2[rest]
        at[rest] += 1
        live[rest] = (at[rest] < end[rest]) & ~found[rest]
    return found


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
        return pa.nulls(rows.num_rows, unit_type(kind) or pa.null())


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
            kind = KEPT + waiting.side.name
            infos = turn.state.segments.get(kind, [])
            arrived = [t for t in turn.inbox.pop(kind, []) if t.num_rows]
            new = Segment.of(pa.concat_tables(arrived).combine_chunks()) if arrived else None
            old = [turn.store.read(info) for info in infos]
            notes = pa.concat_tables([NOTHING, *turn.inbox.pop(MET + waiting.side.name, [])])
            for rows in waiting.leave(turn, old, new, self._met(waiting, old, new, notes)):
                yield extend(rows)
            if new is not None and waiting.is_done_when_met:
                new = new.where(~is_among(new.table, notes))
            settler = Settler(turn.store, waiting.cut(turn.clock), waiting.retention_us)
            turn.state.segments[kind] = settler.settle(infos, new)
        turn.report.watermarks = turn.clock.after
        turn.report.bytes = turn.state.bytes()

    @staticmethod
    def _met(waiting: Waiting, old: Sequence[Segment], new: Segment | None, notes: pa.Table) -> Met:
        if not waiting.is_semi:
            return Met(notes, notes, NOTHING, NOTHING, NOTHING)
        tables = [[s.table for s in old], [] if new is None else [new.table]]
        found = [[t.filter(pa.array(is_among(t, notes))) for t in some] for some in tables]
        return Met(notes, notes, NOTHING, *(pa.concat_tables(some) if some else NOTHING for some in found))


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
