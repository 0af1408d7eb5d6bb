"""The join at one unit: one cell of a grid, or one unit of a biclique. One turn per batch.

    inbox -> drop the late -> join new with old and new -> drop the dead, store the living
                                          `-> the next join, holders of payloads, units that keep rows or groups, or out

In a grid a unit stores every tuple that it gets, and all of them probe, a side's whole buffer after another's: a buffer waits in the inbox until its
turn has come (`driving`), and is gone when its results are. In a biclique it stores one side, and copies of the other side's tuples come only to
probe; what they meet among this batch's tuples follows one order for all units (`multiway.Multiway.probes`), so of the two units where a pair
could be made exactly one makes it.

Invariant: a tuple is late against the watermarks before this batch; expiry uses those after it. The turn is deterministic in (inbox as a set, state).
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.2.1 (joiner) and 3.2.3 (order-consistent protocol): a micro-batch is the
punctuation, so all of an earlier batch precedes, and inside a batch the order is (time, number of the side).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import Bounds, Clock
from watersmeet.dataflow.contract import (
    PAUSE,
    PROBE,
    Aside,
    FindCopies,
    Message,
    Onward,
    Pause,
    Turn,
    Yielded,
    first_unit,
)
from watersmeet.kernels.instants import shift
from watersmeet.operators.adopt import (
    adopt_keys,
    count_frequent,
    find_copies,
    is_due,
    remember_look,
    sample_range,
    take_shares,
)
from watersmeet.operators.enter import LONE
from watersmeet.operators.onward import Out
from watersmeet.operators.outer.notes import Notes
from watersmeet.operators.outer.unmatched import KEPT, MET, Extend, Waiting, Watch, add_time
from watersmeet.operators.probing.driving import DriverStats, Driving
from watersmeet.operators.probing.multiway import FanoutStats, Multiway
from watersmeet.operators.probing.repeated import build_coded
from watersmeet.operators.probing.side import Bound, VisibleSide, in_blocks
from watersmeet.plan import model
from watersmeet.plan.model import ROWS_ONLY, TIME, Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.tree import Node
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.spread import Spread
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment, weigh_indexes

Old = Mapping[str, list[Segment]]
New = dict[str, Segment | None]


@dataclass(frozen=True)
class JoinUnits:
    """The join with a number of a plan, as stage `stage` of its dataflow."""

    plan: Plan
    number: int
    stage: int
    onward: Onward
    spec: model.Stage = field(init=False)
    into: model.Side | None = field(init=False)
    """The side of the next join that its results are; None: they are the query's."""
    bounds: Mapping[str, Bounds] = field(init=False)
    """By side what its tuples wait for."""
    retention_us: Mapping[str, int] = field(init=False)
    waits: tuple[Waiting, ...] = field(init=False)
    """Its preserved sides."""
    passing: frozenset[ColumnRef] = field(init=False)
    """The columns of results that nobody looks at before they leave."""

    def __post_init__(self) -> None:
        """What every turn asks of the plan is asked here, once."""
        plan, spec = self.plan, self.plan.stages[self.number]
        is_last = self.number == len(plan.stages) - 1
        stage, side = spec.onward or (self.number + 1, 0)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "into", None if is_last else plan.stages[stage].sides[side])
        object.__setattr__(self, "bounds", {s.name: plan.bounds(spec, s) for s in spec.sides})
        object.__setattr__(self, "retention_us", {s.name: plan.retention_us(spec, s) for s in spec.sides})
        preserved = () if spec.part is None else spec.part.node.preserved
        object.__setattr__(self, "waits", tuple(Waiting(plan, spec, n) for n in preserved))
        object.__setattr__(self, "passing", self.onward.passing if isinstance(self.onward, Out) else frozenset())

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        messages: list[Message | Aside] = []
        yield from self.onward(self._results(turn, messages))
        yield from messages

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Behind a sequencer only a turn knows the cuts: it has the sequencer's promise."""
        return {} if self.plan.sequenced else self._cuts(clock)

    def _cuts(self, clock: Clock) -> dict[str, int]:
        return {name: clock.side_cut(name, bounds) for name, bounds in self.bounds.items()}

    def _results(self, turn: Turn, messages: list[Message | Aside]) -> Iterator[pa.Table | Pause]:
        take_shares(turn, self.plan, self.spec, self.stage)
        adopt_keys(turn, self.plan, self.spec, self.stage)
        preserved = None if self.spec.part is None else Preserved(self, turn)
        new: New = {}
        joins: dict[int, Multiway] = {}
        stats = FanoutStats(turn.state.fanout)
        old = {s.name: [turn.store.read(i) for i in turn.state.segments.get(s.name, [])] for s in self.spec.sides}
        for join, found in self._joins(turn, old, new, stats):
            whole = (join.conditions.keep_whole(join, bound) for bound in found)
            for bound in whole if preserved is None else preserved.see(join, found):
                for table in build_tables(self.plan, join, bound, self.into, self.passing if turn.may_code else ()):
                    turn.report.found += table.num_rows
                    turn.report.results += table.num_rows if self.into is None else 0
                    yield table
            yield PAUSE
            joins |= {id(join): join}
        if preserved is not None:
            for table in preserved.leave(new, messages):
                turn.report.results += table.num_rows if self.into is None else 0
                yield table
        for join in joins.values():
            _book_kernel(turn, join)
            messages += join.conditions.aside
        turn.state.fanout, turn.report.looked = stats.memory(), stats.looked
        self._settle(turn, new, () if preserved is None else preserved.settles)
        held = [s for segments in (*old.values(), filter(None, new.values())) for s in segments]
        turn.report.memory = round(turn.report.bytes * weigh_indexes(held))

    def _joins(self, turn: Turn, old: Old, new: New, stats: FanoutStats) -> Iterator[tuple[Multiway, Iterator[Bound]]]:
        """The joins of the turn: one over all sides, driver by driver, or one for each side that probes the other's."""
        specs = self.spec.sides

        def consume(number: int) -> Segment | None:
            name = specs[number].name
            new[name] = self._on_time(turn, number, name, stores=True)
            return new[name]

        if self.spec.routing.stores_all:
            join = Multiway(self.plan, [VisibleSide(s, old[s.name], None) for s in specs], stats)
            buffered = [sum(t.num_rows for t in turn.inbox.get(s.name, [])) for s in specs]
            driving = Driving(join, buffered, DriverStats(turn.state.driving), turn.report)
            yield from ((join, found) for found in driving.turns(consume))
            turn.state.driving = driving.stats.memory()
            return
        for number in range(len(specs)):
            consume(number)
        for number, spec in enumerate(specs):
            probing = self._on_time(turn, number, PROBE + spec.name, stores=False)
            if probing is not None:
                sides = [
                    VisibleSide(s, [], probing) if s is spec else VisibleSide(s, old[s.name], new[s.name])
                    for s in specs
                ]
                join = Multiway(self.plan, sides, stats)
                yield join, join.probes(sides[number])

    def _on_time(self, turn: Turn, number: int, kind: str, *, stores: bool) -> Segment | None:
        """A side's new tuples, less the late ones. Results of an earlier join are never late."""
        spec, unit = self.spec.sides[number], turn.unit - first_unit(self.stage)
        counts = stores and self.spec.routing.is_primary(number, unit)
        found = on_time(turn, self.plan, spec, kind, counts=counts, copies=self._find_copies(number, unit))
        if found is not None and self.plan.may_spread:
            self._watch(turn, spec, found, stores=stores)
        return found

    def _watch(self, turn: Turn, spec: model.Side, found: Segment, *, stores: bool) -> None:
        """Report which keys, or of a biclique which values, are frequent; nothing if none are."""
        if isinstance(self.spec.routing, Biclique):
            if stores and (values := sample_range(self.plan, self.spec, found.table, spec)):
                turn.report.values[spec.name] = values
        elif is_due(turn, spec.name, rows := found.rows):
            frequent = count_frequent(self.plan, self.spec, found, spec)
            remember_look(turn, spec.name, rows, found_any=bool(frequent))
            turn.report.frequent |= {spec.name: frequent} if frequent else {}

    def _find_copies(self, number: int, unit: int) -> FindCopies | None:
        if not isinstance(self.spec.routing, Spread):
            return None
        return partial(find_copies, self.plan, self.spec, number, unit)

    def _settle(self, turn: Turn, new: New, settled: Collection[str]) -> None:
        cut_of, state = self._cuts(turn.clock), turn.state
        for spec in (s for s in self.spec.sides if s.name not in settled):
            settler = Settler(turn.store, cut_of[spec.name], self.retention_us[spec.name])
            state.segments[spec.name] = settler.settle(state.segments.get(spec.name, []), new[spec.name])
        turn.report.watermarks = turn.clock.after
        turn.report.retained = {a: n for a, n in state.rows().items() if a in new}
        turn.report.bytes = state.bytes()


