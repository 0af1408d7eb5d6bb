"""The second stage on Spark: DISTINCT and GROUP BY after the units that join.

    GROUP BY   units --local views--> groupBy().agg() --> select              sink in update mode
    DISTINCT   units --rows, marks--> select --> mapInArrow(by hash) --> transformWithState(deduplicators) --> select

Spark merges views as it aggregates rows: by the functions of `plan.finish`, cast to the types that its own aggregates
have. On static data Spark drops duplicates of (row, bucket) itself.

Watermarks reach the deduplicators on the rows of metrics that every unit adds to every batch. Such a row passes through
the projection, which may not evaluate anything over it: an expression that is harmless on all results may raise on NULLs.

Invariant: what leaves depends on the rows and the state alone; Spark may run any task twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.plan.finish import FinishPlan, Value
from watersmeet.plan.model import TIME, Plan
from watersmeet.runtime.spark_messages import CONTROL, FLUSH_BYTES, MESSAGE, Message, message_batches, part_messages
from watersmeet.runtime.spark_results import METRICS, columns_of, pandas_frame, schema_of
from watersmeet.runtime.spark_select import aggregated, as_typed, final, of_groups, selected
from watersmeet.runtime.spark_state import UnitProcessor
from watersmeet.runtime.worker_heap import after_task
from watersmeet.runtime.worker_words import errors_first
from watersmeet.units.blocks import enlarge
from watersmeet.units.deduplicator import Deduplicator, first_of_each
from watersmeet.units.leave import leaving_fields, projected_fields
from watersmeet.units.pack import Part
from watersmeet.units.project import plain_zeros
from watersmeet.units.row_hash import by_hash, row_hash
from watersmeet.units.segment import from_bytes

FRAME_ROWS = 65_536
"""Rows leave a deduplicator in frames of at most so many."""
ROWS = 0
"""What stands for the alias in messages of projected rows."""


def finished(plan: Plan, left: DataFrame) -> DataFrame:
    """The query's rows, from what has left the units that join, metrics included."""
    assert plan.finish is not None
    if plan.join.distinct:
        return _distinct(plan, left)
    assert plan.join.grouping is not None
    rows = left.where(f"{METRICS} IS NULL")
    return (
        _merged(plan, plan.finish, rows) if plan.finish.inside else aggregated(plan.join.grouping, selected(plan, rows))
    )


# ---------------------------------------------------------------- GROUP BY


def _merged(plan: Plan, finish: FinishPlan, views: DataFrame) -> DataFrame:
    """Local views, merged by Spark."""
    assert plan.join.grouping is not None
    fields = leaving_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    keys = [f"g{n}" for n in range(plan.join.grouping.keys)]
    merges = {f"v{n}": p.merge for n, p in enumerate(finish.partials)}
    aggregates = [F.expr(_value(value, merges)).alias(f"a{n}") for n, value in enumerate(finish.values)]
    return of_groups(plan.join.grouping, views.select(*typed).groupBy(*keys).agg(*aggregates))


def _value(value: Value, merges: Mapping[str, str]) -> str:
    """An aggregate as a function of partials."""
    parts = [f"{merges[name]}({name})" for name in value.of]
    if value.aggregate.function == "count":
        return f"coalesce({parts[0]}, 0L)"
    if value.aggregate.function == "avg":
        return f"{parts[0]} / nullif({parts[1]}, 0L)"
    return f"CAST({parts[0]} AS {value.type})" if value.aggregate.function == "sum" else parts[0]


# ---------------------------------------------------------------- DISTINCT


def _distinct(plan: Plan, left: DataFrame) -> DataFrame:
    assert plan.finish is not None
    rows = _projected(plan, left)
    if not left.isStreaming:
        return final(plan, rows.where(f"{METRICS} IS NULL").drop(METRICS).dropDuplicates())
    messages = rows.mapInArrow(RowPacker(plan.finish.units), MESSAGE)
    fresh = messages.groupBy("unit").transformWithStateInPandas(
        DistinctProcessor(plan),
        outputStructType=StructType.fromDDL(schema_of(projected_fields(plan))),
        outputMode="append",
        timeMode="none",
    )
    return final(plan, fresh)


def _projected(plan: Plan, left: DataFrame) -> DataFrame:
    """Projected rows with their buckets, and metrics."""
    assert plan.finish is not None
    if plan.finish.inside:
        return left
    at = dict(zip(plan.output, as_typed(leaving_fields(plan)), strict=False))
    for expr in plan.after:
        left = left.where(f"CASE WHEN {METRICS} IS NULL THEN {expr.spark(lambda ref: at[ref])} ELSE true END")
    columns = []
    for output, (name, kind) in zip(plan.join.select, projected_fields(plan), strict=True):
        text = output.expr.spark(lambda ref: at[ref])
        text = f"unix_micros({text})" if kind == "timestamp" else text
        columns.append(F.expr(f"CASE WHEN {METRICS} IS NULL THEN {text} END").alias(name))
    return left.select(*columns, TIME, METRICS)


@dataclass
class RowPacker:
    """mapInArrow: projected rows to messages for deduplicators, by hash; rows of metrics become marks for all of them."""

    units: int

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held, size = list[pa.RecordBatch](), 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= FLUSH_BYTES:
                yield from self._flush(held)
                held, size = [], 0
        yield from self._flush(held)
        held.clear()
        after_task()

    def _flush(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not held:
            return
        table = enlarge(pa.Table.from_batches(held))
        reports = table.column(METRICS).drop_null().to_pylist()
        rows = table.filter(table.column(METRICS).is_null()).drop_columns([METRICS])
        messages: list[Message] = []
        if rows.num_rows:
            rows = first_of_each(plain_zeros(rows).combine_chunks())
            parts = by_hash(rows, row_hash(rows.drop_columns([TIME])), self.units)
            messages += part_messages((Part((unit,), "store", part) for unit, part in parts), 0, ROWS, sliced=False)
        for marks in {json.dumps(json.loads(text)["watermarks"], sort_keys=True) for text in reports}:
            messages += [Message(unit, CONTROL, marks.encode()) for unit in range(self.units)]
        yield from message_batches(messages, self.units)


class DistinctProcessor(UnitProcessor):
    """transformWithState: one group is one deduplicator."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def step(self, label: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        tables: list[pa.Table] = []
        marks: dict[str, int] = {}
        for frame in rows:
            for alias, blob in zip(frame["alias"], frame["blob"], strict=True):
                if alias == CONTROL:
                    said = json.loads(blob)
                    marks = {stream: min(mark, marks.get(stream, mark)) for stream, mark in said.items()}
                else:
                    tables.append(from_bytes(blob))
        manifest = self._state.read_manifest(self.plan)
        for fresh in Deduplicator(self.plan).step(tables, manifest, self._state.store, marks):
            out = pa.table(columns_of(projected_fields(self.plan), fresh))
            yield from (pandas_frame([out.slice(at, FRAME_ROWS)]) for at in range(0, out.num_rows, FRAME_ROWS))
        self._state.write_manifest(manifest)
        after_task()
