"""The sequencer: the one unit that can number a stream. It serves queries with ROWS windows.

    arrivals -> hold until the watermarks of all ROWS streams have passed -> number, annotate, route to the join units

A tuple is released when its time lies before R, the lowest watermark of the streams with a ROWS window: then no tuple
of theirs can come before it any more, so numbers and counts are final (`plan.rules.sequence` says what they mean).

Invariant: tuples of a ROWS stream are released in (ts, content hash) order across all batches; what is late is dropped
and counted here, where the base streams enter, and never again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.kernels.instants import LAST
from watersmeet.plan.model import COUNTED, SEQUENCE, TIME, InputPlan, Plan
from watersmeet.plan.rules.sequence import reach
from watersmeet.units.blocks import slice_by_bytes
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import Inbox
from watersmeet.units.pack import HASH, PASS, route
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import NEVER, advance, watermarks


@dataclass
class Release:
    """What leaves the sequencer after a batch: tuples by (alias, unit), and what the join units may rely on."""

    tables: dict[str, list[tuple[int, pa.Table]]] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)


class Sequencer:
    """Numbers the streams with ROWS windows. Its manifest holds pending tuples, and in `extra` the counts so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def step(self, inbox: Inbox, manifest: Manifest, store: SegmentStore, *, last: bool = False) -> Release:
        """Take a batch; release what is final. `last` ends the input: a watermark of infinity."""
        out = Release()
        before = watermarks(self.plan, manifest.maxima) if inbox.marks is None else {}
        for stream, punctuation in inbox.punctuations.items():
            self._book(out, manifest, stream, punctuation.null_times)
        pending = {i.alias: self._pending(i, inbox, before, manifest, store, out) for i in self.plan.inputs}
        manifest.maxima = advance(manifest.maxima, {s: p.max_ts for s, p in inbox.punctuations.items()})
        marks = inbox.marks if inbox.marks is not None else watermarks(self.plan, manifest.maxima)
        if last:
            marks = dict.fromkeys(self.plan.join.streams, LAST)
        until = min(marks[i.stream] for i in self.plan.sequenced)
        out.marks = {s: min(mark, until) for s, mark in marks.items()}
        until += until == LAST  # then nothing is held back
        self._release(pending, until, manifest, out)
        self._keep(pending, until, manifest, store)
        self._forget(manifest, out)
        return out

    def _pending(
        self,
        source: InputPlan,
        inbox: Inbox,
        marks: Mapping[str, int],
        manifest: Manifest,
        store: SegmentStore,
        out: Release,
    ) -> pa.Table | None:
        """Everything of an alias that has not been released: held tuples, and new ones that are not late."""
        tables = [store.read(info).table for info in manifest.segments[source.alias]]
        for table in inbox.tables.get(source.alias, []):
            late = integers(table.column(TIME).combine_chunks()) < marks.get(source.stream, NEVER)
            if late.any():
                self._book(out, manifest, source.stream, int(np.count_nonzero(late & _counts(table))))
                table = table.filter(pa.array(~late))
            tables.append(table)
        return pa.concat_tables(tables).combine_chunks() if tables else None

    def _book(self, out: Release, manifest: Manifest, stream: str, rows: int) -> None:
        if rows:
            manifest.late[stream] = manifest.late.get(stream, 0) + rows
            out.late[stream] = out.late.get(stream, 0) + rows

    def _release(self, pending: Mapping[str, pa.Table | None], until: int, manifest: Manifest, out: Release) -> None:
        released = {
            alias: _where_ts(table, lambda ts: ts < until) for alias, table in pending.items() if table is not None
        }
        numbers = {}
        for source in self.plan.sequenced:
            if source.alias in released:
                table = released[source.alias]
                ts = integers(table.column(TIME).combine_chunks())
                order = np.lexsort((integers(table.column(HASH).combine_chunks()), ts))
                released[source.alias] = table.take(pa.array(order))
                count = Counts.of(manifest, source.alias)
                numbers[source.alias] = count.total + 1 + np.arange(len(ts))
                count.extend(ts[order])
                count.save(manifest, source.alias)
        for source in self.plan.inputs:
            if source.alias in released:
                table = self._annotated(source, released[source.alias], numbers.get(source.alias), manifest)
                out.tables[source.alias] = self._routed(source, table)

    def _annotated(
        self, source: InputPlan, table: pa.Table, numbers: np.ndarray | None, manifest: Manifest
    ) -> pa.Table:
        """Add numbers and reaches; drop what no result can hold."""
        ts = integers(table.column(TIME).combine_chunks())
        keep = np.asarray(table.column(PASS).to_numpy(), bool) if PASS in table.column_names else np.ones(len(ts), bool)
        wire = table.drop_columns([c for c in (PASS, HASH) if c in table.column_names])
        for other in self.plan.sequenced:
            assert other.rows is not None
            beyond = Counts.of(manifest, other.alias).up_to(ts) - other.rows
            if other.alias == source.alias:
                assert numbers is not None
                wire = wire.append_column(SEQUENCE, pa.array(numbers, pa.int64()))
                keep = keep & (numbers > beyond)
            else:
                wire = wire.append_column(reach(other.alias), pa.array(beyond, pa.int64()))
        return wire.filter(pa.array(keep))

    def _routed(self, source: InputPlan, table: pa.Table) -> list[tuple[int, pa.Table]]:
        parts = route(self.plan, *self.plan.entry(source.alias), table)
        return [(unit, part.table) for part in parts for unit in part.units]

    def _keep(
        self, pending: Mapping[str, pa.Table | None], until: int, manifest: Manifest, store: SegmentStore
    ) -> None:
        for alias, table in pending.items():
            for info in manifest.segments[alias]:
                store.remove(info)
            manifest.segments[alias] = []
            held = None if table is None else _where_ts(table, lambda ts: ts >= until)
            if held is not None and held.num_rows:
                manifest.segments[alias] = [store.write(Segment.of(block)) for block in slice_by_bytes(held)]

    def _forget(self, manifest: Manifest, out: Release) -> None:
        """Where each ROWS window has left tuples behind, and counts that no future tuple asks for."""
        floor = min(out.marks.values())
        for source in self.plan.sequenced:
            assert source.rows is not None
            count = Counts.of(manifest, source.alias)
            earliest = min(out.marks[self.plan.input(y).stream] for y in self.plan.aliases if y != source.alias)
            oldest = count.before(earliest) - source.rows + 1
            out.cuts[source.alias] = count.time_of(oldest)
            count.trim(floor, oldest)
            count.save(manifest, source.alias)


