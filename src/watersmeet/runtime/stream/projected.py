"""Units that keep rows or groups of what only Spark can project: DISTINCT, and GROUP BY window(), on streams.

    joins --results, marks--> select --> mapInArrow(by hash) --> transformWithState(distinct or windowed)

Watermarks reach the units that keep on the rows of metrics that every unit of the last join adds to every batch. Such a row passes through the projection, which may not
evaluate anything over it: an expression that is harmless on all results may raise on NULLs.

Invariant: what leaves depends on the rows and the state alone; Spark may run any task twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.columns.arrow import enlarge
from watersmeet.columns.row_hash import by_hash, row_hash
from watersmeet.dataflow.contract import WORDS, Dataflow, Message, stage_of
from watersmeet.errors import UnsupportedError
from watersmeet.operators.assemble import make_last_stage
from watersmeet.operators.finish.aggregate import group_hash
from watersmeet.operators.finish.distinct import LEFT, first_of_each
from watersmeet.operators.finish.project import Fields, cast_column, final_fields, join_fields, plain_zeros, row_fields
from watersmeet.operators.finish.views import make_view
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.types import is_plain
from watersmeet.runtime.spark.workers import MARK, METRICS, after_task, as_task
from watersmeet.runtime.stream.messages import FLUSH_BYTES, MESSAGE, Row, in_blocks, record_batches, rows_of, tell
from watersmeet.runtime.stream.processor import run_stage
from watersmeet.storage.manifest import Identity


def keep_rows(plan: Plan, left: DataFrame, last: int) -> DataFrame:
    """What leaves units that keep what Spark has projected, after stage number `last` of the dataflow."""
    assert plan.finish is not None
    if plan.join.grouping is not None:
        _refuse_groups(plan)
    flow = Dataflow(plan.join.streams, (make_last_stage(plan, plan.finish),), {}, 1)
    packed = project(plan, left).mapInArrow(RowPacker(plan, last), MESSAGE)
    return run_stage(flow, 0, packed, Identity.of(plan), final_fields(plan))


def _refuse_groups(plan: Plan) -> None:
    """Units keep groups of plain types, and values that they can merge."""
    assert plan.finish is not None
    for output, kind in zip(plan.join.select, plan.finish.columns, strict=True):
        if not is_plain(kind):
            raise UnsupportedError(
                f"GROUP BY {plan.join.group_window} on streams: {output.expr} is {kind}, and units keep plain types only; take its fields, or cast it"
            )
    for value in plan.finish.values:
        if not value.type:
            raise UnsupportedError(
                f"GROUP BY {plan.join.group_window} on streams: {value.aggregate} casts its argument without being told; cast it"
            )


def project(plan: Plan, left: DataFrame) -> DataFrame:
    """Projected rows with metrics, under DISTINCT also with their buckets."""
    assert plan.finish is not None
    if plan.finish.inside:
        return left
    at = dict(zip(plan.output, as_typed(join_fields(plan)), strict=False))
    for expr in plan.after:
        left = left.where(f"CASE WHEN {METRICS} IS NULL THEN {expr.spark(lambda ref: at[ref])} ELSE true END")
    columns = []
    for output, (name, kind) in zip(plan.join.select, row_fields(plan), strict=True):
        text = output.expr.spark(lambda ref: at[ref])
        text = f"unix_micros({text})" if kind == "timestamp" else text
        columns.append(F.expr(f"CASE WHEN {METRICS} IS NULL THEN {text} END").alias(name))
    return left.select(*columns, *([TIME] if plan.join.distinct else []), METRICS)


@dataclass
class RowPacker:
    """mapInArrow: projected rows to messages for the units that keep them, by hash; the last join's rows of metrics become promises for all of them."""

    plan: Plan
    last: int
    """The number of the last stage before."""

    @as_task
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
        assert self.plan.finish is not None
        units = self.plan.finish.units
        table = enlarge(pa.Table.from_batches(held))
        texts = table.column(METRICS).drop_null().to_pylist()
        late, reports = partition_texts(texts)
        rows = table.filter(table.column(METRICS).is_null()).drop_columns([METRICS])
        out: list[Row] = []
        if rows.num_rows:
            parts = self._deal(rows, units)
            out += rows_of((Message(unit, LEFT, part) for unit, part in parts), 0, units, sliced=False)
        for marks in {json.dumps(r["watermarks"], sort_keys=True) for r in reports if stage_of(r["unit"]) == self.last}:
            out += tell(units, {"marks": json.loads(marks)})
        out += [Row(0, WORDS, json.dumps({"late": some}).encode()) for some in in_blocks(late)]
        yield from record_batches(out, units)

    def _deal(self, rows: pa.Table, units: int) -> Iterator[tuple[int, pa.Table]]:
        """Rows, each once, or their view, by unit."""
        rows = plain_zeros(rows).combine_chunks()
        if self.plan.join.distinct:
            rows = first_of_each(rows)
            return by_hash(rows, row_hash(rows.drop_columns([TIME])), units)
        assert self.plan.finish is not None
        columns = zip(rows.column_names, rows.columns, self.plan.finish.columns, strict=True)
        view = make_view(self.plan, pa.table({name: cast_column(column, kind) for name, column, kind in columns}))
        return by_hash(view, group_hash(self.plan, view), units)


def partition_texts(texts: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """What stands in the column of metrics: dropped rows as they are, and reports."""
    return [t for t in texts if t.startswith(MARK)], [json.loads(t) for t in texts if not t.startswith(MARK)]


def as_typed(fields: Fields) -> list[str]:
    """Columns that have left Python, in the types that they had."""
    return [f"timestamp_micros({name})" if kind == "timestamp" else name for name, kind in fields]
