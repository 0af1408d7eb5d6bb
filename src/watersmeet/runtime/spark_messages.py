"""The rows that carry messages between Spark stages: one Arrow blob per (unit, side), with the punctuation beside it.

    unit   label of the unit in its stage, see routing.labels
    alias  position in FROM; CONTROL for words from stage to stage, BOUND for the results of the stage before
    probe  whether the rows only probe and are not stored
    max_ts, null_times   the punctuation of the task  from_ts  lowest event time in the blob
    blob   Arrow IPC stream of rows, or NULL

Invariant: every source task that saw rows sends every unit one row at least, so every unit wakes and every watermark
advances; blobs of streams are at most about 512 KB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pandas as pd
import pyarrow as pa

from watersmeet.plan.model import TIME, Plan, Stage
from watersmeet.routing.labels import labels
from watersmeet.runtime.worker_heap import after_task
from watersmeet.runtime.worker_words import errors_first
from watersmeet.units.blocks import block_bytes, enlarge, slice_by_bytes
from watersmeet.units.codes import integers
from watersmeet.units.evaluator import in_utc
from watersmeet.units.pack import Part, Punctuation, split, split_for_sequencer
from watersmeet.units.segment import to_bytes
from watersmeet.units.watermark import NEVER

MESSAGE = "unit bigint, alias int, probe boolean, max_ts bigint, null_times bigint, from_ts bigint, blob binary"
SCHEMA = pa.schema(
    [
        ("unit", pa.int64()),
        ("alias", pa.int32()),
        ("probe", pa.bool_()),
        ("max_ts", pa.int64()),
        ("null_times", pa.int64()),
        ("from_ts", pa.int64()),
        ("blob", pa.binary()),
    ]
)
FLUSH_BYTES = 16 * 2**20
BLOB_BYTES = 512 * 2**10
"""Small enough that no blob is a humongous object to the JVM's collector."""
SLICE_BYTES = 8 * 2**20
SLICE_ROWS = 65_536
"""The rows of a slice of static input: small, so that a slice covers little event time."""


CONTROL = -1
"""The alias of a control message: what an earlier stage says, as JSON in place of rows."""
BOUND = -2
"""The alias of tuples that the stage before has bound together."""


@dataclass(frozen=True)
class Message:
    """One row between stages; units are counted inside the stage that gets it."""

    unit: int
    alias: int
    blob: bytes | None
    probe: bool = False
    punctuation: Punctuation = field(default_factory=Punctuation)
    from_ts: int = NEVER


def message_batches(messages: Iterable[Message], units: int) -> Iterator[pa.RecordBatch]:
    """Messages as rows of SCHEMA, addressed by the labels of `units` units, in batches of bounded bytes: a blob that goes to
    several units stands in one row for each."""
    held, size = list[Message](), 0
    for message in messages:
        more = len(message.blob or b"")
        if held and size + more > block_bytes():
            yield _record_batch(held, units)
            held, size = [], 0
        held.append(message)
        size += more
    if held:
        yield _record_batch(held, units)


def message_frames(messages: Iterable[Message], units: int) -> Iterator[pd.DataFrame]:
    """The same for transformWithState."""
    yield from (pa.Table.from_batches([batch]).to_pandas() for batch in message_batches(messages, units))


def _record_batch(messages: Sequence[Message], units: int) -> pa.RecordBatch:
    ids = labels(units)
    columns = [
        pa.array([ids[m.unit] for m in messages], pa.int64()),
        pa.array([m.alias for m in messages], pa.int32()),
        pa.array([m.probe for m in messages], pa.bool_()),
        pa.array([m.punctuation.max_ts for m in messages], pa.int64()),
        pa.array([m.punctuation.null_times for m in messages], pa.int64()),
        pa.array([m.from_ts for m in messages], pa.int64()),
        pa.array([m.blob for m in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def slices(table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """A table as blobs of little event time each, with the time they start at."""
    in_time = table.take(pa.array(np.argsort(integers(table.column(TIME).combine_chunks()), kind="stable")))
    for at in range(0, table.num_rows, SLICE_ROWS):
        for piece in slice_by_bytes(in_time.slice(at, SLICE_ROWS), SLICE_BYTES):
            yield int(integers(piece.column(TIME).slice(0, 1).combine_chunks())[0]), to_bytes(piece)


@dataclass
class Packer:
    """mapInArrow: a source's wire rows to messages. `sliced` cuts static input into slices of event time.

    Messages go to the units of the stage where the stream enters, or to the sequencer if the plan has one.
    """

    plan: Plan
    position: int
    sliced: bool

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, held, size, seen = Punctuation(), [], 0, False
        for batch in batches:
            seen = seen or batch.num_rows > 0
            held.append(batch)
            size += batch.nbytes
            if size >= FLUSH_BYTES:
                yield from self._flush(held, total, last=False)
                held, size = [], 0
        if seen:
            yield from self._flush(held, total, last=True)
        held.clear()
        after_task()

    @property
    def units(self) -> int:
        return 1 if self.plan.sequenced else self._entry[0].routing.units

    @property
    def _entry(self) -> tuple[Stage, int]:
        return self.plan.entry(self.plan.inputs[self.position].alias)

    def _flush(self, held: list[pa.RecordBatch], total: Punctuation, last: bool) -> Iterator[pa.RecordBatch]:
        parts: list[Part] = []
        if held:
            punctuation, parts = self._split(enlarge(in_utc(pa.Table.from_batches(held))))
            total.include(punctuation)
        messages = part_messages(parts, self._entry[0].first, self.position, sliced=self.sliced)
        words = [Message(unit, self.position, None, punctuation=total) for unit in range(self.units)] if last else []
        yield from message_batches(chain(messages, words), self.units)

    def _split(self, table: pa.Table) -> tuple[Punctuation, list[Part]]:
        source = self.plan.inputs[self.position]
        if not self.plan.sequenced:
            return split(self.plan, source, table)
        punctuation, rows = split_for_sequencer(source, table)
        return punctuation, [Part((0,), "both", rows)] if rows.num_rows else []


def part_messages(parts: Iterable[Part], first: int, alias: int, *, sliced: bool) -> Iterator[Message]:
    """Parts of a side as messages; a blob that goes to several units is made once."""
    for part in parts:
        for from_ts, blob in blobs(part.table, sliced=sliced):
            for unit in part.units:
                yield Message(unit - first, alias, blob, part.role == "probe", from_ts=from_ts)


def blobs(table: pa.Table, *, sliced: bool) -> Iterator[tuple[int, bytes]]:
    """A table as blobs, with the time that they start at if they are slices of event time."""
    if sliced:
        yield from slices(table)
    else:
        yield from ((NEVER, to_bytes(piece)) for piece in slice_by_bytes(table, BLOB_BYTES))
