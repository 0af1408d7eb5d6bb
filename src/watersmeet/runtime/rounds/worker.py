"""What runs in Spark's Python workers, but for the source tasks (`runtime.rounds.posting`).

    Enter     round 0 over rows that Spark has shuffled to their units
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

import pyarrow as pa

from watersmeet.columns.arrow import enlarge
from watersmeet.dataflow.contract import Aside, Flows, Message, Turn, round_of, stage_of, take_turn
from watersmeet.dataflow.report import Report
from watersmeet.operators.payload import number_of, reship
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads
from watersmeet.runtime.rounds.checkpoint import MAIL, StateFolder
from watersmeet.runtime.rounds.entering import (
    Arrivals,
    Entrance,
    Slots,
    by_unit_and_alias,
    enter_all,
    reach,
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