class Preserved:
    """What a join of a tree adds to a turn: who has a partner, who leaves without one, and windows of aliases that may be NULL."""

    def __init__(self, operator: JoinUnits, turn: Turn) -> None:
        assert operator.spec.part is not None
        self.operator, self.turn, self.node = operator, turn, operator.spec.part.node
        self.waits = operator.waits
        self._watches: dict[int, Watch] = {}

    def see(self, join: Multiway, found: Iterator[Bound]) -> Iterator[Bound]:
        """The combinations that are results; the preserved tuples in them have a partner."""
        watches = [self._watch(waiting, join.sides[waiting.number]) for waiting in self.waits]
        for bound in found:
            if self.node.is_loose:
                bound = within_if_present(self.node, join, bound)
            bound = join.conditions.keep_whole(join, bound)
            for watch in watches:
                watch.see(bound)
            if self.node.kind not in ("semi", "anti") and len(next(iter(bound.values()))):
                yield bound

    def _watch(self, waiting: Waiting, side: VisibleSide) -> Watch:
        if id(side) not in self._watches:
            coming = sum(t.num_rows for t in self.turn.inbox.get(side.spec.name, []))
            self._watches[id(side)] = Watch(waiting, side, int(side.offsets[-1]) + coming)
        return self._watches[id(side)]

    def leave(self, new: New, messages: list[Message | Aside]) -> Iterator[pa.Table]:
        """Tuples that leave without a partner, or because they have got one; where others settle them, messages to those."""
        for waiting in self.waits:
            name, extend = waiting.side.name, Extend(self.operator.plan, waiting.side, self.operator.into)
            lone = on_time(self.turn, self.operator.plan, waiting.side, LONE + name, counts=True)
            if lone is not None and self.node.kind != "semi":
                yield extend(lone.table)
            watches = [w for w in self._watches.values() if w.waiting.number == waiting.number]
            if self.operator.spec.is_spread:
                messages += self._tell(waiting, watches, new[name])
                continue
            [watch] = watches
            yield from map(extend, watch.leave(self.turn, name))

    @property
    def settles(self) -> tuple[str, ...]:
        """The sides whose tuples are stored when those that leave have left."""
        return () if self.operator.spec.is_spread else tuple(w.side.name for w in self.waits)

    def _tell(self, waiting: Waiting, watches: list[Watch], new: Segment | None) -> Iterator[Message]:
        """Notes, and tuples that this unit answers for, to the units that settle them."""
        name, units, first = waiting.side.name, self.operator.spec.units, first_unit(self.operator.stage + 1)
        unit = self.turn.unit - first_unit(self.operator.stage)
        for watch in watches:
            for to, part in watch.write_notes().by_unit(units):
                yield Message(first + to, MET + name, part)
        if new is not None and self.operator.spec.routing.is_primary(waiting.number, unit):
            notes = Notes.of({column: new.column(column) for column in waiting.columns})
            for to, part in notes.by_unit(units, new.table):
                yield Message(first + to, KEPT + name, part)


