"""Rows that a query loses: late, too far ahead, without a time, or breaking an expression; to be had as rows of one schema, whatever their streams.

    wire rows, each with the whole row of its source  --candidates-->  rows that are a loss if they are dropped  --sift-->  dropped rows

Only where somebody asks for dropped rows do wire rows bring the whole row along, as a struct, which leaves them before they go to any unit of a join.
Who knows the watermarks before the batch sifts the candidates: the runtime in process, source tasks under `start()`, units under `dataframe()`. The text of
a row is made of what was dropped only.

Invariant: a row is a candidate once for its stream, under the alias that would count it; it is dropped here if and only if the clock
lets the operators drop it. So there are as many dropped rows as are counted (by `Turn.drop_late`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import Clock, find_counted
from watersmeet.dataflow.contract import Aside
from watersmeet.expressions.broken import ERROR
from watersmeet.expressions.json_text import json_objects
from watersmeet.kernels.instants import LAST
from watersmeet.operators.enter import AHEAD, BROKEN, find_broken_rows, find_wanted
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.query.expr import ColumnRef

ROW = "_row"
"""The wire column of the whole row of the source."""
REASON = "_reason"
"""Of candidates: why they are dropped, where that is known without a watermark."""
LATE, TOO_FAR, NO_TIME = "late", "ahead", "no time"
"""Why rows are dropped."""
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("lag_us", pa.int64()),
        ("batch", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.large_string()),
    ]
)
"""Of dropped rows: `lag_us` is how far the stream's watermark before the batch was past the row; `row` is the row as JSON."""


def find_lost(clock: Clock, source: InputPlan, wire: pa.Table, batch: int) -> pa.Table:
    """The dropped rows of an alias that count for their stream, where the clock is known."""
    found, wanted = _describe(source, wire)
    return sift(clock, source.stream, found, batch, wanted)


def candidates(source: InputPlan, wire: pa.Table) -> pa.Table:
    """The rows of an alias that count for their stream if they are dropped: event time, reason if it is known, whole row."""
    found, wanted = _describe(source, wire)
    return found if wanted.all() else found.filter(pa.array(wanted))


def _describe(source: InputPlan, wire: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The same of all rows, and which of them count; nothing is copied."""
    time, reasons = wire.column(TIME).combine_chunks(), pa.nulls(wire.num_rows, pa.string())
    if AHEAD in wire.column_names:
        reasons = pc.if_else(wire.column(AHEAD).combine_chunks(), TOO_FAR, reasons)
    if time.null_count:
        reasons = pc.if_else(pc.is_null(time), NO_TIME, reasons)
    wanted = find_wanted(source, wire)
    if BROKEN in wire.column_names:
        wanted = wanted | find_broken_rows(wire)
        reasons = pc.coalesce(wire.column(BROKEN).combine_chunks().cast(pa.string()), reasons)
    found = pa.table({TIME: time.cast(pa.int64()), REASON: reasons, ROW: wire.column(ROW)})
    return found, np.asarray(wanted & ~find_counted(wire))


def with_reason(found: pa.Table) -> pa.Table:
    """The candidates that are dropped whatever the watermarks: all there are, where nothing can be late."""
    return found.filter(pc.is_valid(found.column(REASON)))


def sift(
    clock: Clock, stream: str, found: pa.Table, batch: int | None, wanted: np.ndarray | np.bool_ = np.True_
) -> pa.Table:
    """The dropped rows among a stream's candidates, of those that count."""
    times = integers(found.column(TIME).fill_null(LAST).combine_chunks())
    dropped = np.asarray(pc.is_valid(found.column(REASON)).to_numpy(), bool)
    late = clock.late(stream, times)
    if late is not None:
        dropped = dropped | late
    lost = found.filter(pa.array(dropped & wanted))
    lags = [None if ts is None else clock.lag(stream, ts) for ts in lost.column(TIME).to_pylist()]
    columns: Sequence[Any] = (
        pa.array([stream] * lost.num_rows, pa.string()),
        lost.column(TIME).cast(pa.timestamp("us", "UTC")),
        pa.array(lags, pa.int64()),
        pa.array([batch] * lost.num_rows, pa.int64()),
        lost.column(REASON).fill_null(LATE),
        _texts(lost.column(ROW).combine_chunks()),
    )
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def set_combinations_aside(plan: Plan, columns: Mapping[ColumnRef, pa.Array], expr: str) -> Aside:
    """Combinations that break an expression, by columns of their members: a row of several streams, which has no time of its own."""
    aliases = {ref.alias for ref in columns}
    members = [i for i in plan.inputs if i.alias in aliases]
    streams = [i.stream for i in members]
    rows = len(next(iter(columns.values())))
    refs = [ref for i in members for ref in sorted(columns) if ref.alias == i.alias]
    texts = json_objects(pa.table({str(ref): columns[ref] for ref in refs}))
    told = {"stream": ", ".join(streams), "reason": ERROR + expr}
    made = {
        name: pa.array([told.get(name)] * rows, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
    }
    return Aside(pa.table({**made, "row": texts}, schema=SCHEMA))


def write_rows(lost: pa.Table) -> pa.Array:
    """Dropped rows as JSON objects, with their times as whole microseconds; the row inside is a text."""
    at = lost.schema.get_field_index("ts")
    return json_objects(lost.set_column(at, "ts", lost.column("ts").cast(pa.int64())))


def _texts(rows: pa.StructArray) -> pa.Array:
    """Whole rows as JSON."""
    return json_objects(pa.Table.from_arrays(rows.flatten(), names=[f.name for f in rows.type]))
