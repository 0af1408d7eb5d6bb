"""The sequencer: the one unit that can number a stream. It serves queries with ROWS windows.

    arrivals -> hold until the watermarks of all ROWS streams have passed -> number, annotate, route to the join units

A tuple is released when its time lies before R, the lowest watermark of the streams with a ROWS window: then no tuple
of theirs can come before it any more, so numbers and counts are final (`plan.rules.lay_out` says what they mean).

Invariant: tuples of a ROWS stream are released in (ts, content hash) order across all batches; what is late is dropped
and counted here, where the base streams enter, and never again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers, slice_by_bytes
from watersmeet.dataflow.clock import NEVER, Clock, count
from watersmeet.dataflow.contract import Message, Turn, Yielded, first_unit, write_words
from watersmeet.kernels.instants import LAST
from watersmeet.operators.enter import HASH, route
from watersmeet.plan.model import SEQUENCE, TIME, InputPlan, Plan
from watersmeet.plan.rules.lay_out import reach
from watersmeet.plan.source_sql import PASS
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment

Pending = Mapping[str, pa.Table | None]
"""By alias everything that has not been released."""


@dataclass(frozen=True)
class Sequence:
    """Numbers the streams with ROWS windows, for the join that is the next stage. Its state holds pending tuples, and in `extra` the counts so far."""

    plan: Plan

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        pending = {i.alias: self._collect_pending(turn, i) for i in self.plan.inputs}
        marks = turn.clock.after
        until = min(marks[i.stream] for i in self.plan.sequenced)
        promised = {s: min(mark, until) for s, mark in marks.items()}
        until += until == LAST  # then all is released
        yield from self._release(turn.state, pending, until)
        self._keep(turn, pending, until)
        promise = {"marks": promised, "cuts": self._forget(turn.state, promised)}
        for unit in range(self.plan.units):
            yield write_words(first_unit(1) + unit, promise)
        turn.report.watermarks = promised

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Pending tuples are released and never expire."""
        return {}

    def _collect_pending(self, turn: Turn, source: InputPlan) -> pa.Table | None:
        """Everything of an alias that has not been released: held tuples, and new ones that are not late."""
        tables = [turn.store.read(info).table for info in turn.state.segments[source.alias]]
        for table in turn.inbox.pop(source.alias, []):
            late = turn.clock.late(source.stream, integers(table.column(TIME).combine_chunks()))
            turn.report.rows_in[source.alias] = turn.report.rows_in.get(source.alias, 0) + table.num_rows
            if late is not None:
                turn.book_late(source.stream, count(table, late & _may_join(table)))
                table = table.filter(pa.array(~late))
            tables.append(table)
        return pa.concat_tables(tables).combine_chunks() if tables else None

    def _release(self, state: Manifest, pending: Pending, until: int) -> Iterator[Message]:
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
                counts = StreamCounts.of(state, source.alias)
                numbers[source.alias] = counts.total + 1 + np.arange(len(ts))
                counts.extend(ts[order])
                counts.save(state, source.alias)
        for source in self.plan.inputs:
            if source.alias in released:
                table = self._annotate(source, released[source.alias], numbers.get(source.alias), state)
                yield from route(self.plan, *self.plan.entry(source.alias), table, 1)

    def _annotate(self, source: InputPlan, table: pa.Table, numbers: np.ndarray | None, state: Manifest) -> pa.Table:
        """Add numbers and reaches; drop what no result can hold."""
        ts = integers(table.column(TIME).combine_chunks())
        keep = np.asarray(table.column(PASS).to_numpy(), bool) if PASS in table.column_names else np.ones(len(ts), bool)
        wire = table.drop_columns([c for c in (PASS, HASH) if c in table.column_names])
        for other in self.plan.sequenced:
            beyond = other.find_beyond(StreamCounts.of(state, other.alias).up_to(ts))
            if other.alias == source.alias:
                assert numbers is not None
                wire = wire.append_column(SEQUENCE, pa.array(numbers, pa.int64()))
                keep = keep & (numbers > beyond)
            else:
                wire = wire.append_column(reach(other.alias), pa.array(beyond, pa.int64()))
        return wire.filter(pa.array(keep))

    def _keep(self, turn: Turn, pending: Pending, until: int) -> None:
        segments = turn.state.segments
        for alias, table in pending.items():
            for info in segments[alias]:
                turn.store.remove(info)
            held = None if table is None else _where_ts(table, lambda ts: ts >= until)
            blocks = slice_by_bytes(held) if held is not None and held.num_rows else ()
            segments[alias] = [turn.store.write(Segment.of(block)) for block in blocks]

    def _forget(self, state: Manifest, marks: Mapping[str, int]) -> dict[str, int]:
        """Where each ROWS window has left tuples behind; counts that no future tuple asks for are dropped."""
        floor, cuts = min(marks.values()), {}
        for source in self.plan.sequenced:
            counts = StreamCounts.of(state, source.alias)
            earliest = min(marks[self.plan.by_alias[y].stream] for y in self.plan.aliases if y != source.alias)
            oldest = source.find_beyond(counts.before(earliest)) + 1  # no later tuple of the others finds fewer
            cuts[source.alias] = counts.time_of(oldest)
            counts.trim(floor, oldest)
            counts.save(state, source.alias)
        return cuts


def _may_join(table: pa.Table) -> np.ndarray | bool:
    """The rows that count if they are late: those that may join."""
    return np.asarray(table.column(PASS).to_numpy(), bool) if PASS in table.column_names else True


def _where_ts(table: pa.Table, test):  # type: ignore[no-untyped-def]
    return table.filter(pa.array(test(integers(table.column(TIME).combine_chunks()))))


@dataclass
class StreamCounts:
    """N_a: how many tuples of one stream lie at or before a time; times before `times[0]` are only counted.

    >>> count = StreamCounts(2, np.array([10, 20, 20]))
    >>> count.up_to(np.array([9, 20])).tolist(), count.before(20), count.time_of(3)
    ([2, 5], 3, 10)
    """

    base: int
    times: np.ndarray

    @classmethod
    def of(cls, manifest: Manifest, alias: str) -> StreamCounts:
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
