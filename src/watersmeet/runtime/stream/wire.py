"""Rows of a DataFrame as wire rows, by Spark.

Invariant: an expression of an alias is computed only over rows that pass its filters. Rows bring their whole row along only if somebody asks for
dropped rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.dataflow.contract import Intake
from watersmeet.operators.enter import AHEAD, CONTENT
from watersmeet.operators.late import ROW
from watersmeet.plan.model import TIME, InputPlan
from watersmeet.plan.source_sql import asked_tables, items
from watersmeet.runtime.spark.tables import look_up
from watersmeet.runtime.spark.taken import mark_taken
from watersmeet.runtime.spark.types import SPARK, travels
from watersmeet.runtime.stream.guarded import mark_rows, select_guarded


def wire(source: InputPlan, plan: Intake, frames: Mapping[str, DataFrame], *, late: bool = False) -> DataFrame:
    """A source's rows as wire rows: Spark joins them with tables, and computes filters, keys and operands; with `late` each brings the whole row along."""
    whole = frames[source.stream]
    asked, usable = whole, _is_usable(source)
    for other in asked_tables(source, plan.inputs):
        asked = mark_taken(asked, other, frames, usable)
    frame = look_up(asked, source.lookups, frames, usable)
    if plan.sets_aside:
        frame, columns = mark_rows(frame, source, plan.inputs), select_guarded(source, plan.inputs)
    else:
        columns = [F.expr(text).alias(name) for name, text in items(source, plan.inputs, SPARK, wrap_plain=True)]
    if source.rows is not None:
        columns += [column.alias(CONTENT + name) for column, name in zip(_whole_row(whole), whole.columns, strict=True)]
    if source.max_ahead_us is not None:
        columns.append(F.expr(_is_ahead(source, source.max_ahead_us)).alias(AHEAD))
    if late:
        columns.append(F.struct(*_whole_row(whole)).alias(ROW))
    return frame.select(*columns)


def _is_usable(source: InputPlan) -> str:
    """Whether a row has an event time that is not too far ahead: others are looked up nowhere."""
    time = next(c for c in source.columns if c.name == TIME)
    known = f"{time.expr.spark(lambda ref: SPARK.quote(ref.column))} IS NOT NULL"
    return known if source.max_ahead_us is None else f"{known} AND NOT {_is_ahead(source, source.max_ahead_us)}"


def _is_ahead(source: InputPlan, max_ahead_us: int) -> str:
    """Whether a row is too far ahead of the micro-batch's own time, which Spark keeps in the offset log: the same when the batch is repeated."""
    time = next(c for c in source.columns if c.name == TIME)
    now = "current_timestamp()" if time.type == "timestamp" else "localtimestamp()"
    seconds, micros = divmod(max_ahead_us, 1_000_000)
    text = time.expr.spark(lambda ref: SPARK.quote(ref.column))
    return f"coalesce({text} > {now} + INTERVAL '{seconds}.{micros:06}' SECOND, false)"


def _whole_row(frame: DataFrame) -> list[Column]:
    """All columns; what units cannot hold, such as intervals of months, travels as text."""
    columns = [(F.col(SPARK.quote(f.name)), f) for f in frame.schema.fields]
    return [(c if travels(f.dataType) else c.cast("string")).alias(f.name) for c, f in columns]
