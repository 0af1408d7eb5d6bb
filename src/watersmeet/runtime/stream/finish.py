"""What Spark does after the last stage: conditions that are its own, the SELECT, groups, and DISTINCT where only Spark can project.

    GROUP BY            joins --local views--> groupBy().agg() --> select              sink in update mode
    DISTINCT, outside   joins --results, marks--> select --> mapInArrow(by hash) --> transformWithState(distinct) --> select

Spark merges views as it aggregates rows: by the functions of `plan.finish`, cast to the types that its own aggregates have. On static data Spark drops
duplicates of (row, bucket) itself.

Where Spark projects, watermarks reach the units that keep rows on the rows of metrics that every unit adds to every batch. Such a row passes through the
projection, which may not evaluate anything over it: an expression that is harmless on all results may raise on NULLs.

Invariant: what leaves depends on the rows and the state alone; Spark may run any task twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.columns.arrow import enlarge
from watersmeet.columns.row_hash import by_hash, row_hash
from watersmeet.dataflow.contract import Dataflow, Message, Stage
from watersmeet.operators.distinct import LEFT, Distinct, first_of_each
from watersmeet.operators.project import Fields, final_fields, join_fields, plain_zeros, result_fields, row_fields
from watersmeet.plan.finish import FinishPlan, Value
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.select import Grouping
from watersmeet.runtime.spark_versions import arrow_schema
from watersmeet.runtime.stream.messages import (
    FLUSH_BYTES,
    MESSAGE,
    METRICS,
    Row,
    record_batches,
    rows_of,
    tell,
    with_metrics,
)
from watersmeet.runtime.stream.processor import StageProcessor
from watersmeet.runtime.workers import after_task, errors_first
from watersmeet.storage.unit import Identity


def keeps_inside(plan: Plan, *, streaming: bool) -> bool:
    """Whether units keep rows themselves, as the last stage."""
    return streaming and plan.finish is not None and plan.join.distinct and plan.finish.inside


def last_fields(plan: Plan, *, keeps: bool) -> Fields:
    """The columns of what leaves the last stage."""
    return final_fields(plan) if keeps else join_fields(plan)


def finish_rows(plan: Plan, left: DataFrame, *, keeps: bool) -> DataFrame:
    """The query's rows, from what has left the last stage, metrics included."""
    if plan.finish is None or keeps:
        return final(plan, left.where(f"{METRICS} IS NULL"))
    if plan.join.distinct:
        return _distinct(plan, left)
    assert plan.join.grouping is not None
    rows = left.where(f"{METRICS} IS NULL")
    if plan.finish.inside:
        return _merge_views(plan, plan.finish, rows)
    return aggregate_rows(plan.join.grouping, select_rows(plan, rows))


# ---------------------------------------------------------------- GROUP BY


def _merge_views(plan: Plan, finish: FinishPlan, views: DataFrame) -> DataFrame:
    """Local views, merged by Spark."""
    assert plan.join.grouping is not None
    fields = join_fields(plan)
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
    rows = _project(plan, left)
    if not left.isStreaming:
        return final(plan, rows.where(f"{METRICS} IS NULL").drop(METRICS).dropDuplicates())
    flow = Dataflow(plan.join.streams, (Stage(Distinct(plan), plan.finish.units),), {}, 1)
    schema = StructType.fromDDL(with_metrics(row_fields(plan)))
    fresh = (
        rows.mapInArrow(RowPacker(plan.finish.units), MESSAGE)
        .groupBy("unit")
        .transformWithStateInPandas(
            StageProcessor(flow, 0, Identity.of(plan), arrow_schema(schema)),
            outputStructType=schema,
            outputMode="append",
            timeMode="none",
        )
    )
    return final(plan, fresh.where(f"{METRICS} IS NULL"))


def _project(plan: Plan, left: DataFrame) -> DataFrame:
    """Projected rows with their buckets, and metrics."""
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
    return left.select(*columns, TIME, METRICS)


@dataclass
class RowPacker:
    """mapInArrow: projected rows to messages for the units that keep them, by hash; rows of metrics become promises for all of them."""

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
        out: list[Row] = []
        if rows.num_rows:
            rows = first_of_each(plain_zeros(rows).combine_chunks())
            parts = by_hash(rows, row_hash(rows.drop_columns([TIME])), self.units)
            out += rows_of((Message(unit, LEFT, part) for unit, part in parts), 0, self.units, sliced=False)
        for marks in {json.dumps(json.loads(text)["watermarks"], sort_keys=True) for text in reports}:
            out += tell(self.units, {"marks": json.loads(marks)})
        yield from record_batches(out, self.units)


def select_rows(plan: Plan, rows: DataFrame) -> DataFrame:
    """Results as rows of the join's SELECT: conditions that are Spark's, and the projection."""
    select = list(plan.join.select)
    if not plan.after and all(o.expr.spark_template == "{0}" for o in select):
        typed = dict(zip(plan.output, as_typed(result_fields(plan)), strict=False))
        return rows.select(*(F.expr(typed[o.expr.columns[0]]).alias(o.name) for o in select))
    named, at = _rename(plan, rows)
    for expr in plan.after:
        named = named.where(expr.spark(lambda ref: at[ref]))
    return named.select(*(F.expr(o.expr.spark(lambda ref: at[ref])).alias(o.name) for o in select))


def final(plan: Plan, rows: DataFrame) -> DataFrame:
    """What leaves the last units as the query's rows: results, distinct rows or groups."""
    if plan.finish is None:
        return select_rows(plan, rows)
    fields = final_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    if plan.join.grouping is not None:
        return of_groups(plan.join.grouping, rows.select(*typed))
    return rows.select(*(c.alias(o.name) for c, o in zip(typed, plan.join.select, strict=True)))


def aggregate_rows(grouping: Grouping, rows: DataFrame) -> DataFrame:
    """Rows of a grouped join's SELECT, aggregated by Spark alone."""
    names = rows.columns
    aggregates = [
        F.expr(f"{a.function}({'*' if a.argument is None else names[a.argument]})").alias(f"a{n}")
        for n, a in enumerate(grouping.aggregates)
    ]
    return of_groups(grouping, rows.groupBy(*names[: grouping.keys]).agg(*aggregates))


def of_groups(grouping: Grouping, groups: DataFrame) -> DataFrame:
    """The SELECT of a grouping over its groups: g0, ..., a0, ..."""
    return groups.select(*(F.expr(o.expr.spark(lambda ref: ref.column)).alias(o.name) for o in grouping.select))


def as_typed(fields: Fields) -> list[str]:
    """Columns that have left Python, in the types that they had."""
    return [f"timestamp_micros({name})" if kind == "timestamp" else name for name, kind in fields]


def _rename(plan: Plan, rows: DataFrame) -> tuple[DataFrame, dict[ColumnRef, str]]:
    fields = result_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    return rows.select(*typed), {ref: f"`o{n}`" for n, ref in enumerate(plan.output)}
