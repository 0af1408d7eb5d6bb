"""The rows between Spark's operators and ours: messages of units, one Arrow blob per unit and kind.

    unit      label of the unit in its stage, see routing.labels
    kind      of the message; words are JSON, others Arrow IPC streams of rows
    from_ts   the lowest event time in the blob, where it is a slice of static input
    blob      the rows, or the words

Every source task that saw rows, and every unit of a stage, sends a word to every unit of the next: so every unit wakes in every batch, and every
watermark advances in all stages in the batch in which it rises.
Invariant: blobs of streams are at most about 512 KB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, enlarge, from_bytes, integers, mark_utc, slice_by_bytes, to_bytes
from watersmeet.dataflow.clock import NEVER, Seen
from watersmeet.dataflow.contract import WORDS, Dataflow, Message, first_unit, stage_of
from watersmeet.operators.enter import Copies
from watersmeet.operators.late import ROW, candidates
from watersmeet.plan.model import TIME, InputPlan
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark.workers import after_task, as_task

MESSAGE = "unit bigint, kind string, from_ts bigint, blob binary"
SCHEMA = pa.schema([("unit", pa.int64()), ("kind", pa.string()), ("from_ts", pa.int64()), ("blob", pa.binary())])
FLUSH_BYTES = 16 * 2**20
BLOB_BYTES = 512 * 2**10
"""Small enough that no blob is a humongous object to the JVM's collector."""
CANDIDATES = ":candidates "
"""Prefix of the kinds of messages of rows that a unit has to tell dropped ones among, with their stream."""
FURTHER = "to "
"""Prefix of the kinds of messages to stages after the next, with the unit that they are for."""
SLICE_BYTES = 8 * 2**20
SLICE_ROWS = 65_536
"""The rows of a slice of static input: small, so that a slice covers little event time."""


@dataclass(frozen=True)
class Row:
    """One row between stages; units are counted inside the stage that gets it."""

    unit: int
    kind: str
    blob: bytes
    from_ts: int = NEVER


def rows_of(messages: Iterable[Message], stage: int, units: int, *, sliced: bool) -> Iterator[Row]:
    """Messages as rows to a stage of so many units, which passes on those to later stages; a table that goes to several units in turn is written once."""
    table, cut = None, list[tuple[int, bytes]]()
    for message in messages:
        if message.table is not table:
            table, cut = message.table, list(_blobs(message, sliced=sliced))
        to, kind = message.to - first_unit(stage), message.kind
        if stage_of(message.to) > stage:
            to, kind = message.to % units, f"{FURTHER}{message.to} {kind}"
        yield from (Row(to, kind, blob, from_ts) for from_ts, blob in cut)


def read_further(kind: str, blob: Any) -> Message:
    """A message that is to be passed on."""
    to, _, rest = kind.removeprefix(FURTHER).partition(" ")
    return Message(int(to), rest, from_bytes(blob))


def tell(units: int, said: Mapping[str, Any], from_ts: int = NEVER) -> list[Row]:
    """A word for every unit of a stage."""
    blob = json.dumps(said).encode()
    return [Row(unit, WORDS, blob, from_ts) for unit in range(units)]


def record_batches(rows: Iterable[Row], units: int) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA, addressed by the labels of `units` units, in batches of bounded bytes."""
    held, size = list[Row](), 0
    for row in rows:
        if held and size + len(row.blob) > block_bytes():
            yield _record_batch(held, units)
            held, size = [], 0
        held.append(row)
        size += len(row.blob)
    if held:
        yield _record_batch(held, units)


def frames(rows: Iterable[Row], units: int) -> Iterator[pd.DataFrame]:
    """The same for transformWithState."""
    yield from (pa.Table.from_batches([batch]).to_pandas() for batch in record_batches(rows, units))


def _record_batch(rows: Sequence[Row], units: int) -> pa.RecordBatch:
    ids = labels(units)
    columns = [[ids[r.unit] for r in rows], [r.kind for r in rows], [r.from_ts for r in rows], [r.blob for r in rows]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _blobs(message: Message, *, sliced: bool) -> Iterator[tuple[int, bytes]]:
    """A message's table as blobs, with the time that they start at if they are slices of event time."""
    if message.kind == WORDS:
        yield from ((_time_of(text), text.encode()) for text in message.table.column("json").to_pylist())
    elif sliced:
        yield from _slices(message.table)
    else:
        yield from ((NEVER, to_bytes(piece)) for piece in slice_by_bytes(message.table, BLOB_BYTES))


def _time_of(text: str) -> int:
    """When words are to be heard: what is promised holds after all that is older."""
    return min(json.loads(text).get("marks", {}).values(), default=NEVER)


def _slices(table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """A table as blobs of little event time each, with the time they start at."""
    in_time = table.take(pa.array(np.argsort(integers(table.column(TIME).combine_chunks()), kind="stable")))
    for at in range(0, table.num_rows, SLICE_ROWS):
        for piece in slice_by_bytes(in_time.slice(at, SLICE_ROWS), SLICE_BYTES):
            yield int(integers(piece.column(TIME).slice(0, 1).combine_chunks())[0]), to_bytes(piece)


@dataclass
class Packer:
    """mapInArrow: an alias' wire rows to messages for the stage where it enters. `sliced` cuts static input into slices of event time."""

    flow: Dataflow
    source: InputPlan
    sliced: bool
    late: bool = False
    """Whether somebody asks for dropped rows: wire rows bring their whole rows along."""

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen, held, size, any_rows = Seen(), list[pa.RecordBatch](), 0, False
        copies = Copies(self.source.lookups)
        for batch in batches:
            any_rows = any_rows or batch.num_rows > 0
            held.append(batch)
            size += batch.nbytes
            if size >= FLUSH_BYTES:
                yield from self._flush(held, copies, seen, last=False)
                held, size = [], 0
        if any_rows:
            yield from self._flush(held, copies, seen, last=True)
        held.clear()
        after_task()

    def _flush(self, held: list[pa.RecordBatch], copies: Copies, seen: Seen, last: bool) -> Iterator[pa.RecordBatch]:
        entry, messages = self.flow.entries[self.source.alias], iter(list[Message]())
        units, found = self.flow.stages[entry.stage].units, list[Message]()
        if held:
            table = copies.mark(enlarge(mark_utc(pa.Table.from_batches(held))))
            if self.late:
                found = list(deal_candidates(self.source, table, entry.stage, units))
                table = table.drop_columns([ROW])
            brought, messages = entry.read(table)
            messages = chain(messages, found)
            seen.include(brought)
        said = tell(units, {"seen": seen.highest, "aside": seen.aside, "broken": seen.broken}) if last else []
        yield from record_batches(chain(rows_of(messages, entry.stage, units, sliced=self.sliced), said), units)


def deal_candidates(source: InputPlan, table: pa.Table, stage: int, units: int) -> Iterator[Message]:
    """The rows of an alias that may be dropped, each to one unit of a stage, whichever: all units know the watermarks."""
    found = candidates(source, table.combine_chunks())
    share = -(-found.num_rows // units) or 1
    for n, begin in enumerate(range(0, found.num_rows, share)):
        yield Message(first_unit(stage) + n, CANDIDATES + source.stream, found.slice(begin, share))


def in_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists of bounded length.

    >>> [len(block) for block in in_blocks(["x" * 300_000] * 3)]
    [2, 1]
    """
    held, size = list[str](), 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= BLOB_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
