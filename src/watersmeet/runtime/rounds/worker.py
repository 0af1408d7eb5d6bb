"""What runs in Spark's Python workers.

    Post      a source task posts the rows it has read to their units, as mail
    Enter     round 0 over rows that Spark has shuffled to their units instead
    Deliver   a round over mail
    Hand      results that were posted in earlier rounds
    Reship    stored tuples are turned from one form of shipping into another

What differs from batch to batch is in the orders, which a step has, or finds with its job (`runtime.spark.jobs`).

Invariant: results leave as rows, or as files of the sink (`results.leaving`); everything else is written to the state folder before the task's report, so a report
names only files that are complete. A task that runs twice writes other files, and either report is as good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from watersmeet.columns.arrow import enlarge, integers, mark_utc
from watersmeet.dataflow.contract import Aside, Dataflow, Flows, Message, Origin, Turn, round_of, stage_of, take_turn
from watersmeet.dataflow.report import Report
from watersmeet.kernels.hash_window import group_rows
from watersmeet.operators.enter import AHEAD, BROKEN, Copies, JoinEntry, WireContent, find_usable, route
from watersmeet.operators.late import ROW, find_lost
from watersmeet.operators.payload import holder, number_of, reship, split
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads, payload_of
from watersmeet.routing.hot_keys import find_frequent
from watersmeet.runtime.rounds.checkpoint import MAIL, StateFolder
from watersmeet.runtime.rounds.entering import (
    FIRST,
    UNIT,
    Arrivals,
    Entrance,
    Slots,
    by_alias,
    by_unit_and_alias,
    enter_all,
    reach,
    row_slot,
    wire_of,
)
from watersmeet.runtime.rounds.files import (
    FileStore,
    Orders,
    PostOffice,
    TaskReport,
    UnitReport,
    forget_all_but,
    open_parcels,
    this_task,
)
from watersmeet.runtime.rounds.results.leaving import Forgetting, Leaving, Writing
from watersmeet.runtime.spark.workers import AsRows, after_task, as_task, columns_of, result_batches
from watersmeet.runtime.stream.late import ARROW
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import SegmentInfo

POST_BYTES = 32 * 2**20
"""A source task posts its rows in pieces of about this size."""
POSTED = pa.schema([("report", pa.string()), ("mail", pa.binary())])
"""What leaves a task that has posted."""
POSTED_DDL = "report string, mail binary"
WAKE = "wake"
"""The kind of a parcel that holds nothing: its unit runs."""
RESULTS = "results"
"""The kind of a parcel that holds results: they wait for the end of the batch in a file."""
LOST = "lost"
"""The kind of a parcel that holds dropped rows: they wait likewise."""
SendOn = Callable[[Message, int], None]
"""Sends a message to a round; -1: to the end of the batch."""


@dataclass
class Task:
    """What all tasks of a query know."""

    query: Plan | None
    """The plan that ships whole tuples; None for a registry."""
    flows: Flows
    identity: Identity
    slots: Slots
    folder: StateFolder
    schema: pa.Schema
    """Of the rows of results that leave."""
    entrance: Entrance
    writing: Writing | Forgetting | None = None
    """What becomes of results, if tasks make rows of the SELECT themselves."""

    def plan_under(self, aliases: Sequence[str]) -> Plan:
        """The plan of a batch in which payloads of these aliases follow later."""
        assert self.query is not None
        return defer_payloads(self.query, aliases) if aliases else self.query

    def report(self, orders: Orders, done: TaskReport) -> None:
        """Say what the task has done."""
        self.folder.save(MAIL, orders.report_name(this_task()[0]), done, durably=False)

    def make_leaving(self, orders: Orders) -> Leaving:
        """Where this task's results go."""
        return AsRows(self.rows) if self.writing is None else self.writing.begin(orders)

    def run(self, orders: Orders, arrivals: Arrivals, seen: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """A task of a round; what leaves goes to Spark, results as rows or as names of files."""
        office = PostOffice(self.folder, orders.attempt)
        with self.make_leaving(orders) as leaving:
            units = yield from self.take_turns(orders, arrivals, seen, leaving, office.post)
            office.close()
            self.report(orders, TaskReport(units, office.parcels))
            yield from leaving.close()

    def take_turns(
        self, orders: Orders, arrivals: Arrivals, seen: Mapping[str, int], leaving: Leaving, post: SendOn
    ) -> Generator[pa.RecordBatch, None, list[UnitReport]]:
        """A turn for every unit that has arrivals: what leaves at once, and in the end what is true of the units."""
        flow = self.flows.under(orders.decisions)
        units = []
        states = {unit: Manifest.from_json(state, self.identity) for unit, state in orders.states.items()}
        peers = {unit: state.snapshot() for unit, state in states.items()}
        forget_all_but(self.folder, {i.id for m in states.values() for infos in m.segments.values() for i in infos})
        for unit in sorted(arrivals):
            state, store = states.get(unit) or Manifest.fresh(self.identity), FileStore(self.folder, orders.attempt)
            state.maxima = dict(orders.maxima)
            clock = flow.clock(state.maxima, seen)
            turn = Turn(unit, arrivals.pop(unit), state, store, clock, orders.round, orders.batch, peers)
            turn.may_code = orders.direct and leaving.takes_codes
            began = time.thread_time()
            for item in take_turn(flow.operator(unit), turn):
                if isinstance(item, Message):
                    post(item, round_of(flow, item, orders.round))
                elif isinstance(item, pa.Table) and orders.direct:
                    yield from leaving.take(item)
                elif isinstance(item, pa.Table):
                    post(Message(-1, RESULTS, item), -1)
                elif isinstance(item, Aside):
                    post(Message(-1, LOST, item.table), -1)
            turn.report.seconds, turn.report.fetched_bytes = time.thread_time() - began, store.fetched_bytes
            store.keep(state)
            units.append(UnitReport(unit, state.to_json(), vars(turn.report)))
        return units

    def rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from result_batches(columns_of(self.schema, table), self.schema)


@dataclass
class Post:
    """mapInArrow over the union; what leaves a task is its report and, if that is short, its mail."""

    task: Task
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        posting = Posting(self.task, Orders.read(self.task.folder, self.orders))
        held, size = list[pa.RecordBatch](), 0
        for batch in batches:
            if batch.num_rows:
                held.append(batch)
                size += batch.nbytes
            if size >= POST_BYTES:
                posting.flush(held)
                size = 0
        posting.flush(held)
        done, mail = posting.close()
        after_task()
        yield pa.RecordBatch.from_arrays([pa.array([done.to_json()]), pa.array([mail], pa.binary())], POSTED.names)


class Posting:
    """One task's mail to the units."""

    def __init__(self, task: Task, orders: Orders) -> None:
        self.task, self.orders = task, orders
        self.plan = None if task.query is None else task.plan_under(orders.decisions.get("shipping", ()))
        self.aliases = task.flows.plan.aliases
        self.flow: Dataflow = task.flows.under(orders.decisions)
        self.post = PostOffice(task.folder, orders.attempt, orders.holds)
        self.store = FileStore(task.folder, orders.attempt)
        self.adopted: list[tuple[int, str, SegmentInfo]] = []
        """(holder, alias, segment) of payloads, which stay where their tuples entered."""
        self.entered: dict[str, list[int]] = {}
        """By alias: tuples, their bytes without payload, bytes of payload."""
        self.heavy: list[tuple[int, int, list[tuple[int, int]]]] = []
        self.copies = [Copies(source.lookups) for source in task.flows.plan.inputs]
        self.numbered = 0
        """Tuples that have been given a number."""

    def flush(self, held: list[pa.RecordBatch]) -> None:
        """Post rows, and let go of them."""
        if not held:
            return
        table = enlarge(pa.Table.from_batches(held))
        held.clear()
        for position, mine in by_alias(table):
            wire = self.copies[position].mark(wire_of(self.task.slots, position, mine))
            if AHEAD in mine.column_names and not (usable := self._set_aside(position, mine, wire)).all():
                mine, wire = mine.filter(pa.array(usable)), wire.filter(pa.array(usable))
            wire = self._narrow(position, wire)
            if self.task.entrance.units and (
                self.orders.decisions.get("spread") or self.orders.decisions.get("routing")
            ):
                self._by_keys(position, mine, wire)
            elif self.task.entrance.units:
                self._by_sql(position, wire, integers(mine.column(UNIT).combine_chunks()))
            else:
                self._by_content(position, wire)

    def _set_aside(self, position: int, rows: pa.Table, wire: pa.Table) -> np.ndarray:
        """Which of an alias' rows have a time, and one that is not too far ahead; all that is dropped is posted for those who ask."""
        plan = self.task.flows.plan
        source = plan.inputs[position]
        for mark in (m for m in (AHEAD, BROKEN) if m in rows.column_names):
            wire = wire.append_column(mark, rows.column(mark).combine_chunks())
        wire = wire.append_column(ROW, mark_utc(rows.select([row_slot(plan, source.stream)])).column(0))
        first = integers(rows.column(UNIT).combine_chunks()) == integers(rows.column(FIRST).combine_chunks())
        once = wire if first.all() else wire.filter(pa.array(first))
        lost = find_lost(self.flow.clock(self.orders.maxima, {}), source, once, self.orders.batch)
        if lost.num_rows:
            self.post.post(Message(-1, LOST, lost), -1)
        return find_usable(wire)

    def _narrow(self, position: int, wire: pa.Table) -> pa.Table:
        """An alias' wire rows, with references in place of a payload that follows later."""
        plan = self.plan
        if plan is None:
            return wire
        source = plan.inputs[position]
        if self.orders.weighs:
            late = wire.select(list(payload_of(plan, source))).nbytes
            before = self.entered.get(source.alias, [0, 0, 0])
            now = (wire.num_rows, wire.nbytes - late, late)
            self.entered[source.alias] = [a + b for a, b in zip(before, now, strict=True)]
        if not source.payload:
            return wire
        number, payload, narrow = split(source, wire)
        self.adopted.append((holder(plan, source, number), source.alias, self.store.write(payload)))
        return narrow

    def _by_sql(self, position: int, wire: pa.Table, units: np.ndarray) -> None:
        alias = self.aliases[position]
        for unit, rows in group_rows(units):
            self.post.post(Message(unit, alias, wire if rows is None else wire.take(pa.array(rows))), 0)

    def _by_keys(self, position: int, rows: pa.Table, wire: pa.Table) -> None:
        """Where some keys are spread, or there are more units than planned, SQL does not know the units; of its copies of a row one is routed."""
        if FIRST in rows.column_names:
            once = integers(rows.column(UNIT).combine_chunks()) == integers(rows.column(FIRST).combine_chunks())
            wire = wire if once.all() else wire.filter(pa.array(once))
        entry = self.flow.entries[self.aliases[position]]
        assert isinstance(entry, JoinEntry)
        for message in route(entry.plan, entry.join, entry.side, wire, entry.stage):
            self.post.post(message, 0)

    def _by_content(self, position: int, wire: pa.Table) -> None:
        plan, alias = self.plan, self.aliases[position]
        if alias not in self.flow.entries:
            return
        context = TaskContext.get()
        assert context is not None
        origin = Origin(self.orders.batch, context.partitionId(), self.numbered)
        self.numbered += wire.num_rows
        for message in self.flow.entries[alias].read(wire, origin)[1]:
            self.post.post(message, round_of(self.flow, message, -1))
        if self.orders.watches_keys and plan is not None:
            stage, side = plan.entry(alias)
            keys = stage.sides[side].keys
            codes = WireContent(plan, keys, wire).key(tuple(sorted(set(stage.sides[0].keys) & set(keys))))
            self.heavy.append((side, len(codes), find_frequent(codes)))

    def close(self) -> tuple[TaskReport, bytes | None]:
        """What was done, and the mail that is in no file."""
        self.post.close()
        adopted = [(unit, alias, vars(info)) for unit, alias, info in self.adopted]
        return TaskReport([], self.post.parcels, adopted, self.heavy, self.entered), self.post.held


@dataclass
class Enter:
    """mapInArrow over the union, shuffled: a partition has all rows of its units."""

    task: Task
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.read(self.task.folder, self.orders)
        held = [b for b in batches if b.num_rows]
        arrivals: Arrivals = {}
        if held:
            arrivals = by_unit_and_alias(self.task.flows.plan, self.task.slots, enlarge(pa.Table.from_batches(held)))
            held.clear()
        seen = reach(self.task.flows.plan, arrivals)
        if self.task.entrance.is_sequenced:
            arrivals = enter_all(self.task.flows.plan, self.task.flows.under(orders.decisions), arrivals)
        yield from self.task.run(orders, arrivals, seen)
        after_task()


@dataclass
class Deliver:
    """mapInArrow over the numbers of shares."""

    task: Task
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.read(self.task.folder, self.orders)
        arrivals: Arrivals = {}
        for share in _numbers(batches):
            for parcel in orders.shares[share]:
                arrivals.setdefault(parcel.to, {})
            for parcel, table in open_parcels(self.task.folder, (p for p in orders.shares[share] if p.kind != WAKE)):
                arrivals.setdefault(parcel.to, {}).setdefault(parcel.kind, []).append(table)
        yield from self.task.run(orders, arrivals, orders.seen)
        after_task()


@dataclass
class Reship:
    """mapInArrow over the numbers of shares: stored tuples take the form in which the batch ships."""

    task: Task
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.read(self.task.folder, self.orders)
        before, after = (self.task.plan_under(way) for way in (orders.was, orders.decisions["shipping"]))
        manifests = {unit: Manifest.from_json(state, self.task.identity) for unit, state in orders.states.items()}
        held: dict[str, dict[int, SegmentInfo]] = {a: {} for a in before.aliases}
        for unit, manifest in manifests.items():
            if stage_of(unit):
                for alias in orders.was:
                    held[alias] |= {number_of(i): i for i in manifest.segments.get(alias, [])}
        store, units, adopted = FileStore(self.task.folder, orders.attempt), [], []
        joining = sorted(unit for unit in manifests if not stage_of(unit))
        for share in _numbers(batches):
            for unit in joining[share :: len(orders.shares)]:
                adopted += reship(before, after, manifests[unit], store, held)
                units.append(UnitReport(unit, manifests[unit].to_json(), vars(Report())))
        self.task.report(orders, TaskReport(units, adopted=[(u, a, vars(info)) for u, a, info in adopted]))
        after_task()
        yield from ()


@dataclass
class Hand:
    """mapInArrow over the numbers of shares."""

    task: Task
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.read(self.task.folder, self.orders)
        with self.make_leaving(orders) as leaving:
            for share in _numbers(batches):
                for _, table in open_parcels(self.task.folder, orders.shares[share]):
                    yield from leaving.take(table)
            yield from leaving.close()
        after_task()

    def make_leaving(self, orders: Orders) -> Leaving:
        return self.task.make_leaving(orders)


@dataclass
class HandLost(Hand):
    """The same of dropped rows."""

    writing: Writing | None = None

    def make_leaving(self, orders: Orders) -> Leaving:
        return AsRows(self._rows) if self.writing is None else self.writing.begin(orders)

    def _rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from result_batches(columns_of(ARROW, table), ARROW)


def _numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column(0).to_pylist()]
