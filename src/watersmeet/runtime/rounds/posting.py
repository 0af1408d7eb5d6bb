"""Source tasks: rows that enter are posted to their units, as mail.

    Post      rows that Spark has read
    Fetch     rows of splits of files, which the task reads itself (`runtime.rounds.splits`)

Invariant: mail is complete before the task's report, which names it. A task that runs twice writes other files, and either report is as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from watersmeet.columns.arrow import enlarge, integers, mark_utc
from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import Dataflow, Message, Origin, round_of
from watersmeet.kernels.hash_window import group_rows
from watersmeet.operators.enter import AHEAD, BROKEN, Copies, JoinEntry, WireContent, find_usable, route, take_kept
from watersmeet.operators.late import ROW, find_lost
from watersmeet.operators.payload import holder, split
from watersmeet.plan.rules.ship import payload_of
from watersmeet.routing.hot_keys import find_frequent
from watersmeet.runtime.rounds.entering import FIRST, UNIT, by_alias, row_slot, wire_of
from watersmeet.runtime.rounds.files import FileStore, Orders, PostOffice, TaskReport
from watersmeet.runtime.rounds.splits import Columns, Split, UnreadableError, list_splits, read_split
from watersmeet.runtime.rounds.worker import LOST, Task
from watersmeet.runtime.spark.workers import after_task, as_task
from watersmeet.storage.segment import SegmentInfo

POST_BYTES = 32 * 2**20
"""A source task posts its rows in pieces of about this size."""
POSTED = pa.schema([("report", pa.string()), ("mail", pa.binary())])
"""What leaves a task that has posted."""
POSTED_DDL = "report string, mail binary"


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
        yield from posting.report()


@dataclass
class Fetch:
    """mapInArrow over splits of files; what leaves a task is the same."""

    task: Task
    columns: Columns
    """By alias what is read."""
    orders: str | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        posting = Posting(self.task, Orders.read(self.task.folder, self.orders))
        splits = list_splits(batches)
        posting.splits = [(split.position, split.path) for split in splits]
        if posting.orders.reads:
            try:
                self._read(splits, posting)
            except UnreadableError as error:
                posting.unread = str(error)
        else:
            posting.unread = "Spark reads"
        yield from posting.report()

    def _read(self, splits: Iterable[Split], posting: Posting) -> None:
        held, size = list[pa.Table](), 0
        for position, mine in groupby(splits, lambda split: split.position):
            for table in (t for one in mine for t in read_split(one, self.columns[position])):
                held.append(table)
                size += table.nbytes
                if size >= POST_BYTES:
                    posting.take(position, held)
                    size = 0
            posting.take(position, held)
            size = 0


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
        self.splits: list[tuple[int, str]] = []
        self.unread = ""
        self.rows: dict[int, int] = {}
        self.seen = Seen()

    def take(self, position: int, held: list[pa.Table]) -> None:
        """Post wire rows of an alias that this task has read itself, and let go of them."""
        if not held:
            return
        wire, seen = take_kept(self.task.flows.plan.inputs[position], pa.concat_tables(held))
        self.rows[position] = self.rows.get(position, 0) + sum(table.num_rows for table in held)
        self.seen.include(seen)
        held.clear()
        wire = self._narrow(position, wire)
        if self.task.entrance.units:
            self._route(position, wire)
        else:
            self._by_content(position, wire)

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
        self._route(position, wire)

    def _route(self, position: int, wire: pa.Table) -> None:
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

    def report(self) -> Iterator[pa.RecordBatch]:
        """What was done, and the mail that is in no file; the task is over."""
        self.post.close()
        adopted = [(unit, alias, vars(info)) for unit, alias, info in self.adopted]
        done = TaskReport([], self.post.parcels, adopted, self.heavy, self.entered)
        done.splits, done.unread, done.rows, done.seen = self.splits, self.unread, self.rows, vars(self.seen)
        after_task()
        columns = [pa.array([done.to_json()]), pa.array([self.post.held], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, POSTED.names)
