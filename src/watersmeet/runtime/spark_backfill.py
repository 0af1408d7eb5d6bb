"""A backfill: the same units over static data, slice by slice of event time.

Messages come sorted by (unit, lowest event time of the blob), so when a slice is taken every later one starts at or
after it: the next blob's start is a watermark for all streams, exact whatever the order of the files was.

Invariant: nothing is late in static data; state is bounded by the windows plus the overlap of the slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark_messages import CONTROL, record_batch
from watersmeet.runtime.spark_results import arrow_columns, metrics_columns, record_batches
from watersmeet.runtime.spark_sequencer import release_messages, release_said
from watersmeet.units.join_unit import Inbox, JoinUnit, StepReport
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment import from_bytes
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.sequencer import Release, Sequencer
from watersmeet.units.state import Manifest

STEP_ROWS = 262_144
"""Slices are taken together up to about this many rows."""


@dataclass
class Backfill:
    """mapInArrow: sorted messages to results."""

    plan: Plan
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unit_of = {label: unit for unit, label in enumerate(labels(self.plan.grid.units))}
        current: UnitRun | None = None
        for label, alias, null_times, from_ts, blob in _messages(batches):
            unit = unit_of[label]
            if current is None or current.join.unit != unit:
                if current is not None:
                    yield from self._finish(current)
                current = UnitRun(self.plan, unit)
            yield from self._out(current.take(alias, null_times, from_ts, blob))
        if current is not None:
            yield from self._finish(current)

    def _finish(self, run: UnitRun) -> Iterator[pa.RecordBatch]:
        yield from self._out(run.finish())
        yield from (
            b.cast(self.schema) for b in record_batches(metrics_columns(self.schema, run.join.unit, run.report))
        )

    def _out(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        for table in tables:
            yield from (b.cast(self.schema) for b in record_batches(arrow_columns(self.plan, table)))


class UnitRun:
    """One unit over all its slices."""

    def __init__(self, plan: Plan, unit: int) -> None:
        self.plan = plan
        self.join = JoinUnit(plan, unit)
        self.manifest, self.store = Manifest.fresh(plan), MemoryStore()
        self.inbox, self.held = Inbox(), 0
        self.report = StepReport()

    def take(self, alias: int, null_times: int, from_ts: int, blob: pa.Buffer | None) -> Iterator[pa.Table]:
        """Take one message; joins what is held when there is enough of it."""
        if self.held >= STEP_ROWS:
            yield from self._step(from_ts)
        if alias == CONTROL:
            assert blob is not None
            release_said(bytes(blob), self.inbox, self.report)
            self.inbox.marks = None
            return
        source = self.plan.inputs[alias]
        self.inbox.punctuate(source.stream, Punctuation(null_times=null_times))
        if blob is not None:
            table = from_bytes(blob)
            self.inbox.tables.setdefault(source.alias, []).append(table)
            self.held += table.num_rows

    def finish(self) -> Iterator[pa.Table]:
        """Join the rest; the end of static input is a watermark of infinity."""
        yield from self._step(UNBOUNDED)

    def _step(self, mark: int) -> Iterator[pa.Table]:
        self.inbox.marks = dict.fromkeys(self.plan.join.streams, mark)
        yield from self.join.step(self.inbox, self.manifest, self.store)
        self.report.include(self.join.report)
        self.inbox, self.held = Inbox(cuts=self.inbox.cuts), 0


@dataclass
class SequenceBackfill:
    """mapInArrow over one partition: the sequencer over static data."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sequencer, manifest, store = Sequencer(self.plan), Manifest.fresh(self.plan), MemoryStore()
        inbox, held = Inbox(), 0
        for _, alias, null_times, from_ts, blob in _messages(batches):
            if held >= STEP_ROWS:
                inbox.marks = dict.fromkeys(self.plan.join.streams, from_ts)
                yield from self._out(sequencer.step(inbox, manifest, store))
                inbox, held = Inbox(), 0
            source = self.plan.inputs[alias]
            inbox.punctuate(source.stream, Punctuation(null_times=null_times))
            if blob is not None:
                table = from_bytes(blob)
                inbox.tables.setdefault(source.alias, []).append(table)
                held += table.num_rows
        inbox.marks = dict.fromkeys(self.plan.join.streams, UNBOUNDED)
        yield from self._out(sequencer.step(inbox, manifest, store, last=True))

    def _out(self, release: Release) -> Iterator[pa.RecordBatch]:
        yield record_batch(release_messages(self.plan, release, sliced=True), self.plan.grid.units)


def _messages(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, int, int, pa.Buffer | None]]:
    """(label, alias, null_times, from_ts, blob) of every message: a loop over blobs, not over tuples."""
    for batch in batches:
        small = [batch.column(c).to_pylist() for c in ("unit", "alias", "null_times", "from_ts")]
        for n, row in enumerate(zip(*small, strict=True)):
            yield *row, batch.column("blob")[n].as_buffer()
