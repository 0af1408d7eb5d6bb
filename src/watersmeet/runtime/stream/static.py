"""A backfill: the same units over static data, slice by slice of event time.

Messages come sorted by (unit, lowest event time of the blob), so when a slice is taken every later one starts at or after it: the next blob's start is a
watermark for all streams, exact whatever the order of the files was.

Units that store one side only take tuples strictly in the order of time: they have no batches in common, so time alone must decide which of two units
makes a pair.

Invariant: nothing is late in static data; state is bounded by the windows plus the overlap of the slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import Promise
from watersmeet.dataflow.contract import Dataflow, Inbox, Message, Turn, Yielded
from watersmeet.dataflow.report import Report
from watersmeet.kernels.instants import LAST
from watersmeet.plan.model import TIME
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark.workers import as_task, columns_of, metrics_columns, result_batches
from watersmeet.runtime.stream.messages import record_batches, rows_of
from watersmeet.runtime.stream.processor import Heard, Unit
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.stores import MemoryStore

STEP_ROWS, STEP_BYTES = 262_144, 128 * 2**20
"""Slices are taken together up to about this many rows or bytes."""


@dataclass
class StageBackfill:
    """mapInArrow: sorted messages of a stage to those of the next one, or to results with metrics in `schema`."""

    flow: Dataflow
    stage: int
    identity: Identity
    schema: pa.Schema | None = None

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, current = {label: n for n, label in enumerate(labels(self.flow.stages[self.stage].units))}, None
        for label, kind, from_ts, blob in _rows(batches):
            if current is None or current.unit.number != number[label]:
                if current is not None:
                    yield from self._end(current)
                current = UnitRun(Unit(self.flow, self.stage, number[label]), self.identity)
            yield from self._out(current, current.take(kind, from_ts, blob))
        if current is not None:
            yield from self._end(current)

    def _end(self, run: UnitRun) -> Iterator[pa.RecordBatch]:
        yield from self._out(run, run.finish())
        if self.schema is None:
            yield from record_batches(run.unit.pass_on(run.heard, run.last, LAST), run.unit.following)
        else:
            yield from result_batches(
                metrics_columns(self.schema, run.unit.reports(run.heard, run.report)), self.schema
            )

    def _out(self, run: UnitRun, items: Iterator[Yielded]) -> Iterator[pa.RecordBatch]:
        if self.schema is None:
            sent = (item for item in items if isinstance(item, Message))
            yield from record_batches(
                rows_of(sent, self.stage + 1, run.unit.following, sliced=True), run.unit.following
            )
            return
        for item in items:
            if isinstance(item, pa.Table):
                yield from result_batches(columns_of(self.schema, item), self.schema)


class UnitRun:
    """One unit over all its slices."""

    def __init__(self, unit: Unit, identity: Identity) -> None:
        self.unit = unit
        self.state, self.store = Manifest.fresh(identity), MemoryStore()
        self.heard, self.report = Heard(), Report()
        self.last: Turn
        self._held = self._bytes = 0

    def take(self, kind: str, from_ts: int, blob: Any) -> Iterator[Yielded]:
        """Take one message; a turn over what is held when there is enough of it."""
        if self._held >= STEP_ROWS or self._bytes >= STEP_BYTES:
            yield from self._step(from_ts)
        self._bytes += len(blob)
        self._held += self.heard.take(kind, blob)

    def finish(self) -> Iterator[Yielded]:
        """A turn over the rest; the end of static input is a watermark of infinity."""
        yield from self._step(LAST)

    def _step(self, mark: int) -> Iterator[Yielded]:
        flow, heard = self.unit.flow, self.heard
        stage = flow.stages[self.unit.stage]
        now, later = split(heard.inbox, mark) if stage.in_order and mark < LAST else (heard.inbox, {})
        cuts = {} if heard.promise is None else heard.promise.cuts
        promised = replace(heard, inbox=now, promise=Promise(stage.marks(flow.streams, mark), cuts))
        self.last = self.unit.turn(promised, self.state, self.store)
        yield from heard.further
        heard.further.clear()
        yield from self.unit.step(self.last)
        self.report.include(self.last.report)
        self.last.report = self.report
        heard.inbox = later
        heard.seen.aside = {}
        tables = [t for tables in later.values() for t in tables]
        self._held, self._bytes = sum(t.num_rows for t in tables), sum(t.nbytes for t in tables)


def split(inbox: Inbox, mark: int) -> tuple[Inbox, Inbox]:
    """Rows before a mark, and rows at or after it."""
    now, later = Inbox(), Inbox()
    for kind, tables in inbox.items():
        early = [integers(t.column(TIME).combine_chunks()) < mark for t in tables]
        now[kind] = [t.filter(pa.array(e)) for t, e in zip(tables, early, strict=True) if e.any()]
        later[kind] = [t.filter(pa.array(~e)) for t, e in zip(tables, early, strict=True) if not e.all()]
    return now, later


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str, int, pa.Buffer]]:
    """(label, kind, from_ts, blob) of every message: a loop over blobs, not over tuples."""
    for batch in batches:
        small = [batch.column(c).to_pylist() for c in ("unit", "kind", "from_ts")]
        for n, row in enumerate(zip(*small, strict=True)):
            yield *row, batch.column("blob")[n].as_buffer()
