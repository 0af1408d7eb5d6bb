"""Dropped rows among the rows of a DataFrame.

    streams   units find them, and let them leave in the column of metrics, behind a mark; Spark makes a struct of them
    static    nothing is late, and Spark finds by itself what has no time or is too far ahead

Invariant: a dropped row passes through what Spark does with results, and no expression of the query is evaluated over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.columns.arrow import enlarge, mark_utc
from watersmeet.dataflow.clock import Clock, Promise
from watersmeet.operators.enter import AHEAD
from watersmeet.operators.late import SCHEMA, candidates, sift, with_reason
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.runtime.late import LATE_COLUMN
from watersmeet.runtime.spark.workers import MARK, METRICS, after_task, as_task, columns_of, result_batches
from watersmeet.runtime.stream.wire import wire

FIELDS = "stream string, ts bigint, lag_us bigint, batch bigint, reason string, row string"
"""Of dropped rows as they leave Python."""
ARROW = pa.schema([(name, pa.int64() if name in ("ts", "lag_us", "batch") else pa.string()) for name in SCHEMA.names])
"""The same, as Arrow has them."""
IS_LATE = f"startswith({METRICS}, '{MARK}')"
REPORTS = f"CASE WHEN NOT {IS_LATE} THEN {METRICS} END"
"""The metrics that are units' reports."""


def unless_late(text: str, late: bool, otherwise: str = "NULL") -> str:
    """An expression of the query, which is not evaluated over dropped rows if there may be any."""
    return f"CASE WHEN {METRICS} IS NULL THEN {text} ELSE {otherwise} END" if late else text


def mark(late: bool) -> list[Column]:
    """The column that tells dropped rows from results, if it is wanted."""
    if not late:
        return []
    text = F.expr(f"from_json(substring({METRICS}, {len(MARK) + 1}), '{FIELDS}')")
    return [F.when(F.col(METRICS).isNotNull(), F.struct(*select_fields(text))).alias(LATE_COLUMN)]


def select_fields(lost: Column | None = None) -> list[Column]:
    """The fields of dropped rows, of a struct or of columns, in the types that users get."""
    found = [(F.col(name) if lost is None else lost.getField(name), name) for name in SCHEMA.names]
    return [(F.timestamp_micros(c) if name == "ts" else c).alias(name) for c, name in found]


def add_late(results: DataFrame, lost: DataFrame) -> DataFrame:
    """Results and dropped rows in one frame."""
    empty = [F.lit(None).cast(f.dataType).alias(f.name) for f in results.schema.fields]
    marked = lost.select(*empty, F.struct("*").alias(LATE_COLUMN))
    nothing = F.lit(None).cast(marked.schema[LATE_COLUMN].dataType).alias(LATE_COLUMN)
    return results.select("*", nothing).union(marked)


def static_late(plan: Plan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """What a query drops of static DataFrames: rows without a time, or too far ahead."""
    found = []
    for source in plan.inputs:
        rows = wire(source, plan, frames, late=True)
        ahead = f" OR {AHEAD}" if source.max_ahead_us is not None else ""
        found.append(rows.where(f"{TIME} IS NULL{ahead}").mapInArrow(StaticLate(plan, source), FIELDS))
    return reduce(DataFrame.union, found).select(*select_fields())


@dataclass
class StaticLate:
    """mapInArrow: wire rows that are dropped whatever the watermarks."""

    plan: Plan
    source: InputPlan

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock = Clock(self.plan.streams, promise=Promise({}))
        for batch in batches:
            found = with_reason(candidates(self.source, enlarge(mark_utc(pa.Table.from_batches([batch])))))
            lost = sift(clock, self.source.stream, found, None)
            yield from result_batches(columns_of(ARROW, lost), ARROW)
        after_task()
