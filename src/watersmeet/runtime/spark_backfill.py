"""A backfill: the same units over static data, slice by slice of event time.

Messages come sorted by (unit, lowest event time of the blob), so when a slice is taken every later one starts at or
after it: the next blob's start is a watermark for all streams, exact whatever the order of the files was.

Units of a biclique take tuples strictly in the order of time: they have no batches in common, so time alone must decide
which of two units makes a pair.

Invariant: nothing is late in static data; state is bounded by the windows plus the overlap of the slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.kernels.instants import LAST, moved
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark_messages import Message, message_batches
from watersmeet.runtime.spark_results import arrow_columns, metrics_columns, record_batches
from watersmeet.runtime.spark_sequencer import release_messages
from watersmeet.runtime.spark_stages import bound_messages, passed_on, report_of
from watersmeet.runtime.spark_state import Heard, take_message
from watersmeet.runtime.worker_words import errors_first
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import Inbox, JoinUnit
from watersmeet.units.leave import leaving
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.sequencer import Release, Sequencer
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import NEVER

STEP_ROWS, STEP_BYTES = 262_144, 128 * 2**20
"""Slices are taken together up to about this many rows or bytes."""


@dataclass
class StageBackfill:
    """mapInArrow: sorted messages of a stage before the last to messages of the next one."""

    plan: Plan
    number: int

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        after = self.plan.stages[self.number + 1]
        for run, table in _runs(self.plan, self.number, batches):
            messages: Iterable[Message]
            if table is not None:
                messages = bound_messages(self.plan, after, table, sliced=True)
            else:
                messages = passed_on(after, run.join.unit, {}, run.reports(), NEVER)
            yield from message_batches(messages, after.routing.units)


@dataclass
class Backfill:
    """mapInArrow: sorted messages of the last stage to results."""

    plan: Plan
    schema: pa.Schema

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, table in _runs(self.plan, len(self.plan.stages) - 1, batches):
            columns = metrics_columns(self.schema, run.reports()) if table is None else arrow_columns(self.plan, table)
            yield from record_batches(columns, self.schema)


def _runs(plan: Plan, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[UnitRun, pa.Table | None]]:
    """Every unit of a partition in turn: its tables, and None when it is at its end."""
    stage, current = plan.stages[number], None
    unit_of = {label: stage.first + n for n, label in enumerate(labels(stage.routing.units))}
    for label, alias, probe, null_times, from_ts, blob in _messages(batches):
        if current is None or current.join.unit != unit_of[label]:
            if current is not None:
                yield from ((current, table) for table in current.finish())
                yield current, None
            current = UnitRun(plan, unit_of[label])
        yield from ((current, table) for table in current.take(alias, probe, null_times, from_ts, blob))
    if current is not None:
        yield from ((current, table) for table in current.finish())
        yield current, None


class UnitRun:
    """One unit over all its slices."""

    def __init__(self, plan: Plan, unit: int) -> None:
        self.plan = plan
        self.join = JoinUnit(plan, unit)
        self.manifest, self.store = Manifest.fresh(plan), MemoryStore()
        self.inbox, self.held, self.held_bytes = Inbox(), 0, 0
        self.heard = Heard()

    def take(
        self, alias: int, probe: bool, null_times: int, from_ts: int, blob: pa.Buffer | None
    ) -> Iterator[pa.Table]:
        """Take one message; joins what is held when there is enough of it."""
        if self.held >= STEP_ROWS or self.held_bytes >= STEP_BYTES:
            yield from self._step(from_ts)
        stage = self.join.stage
        self.held_bytes += 0 if blob is None else len(blob)
        self.held += take_message(self.plan, stage, self.inbox, self.heard, alias, probe, NEVER, null_times, blob)

    def finish(self) -> Iterator[pa.Table]:
        """Join the rest; the end of static input is a watermark of infinity."""
        yield from self._step(LAST)

    def reports(self) -> list[dict[str, Any]]:
        return [*self.heard.units, report_of(self.join.unit, self.heard.report)]

    def _step(self, mark: int) -> Iterator[pa.Table]:
        later = Inbox(cuts=self.inbox.cuts)
        if isinstance(self.join.stage.routing, Biclique):
            for now, then in ((self.inbox.tables, later.tables), (self.inbox.probes, later.probes)):
                _hold_back(now, then, mark)
        self.inbox.marks = self._marks(mark)
        results = self.join.step(self.inbox, self.manifest, self.store)
        yield from leaving(self.plan, results) if self.join.is_last else results
        self.heard.report.include(self.join.report)
        self.inbox = later
        tables = [t for by_side in (later.tables, later.probes) for ts in by_side.values() for t in ts]
        self.held, self.held_bytes = sum(t.num_rows for t in tables), sum(t.nbytes for t in tables)

    def _marks(self, mark: int) -> dict[str, int]:
        """What a mark on the times of all sides means for the streams: a side's other members may be older than it."""
        graph, marks = self.plan.join.windows, dict.fromkeys(self.plan.join.streams, mark)
        if mark >= LAST:
            return marks
        for side in self.join.stage.sides:
            for alias in side.aliases:
                back = 0 if alias == side.reference else graph.lo(side.reference, alias)
                stream = self.plan.input(alias).stream
                marks[stream] = min(marks[stream], NEVER if back <= -UNBOUNDED else moved(mark, min(back, 0)))
        return marks


def _hold_back(now: dict[str, list[pa.Table]], then: dict[str, list[pa.Table]], mark: int) -> None:
    """Keep rows at or after a mark for later: units of a biclique must all see tuples in the order of time."""
    if mark >= LAST:
        return
    for side, tables in now.items():
        early = [integers(t.column(TIME).combine_chunks()) < mark for t in tables]
        then[side] = [t.filter(pa.array(~e)) for t, e in zip(tables, early, strict=True) if not e.all()]
        now[side] = [t.filter(pa.array(e)) for t, e in zip(tables, early, strict=True) if e.any()]


@dataclass
class SequenceBackfill:
    """mapInArrow over one partition: the sequencer over static data."""

    plan: Plan

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sequencer, manifest, store = Sequencer(self.plan), Manifest.fresh(self.plan), MemoryStore()
        inbox, held, held_bytes = Inbox(), 0, 0
        for _, alias, probe, null_times, from_ts, blob in _messages(batches):
            if held >= STEP_ROWS or held_bytes >= STEP_BYTES:
                inbox.marks = dict.fromkeys(self.plan.join.streams, from_ts)
                yield from self._out(sequencer.step(inbox, manifest, store))
                inbox, held, held_bytes = Inbox(), 0, 0
            held_bytes += 0 if blob is None else len(blob)
            stage = self.plan.stages[0]
            held += take_message(self.plan, stage, inbox, Heard(), alias, probe, NEVER, null_times, blob)
        inbox.marks = dict.fromkeys(self.plan.join.streams, LAST)
        yield from self._out(sequencer.step(inbox, manifest, store, last=True))

    def _out(self, release: Release) -> Iterator[pa.RecordBatch]:
        yield from message_batches(release_messages(self.plan, release, sliced=True), self.plan.units)


def _messages(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, bool, int, int, pa.Buffer | None]]:
    """(label, alias, probe, null_times, from_ts, blob) of every message: a loop over blobs, not over tuples."""
    for batch in batches:
        small = [batch.column(c).to_pylist() for c in ("unit", "alias", "probe", "null_times", "from_ts")]
        for n, row in enumerate(zip(*small, strict=True)):
            yield *row, batch.column("blob")[n].as_buffer()
