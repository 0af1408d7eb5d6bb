"""The rows that carry messages between Spark stages: one Arrow blob per (unit, alias), with the punctuation beside it.

    unit   label of the unit, see routing.labels     alias   position in FROM
    max_ts, null_times   the punctuation of the task  from_ts  lowest event time in the blob
    blob   Arrow IPC stream of wire rows, or NULL

Invariant: every source task that saw rows sends every unit one row at least, so every unit wakes and every watermark
advances; blobs are at most about 32 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.routing.labels import labels
from watersmeet.units.codes import integers
from watersmeet.units.pack import Punctuation, split
from watersmeet.units.segment import to_bytes
from watersmeet.units.watermark import NEVER

MESSAGE = "unit bigint, alias int, max_ts bigint, null_times bigint, from_ts bigint, blob binary"
SCHEMA = pa.schema(
    [("unit", pa.int64()), ("alias", pa.int32()), ("max_ts", pa.int64()), ("null_times", pa.int64()), ("from_ts", pa.int64()), ("blob", pa.binary())]
)
FLUSH_BYTES = 32 * 2**20
SLICE_ROWS = 65_536
"""The rows of a slice of static input: small, so that a slice covers little event time."""


@dataclass
class Packer:
    """mapInArrow: a source's wire rows to messages. `sliced` cuts static input into slices of event time."""

    plan: Plan
    position: int
    sliced: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = self.plan.inputs[self.position]
        total, held, size, seen = Punctuation(), [], 0, False
        for batch in batches:
            seen = seen or batch.num_rows > 0
            held.append(batch)
            size += batch.nbytes
            if size >= FLUSH_BYTES:
                yield from self._flush(source, held, total, last=False)
                held, size = [], 0
        if seen:
            yield from self._flush(source, held, total, last=True)

    def _flush(self, source: InputPlan, held: list[pa.RecordBatch], total: Punctuation, last: bool) -> Iterator[pa.RecordBatch]:
        parts: list[tuple[int, pa.Table]] = []
        if held:
            punctuation, parts = split(self.plan, source, pa.Table.from_batches(held))
            total.include(punctuation)
        said = total if last else Punctuation()
        rows = [(unit, *piece) for unit, table in parts for piece in self._blobs(table)]
        if last:
            served = {unit for unit, _, _ in rows}
            rows += [(unit, NEVER, None) for unit in range(self.plan.grid.units) if unit not in served]
        if rows:
            yield self._message(source, rows, said)

    def _blobs(self, table: pa.Table) -> Iterator[tuple[int, bytes]]:
        if not self.sliced:
            yield NEVER, to_bytes(table)
            return
        order = np.argsort(integers(table.column(TIME).combine_chunks()), kind="stable")
        in_time = table.take(pa.array(order))
        for at in range(0, table.num_rows, SLICE_ROWS):
            piece = in_time.slice(at, SLICE_ROWS)
            yield int(integers(piece.column(TIME).slice(0, 1).combine_chunks())[0]), to_bytes(piece)

    def _message(self, source: InputPlan, rows: list[tuple[int, int, bytes | None]], said: Punctuation) -> pa.RecordBatch:
        ids, n = labels(self.plan.grid.units), len(rows)
        first: set[int] = set()
        null_times = []
        for unit, _, _ in rows:
            null_times.append(0 if unit in first else said.null_times)
            first.add(unit)
        columns = [
            pa.array([ids[unit] for unit, _, _ in rows], pa.int64()),
            pa.array(np.full(n, source.position, np.int32)),
            pa.array(np.full(n, said.max_ts, np.int64)),
            pa.array(null_times, pa.int64()),
            pa.array([from_ts for _, from_ts, _ in rows], pa.int64()),
            pa.array([blob for _, _, blob in rows], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