def _counts(table: pa.Table) -> np.ndarray:
    """The rows that count if they are late: those that may join, and that no earlier alias of the stream counts."""
    out = np.ones(table.num_rows, bool)
    if PASS in table.column_names:
        out &= np.asarray(table.column(PASS).to_numpy(), bool)
    if COUNTED in table.column_names:
        out &= ~np.asarray(table.column(COUNTED).to_numpy(), bool)
    return out


def _where_ts(table: pa.Table, test):  # type: ignore[no-untyped-def]
    return table.filter(pa.array(test(integers(table.column(TIME).combine_chunks()))))


@dataclass
class Counts:
    """N_a: how many tuples of one stream lie at or before a time; times before `times[0]` are only counted.

    >>> count = Counts(2, np.array([10, 20, 20]))
    >>> count.up_to(np.array([9, 20])).tolist(), count.before(20), count.time_of(3)
    ([2, 5], 3, 10)
    """

    base: int
    times: np.ndarray

    @classmethod
    def of(cls, manifest: Manifest, alias: str) -> Counts:
        base, times = manifest.extra.get(alias, (0, []))
        return cls(base, np.asarray(times, np.int64))

    def save(self, manifest: Manifest, alias: str) -> None:
        manifest.extra[alias] = (self.base, self.times.tolist())

    @property
    def total(self) -> int:
        return self.base + len(self.times)

    def extend(self, ts: np.ndarray) -> None:
        self.times = np.concatenate([self.times, ts])

    def up_to(self, ts: np.ndarray) -> np.ndarray:
        return self.base + np.searchsorted(self.times, ts, side="right")

    def before(self, ts: int) -> int:
        return self.base + int(np.searchsorted(self.times, ts, side="left"))

    def time_of(self, number: int) -> int:
        """The time of the tuple with a number; before all time if it is forgotten, after all if it is not there yet."""
        at = number - 1 - self.base
        if at < 0:
            return NEVER
        return int(self.times[at]) if at < len(self.times) else LAST

    def trim(self, ts: int, oldest: int) -> None:
        """Forget times before ts, which no future tuple asks for, of tuples before the oldest that is in reach."""
        gone = min(int(np.searchsorted(self.times, ts, side="left")), max(oldest - 1 - self.base, 0))
        self.base, self.times = self.base + gone, self.times[gone:]
