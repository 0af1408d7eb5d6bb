"""What runs in Spark's Python workers.

    Post      a source task posts the rows it has read to their units, as mail
    Enter     round 0 over rows that Spark has shuffled to their units instead
    Deliver   a round over mail
    Hand      results that were posted in earlier rounds, as rows
    Reship    stored tuples are turned from one form of shipping into another

They are made once per query; what differs from batch to batch, the orders, travels with the job as a local property.

Invariant: results leave as rows; everything else is written to the state folder before the task's report, so a report
names only files that are complete. A task that runs twice writes other files, and either report is as good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.rules.ship import following, payload_of
from watersmeet.routing.biclique import grouped
from watersmeet.routing.epochs import Epochs
from watersmeet.runtime.rounds.entering import ALIAS, UNIT, Slots
from watersmeet.runtime.rounds.files import FileStore, Parcel, PostOffice, forget_all_but, opened
from watersmeet.runtime.rounds.folder import MAIL, StateFolder
from watersmeet.runtime.rounds.orders import Orders
from watersmeet.runtime.spark_results import columns_of, record_batches
from watersmeet.runtime.worker_heap import after_task
from watersmeet.runtime.worker_words import errors_first
from watersmeet.units.blocks import enlarge
from watersmeet.units.codes import integers
from watersmeet.units.content import WireContent
from watersmeet.units.evaluator import in_utc
from watersmeet.units.join_unit import StepReport
from watersmeet.units.leave import final_fields
from watersmeet.units.pack import route
from watersmeet.units.payload import holder, number_of, reship, split
from watersmeet.units.program import Answering, Call, Mail, Program, id_of, kind_of
from watersmeet.units.programs.of_plan import program_of
from watersmeet.units.state import Manifest, SegmentInfo

POST_BYTES = 32 * 2**20
"""A source task posts its rows in pieces of about this size."""
MOST_FREQUENT = 32
"""So many keys a source task tells of; rarer than one row in 200 it tells of none."""
WAKE = "wake"
"""The kind of a parcel that holds nothing: its unit runs."""
RESULTS = "results"
"""The kind of a parcel that holds results: they wait for the end of the batch in a file."""

Arrivals = dict[int, dict[str, list[pa.Table]]]
"""Tables by unit, and by alias or kind of mail."""


@dataclass
class Task:
    """What all tasks of a query know."""

    plan: Plan
    program: Program
    slots: Slots
    folder: StateFolder
    schema: pa.Schema
    """Of the rows of results that leave."""
    routed_by_sql: bool

    def under(self, apart: Collection[str], sites: Mapping[str, list[list[str]]] | None = None) -> Task:
        """The task of a batch in which these aliases' payloads follow later, and sites join like this."""
        if not apart and not sites:
            return self
        plan = following(self.plan, apart) if apart else self.plan.at(sites or {})
        return replace(self, plan=plan, program=program_of(plan))

    def report(
        self,
        orders: Orders,
        units: Sequence[dict[str, object]],
        parcels: Sequence[Parcel],
        adopted: Sequence[tuple[int, str, SegmentInfo]] = (),
        heavy: Sequence[tuple[int, int, list[tuple[int, int]]]] = (),
        entered: Mapping[str, list[int]] | None = None,
    ) -> None:
        """Say what the task has done; the driver reads it when the job is over."""
        context = TaskContext.get()
        assert context is not None
        said = {
            "units": units,
            "mail": [astuple(p) for p in parcels],
            "adopted": [(unit, alias, asdict(info)) for unit, alias, info in adopted],
            "heavy": list(heavy),
            "entered": dict(entered or {}),
        }
        self.folder.write_json(MAIL, orders.report_name(context.partitionId()), said, durably=False)

    def run(self, orders: Orders, arrivals: Arrivals, seen: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """Step every unit that has arrivals."""
        units, post = [], PostOffice(self.folder, orders.attempt)
        manifests = {unit: Manifest.from_json(state, self.plan) for unit, state in orders.states.items()}
        peers = {unit: manifest.seen_by_others() for unit, manifest in manifests.items()}
        forget_all_but(self.folder, {i.id for m in manifests.values() for infos in m.segments.values() for i in infos})
        for unit in sorted(arrivals):
            manifest = manifests.get(unit) or Manifest.fresh(self.plan)
            store = FileStore(self.folder, orders.attempt)
            call = Call(
                orders.round,
                unit,
                arrivals.pop(unit),
                manifest,
                store,
                seen,
                batch=orders.batch,
                queries=orders.queries,
                peers=peers,
            )
            for item in self.program.step(call):
                if isinstance(item, Mail):
                    post.post(item, orders.round + 1)
                elif orders.direct:
                    yield from self.rows(item)
                else:
                    post.post(Mail(-1, RESULTS, item), orders.round + 1)
            units.append({"unit": unit, "state": manifest.to_json(), "report": asdict(call.report)})
        post.close()
        self.report(orders, units, post.parcels)

    def rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from record_batches(columns_of(final_fields(self.plan), table), self.schema)


@dataclass
class Post:
    """mapInArrow over the union."""

    task: Task

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        posting = Posting(self.task, Orders.given(self.task.folder))
        held, size = list[pa.RecordBatch](), 0
        for batch in batches:
            if batch.num_rows:
                held.append(batch)
                size += batch.nbytes
            if size >= POST_BYTES:
                posting.flush(held)
                size = 0
        posting.flush(held)
        posting.close()
        after_task()
        yield from ()


class Posting:
    """One task's mail to the units."""

    def __init__(self, task: Task, orders: Orders) -> None:
        self.task, self.orders = task.under(orders.apart), orders
        self.post, self.store = PostOffice(task.folder, orders.attempt), FileStore(task.folder, orders.attempt)
        self.adopted: list[tuple[int, str, SegmentInfo]] = []
        """(holder, alias, segment) of payloads, which stay where their tuples entered."""
        self.entered: dict[str, list[int]] = {}
        """By alias: tuples, their bytes without payload, bytes of payload."""
        self.routing = Epochs.from_json(orders.routing) if orders.routing else None
        self.heavy: list[tuple[int, int, list[tuple[int, int]]]] = []
        self.numbered = 0
        """Tuples that have been given a number."""

    def flush(self, held: list[pa.RecordBatch]) -> None:
        """Post rows, and let go of them."""
        if not held:
            return
        table = enlarge(pa.Table.from_batches(held))
        held.clear()
        for position, mine in by_alias(table):
            wire = self._narrowed(position, wire_of(self.task.slots, position, mine))
            if self.orders.read is not None:
                self._by_program(position, wire)
            elif self.task.routed_by_sql:
                self._by_sql(position, wire, integers(mine.column(UNIT).combine_chunks()))
            else:
                self._by_content(position, wire)

    def _narrowed(self, position: int, wire: pa.Table) -> pa.Table:
        """An alias' wire rows, with references in place of a payload that follows later."""
        plan = self.task.plan
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
        alias = self.task.plan.inputs[position].alias
        for unit, rows in grouped(units):
            self.post.post(Mail(unit, alias, wire if rows is None else wire.take(pa.array(rows))), 0)

    def _by_program(self, position: int, wire: pa.Table) -> None:
        alias = self.task.plan.inputs[position].alias
        columns = (self.orders.read or {}).get(alias)
        if columns is not None:
            program: Answering = self.task.program  # type: ignore[assignment]
            for mail in program.address(alias, columns, wire, self._first_id(wire.num_rows)):
                self.post.post(mail, 0)

    def _first_id(self, rows: int) -> int:
        """The first of so many numbers that no other tuple of the checkpoint has."""
        context = TaskContext.get()
        assert context is not None
        first, self.numbered = self.numbered, self.numbered + rows
        return id_of(self.orders.batch, context.partitionId(), first)

    def _by_content(self, position: int, wire: pa.Table) -> None:
        plan = self.task.plan
        alias = plan.inputs[position].alias
        stage, side = plan.entry(alias)
        for part in route(plan, stage, side, wire, self.routing):
            for unit in part.units:
                self.post.post(Mail(unit, kind_of(alias, part.role), part.table), plan.stages.index(stage))
        if self.orders.watches_keys:
            keys = stage.sides[side].keys
            codes = WireContent(plan, keys, wire).key(tuple(sorted(set(stage.sides[0].keys) & set(keys))))
            self.heavy.append((side, len(codes), frequent(codes)))

    def close(self) -> None:
        self.post.close()
        self.task.report(self.orders, [], self.post.parcels, self.adopted, self.heavy, self.entered)


def frequent(codes: np.ndarray) -> list[tuple[int, int]]:
    """The most frequent codes and how often they come.

    >>> frequent(np.array([7] * 50 + list(range(100, 150))))
    [(7, 50)]
    """
    found, counts = np.unique(codes, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    often = most[counts[most] * 200 > len(codes)]
    often = often[counts[often] > 1]
    return list(zip(found[often].tolist(), counts[often].tolist(), strict=True))


@dataclass
class Enter:
    """mapInArrow over the union, shuffled: a partition has all rows of its units."""

    task: Task

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.given(self.task.folder)
        held = [b for b in batches if b.num_rows]
        arrivals: Arrivals = {}
        if held:
            arrivals = by_unit_and_alias(self.task.plan, self.task.slots, enlarge(pa.Table.from_batches(held)))
            held.clear()
        yield from self.task.under(orders.apart).run(orders, arrivals, reached(self.task.plan, arrivals))
        after_task()


@dataclass
class Deliver:
    """mapInArrow over the numbers of shares."""

    task: Task

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.given(self.task.folder)
        arrivals: Arrivals = {}
        for share in _numbers(batches):
            for parcel in orders.shares[share]:
                arrivals.setdefault(parcel.to, {})
            for parcel, table in opened(self.task.folder, (p for p in orders.shares[share] if p.kind != WAKE)):
                arrivals.setdefault(parcel.to, {}).setdefault(parcel.kind, []).append(table)
        yield from self.task.under(orders.apart, orders.sites).run(orders, arrivals, orders.seen)
        after_task()


@dataclass
class Reship:
    """mapInArrow over the numbers of shares: stored tuples take the form in which the batch ships."""

    task: Task

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.given(self.task.folder)
        before, after = (self.task.under(apart).plan for apart in (orders.was, orders.apart))
        manifests = {unit: Manifest.from_json(state, before) for unit, state in orders.states.items()}
        held: dict[str, dict[int, SegmentInfo]] = {a: {} for a in before.aliases}
        for unit, manifest in manifests.items():
            if unit >= before.units:
                for alias in orders.was:
                    held[alias] |= {number_of(i): i for i in manifest.segments.get(alias, [])}
        store, units, adopted = FileStore(self.task.folder, orders.attempt), [], []
        joining = sorted(unit for unit in manifests if unit < before.units)
        for share in _numbers(batches):
            for unit in joining[share :: len(orders.shares)]:
                adopted += reship(before, after, manifests[unit], store, held)
                units.append({"unit": unit, "state": manifests[unit].to_json(), "report": asdict(StepReport())})
        self.task.report(orders, units, [], adopted)
        after_task()
        yield from ()


@dataclass
class Hand:
    """mapInArrow over the numbers of shares."""

    task: Task

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = Orders.given(self.task.folder)
        for share in _numbers(batches):
            for _, table in opened(self.task.folder, orders.shares[share]):
                yield from self.task.rows(table)


def _numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column(0).to_pylist()]


def by_alias(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of the union by the position of their alias."""
    alias = integers(table.column(ALIAS).combine_chunks())
    for position in np.unique(alias).tolist():
        yield position, slice_or_take(table, np.flatnonzero(alias == position))


def wire_of(slots: Slots, position: int, rows: pa.Table) -> pa.Table:
    """Rows of the union as an alias' wire rows."""
    names = slots.of[position]
    return in_utc(rows.select(list(names.values())).rename_columns(list(names)).combine_chunks())


def by_unit_and_alias(plan: Plan, slots: Slots, table: pa.Table) -> Arrivals:
    """Wire tables by unit and alias; every row is taken at most once."""
    out: Arrivals = {}
    for position, mine in by_alias(table):
        wire = wire_of(slots, position, mine)
        for unit, rows in grouped(integers(mine.column(UNIT).combine_chunks())):
            part = wire if rows is None else wire.take(pa.array(rows))
            out.setdefault(unit, {})[plan.inputs[position].alias] = [part]
    return out


def slice_or_take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Rows of a table; without a copy if they lie together."""
    first, count = int(rows[0]), len(rows)
    return table.slice(first, count) if int(rows[-1]) - first + 1 == count else table.take(pa.array(rows))


def reached(plan: Plan, arrivals: Arrivals) -> dict[str, int]:
    """Event times that the batch has reached for certain: those of the rows at hand."""
    out: dict[str, int] = {}
    for by_alias in arrivals.values():
        for alias, tables in by_alias.items():
            stream = plan.input(alias).stream
            for table in tables:
                times = table.column(TIME).drop_null()
                if len(times):
                    highest = int(integers(times.combine_chunks()).max())
                    out[stream] = max(out.get(stream, highest), highest)
    return out