def within_if_present(node: Node, join: Multiway, bound: Bound) -> Bound:
    """Combinations within the windows of a join, of which those hold that name an alias that is NULL."""
    aliases = {a for choice in node.choices for e in choice for a in (e.old, e.young)}
    times = {a: join.members[a].take(TIME, bound[a]) for a in aliases}
    rows = len(next(iter(bound.values())))
    keep = np.zeros(rows, bool)
    for choice in node.choices:
        holds = np.ones(rows, bool)
        for edge in choice:
            old, young = (pc.fill_null(times[a].cast(pa.int64()), 0).to_numpy() for a in (edge.old, edge.young))
            absent = pc.or_(pc.is_null(times[edge.old]), pc.is_null(times[edge.young])).to_numpy(zero_copy_only=False)
            holds &= absent | (young <= shift(old, edge.hi_us))
        keep |= holds
    return bound if keep.all() else {a: idx[keep] for a, idx in bound.items()}


def on_time(
    turn: Turn, plan: Plan, spec: model.Side, kind: str, *, counts: bool, copies: FindCopies | None = None
) -> Segment | None:
    """The tuples of a side that are new under a kind, less the late ones; None if there are none."""
    arrived = [t for t in turn.inbox.pop(kind, []) if t.num_rows]
    if not arrived:
        return None
    table = pa.concat_tables(arrived).combine_chunks()
    turn.report.rows_in[spec.name] = turn.report.rows_in.get(spec.name, 0) + table.num_rows
    if not spec.carried:
        times = integers(table.column(TIME).combine_chunks())
        table = turn.drop_late(plan.by_alias[spec.name].stream, table, times, counts=counts, copies=copies)
    return Segment.of(table) if table.num_rows else None


def build_tables(
    plan: Plan, join: Multiway, bound: Bound, side: model.Side | None, may_code: Collection[ColumnRef] = ()
) -> Iterator[pa.Table]:
    """Combinations as results, or as tuples of a side that is to be joined with others, in blocks; some columns of results may be dictionaries."""
    if side is not None:
        for block in in_blocks(join.members, bound, side.carried):
            columns = {side.column(a, name): join.members[a].take(name, block[a]) for a, name in side.carried}
            yield pa.table(add_time(side, columns))
    elif not plan.output:
        yield pa.table({ROWS_ONLY: pa.nulls(len(next(iter(bound.values()))), pa.bool_())})
    else:
        yield from build_coded(join, bound, plan.output, may_code)


def _book_kernel(turn: Turn, join: Multiway) -> None:
    rows = sum(len(side.new_idx) for side in join.sides)
    if rows:
        turn.report.kernels[join.kernel_name] = turn.report.kernels.get(join.kernel_name, 0) + rows
    turn.report.pruned += join.pruned
