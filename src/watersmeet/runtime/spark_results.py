"""Results on their way out of a unit: typed columns for Spark, and one row of metrics per unit and batch.

Timestamps leave as whole microseconds and become timestamps again in Spark: its pandas bridge would convert them one
by one otherwise.

Invariant: rows with `_metrics` are not results; `projected` observes and drops them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.units.blocks import shrink, slice_by_bytes
from watersmeet.units.leave import Fields, leaving_fields

METRICS = "_metrics"


def crossing(fields: Fields) -> Fields:
    """Columns in the types in which they leave Python."""
    return [(name, "bigint" if kind == "timestamp" else kind) for name, kind in fields]


def schema_of(fields: Fields) -> str:
    """The DDL of columns that leave Python."""
    return ", ".join(f"`{name}` {kind}" for name, kind in crossing(fields))


def output_schema(plan: Plan) -> str:
    """The DDL of the columns that leave a unit that joins: what `units.leave` says, and metrics."""
    return f"{schema_of(leaving_fields(plan))}, `{METRICS}` string"


def columns_of(fields: Fields, table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """A table's columns in the types in which they leave Python, by position."""
    columns: dict[str, pa.ChunkedArray] = {}
    for (name, kind), column in zip(crossing(fields), table.columns, strict=True):
        if kind == "bigint" and pa.types.is_timestamp(column.type):
            column = pa.chunked_array([c.view(pa.int64()) for c in column.chunks], pa.int64())
        columns[name] = column
    return columns


def arrow_columns(plan: Plan, table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """What leaves a unit that joins, with an empty column of metrics."""
    return {
        **columns_of(leaving_fields(plan), table),
        METRICS: pa.chunked_array([pa.nulls(table.num_rows, pa.string())]),
    }


def metrics_columns(schema: pa.Schema, reports: Sequence[Mapping[str, Any]]) -> dict[str, pa.ChunkedArray]:
    """A row of metrics for every unit's report; `schema` is that of the columns that leave a unit."""
    columns = {f.name: pa.chunked_array([pa.nulls(len(reports), f.type)]) for f in schema}
    columns[METRICS] = pa.chunked_array([pa.array([json.dumps(r) for r in reports], pa.string())])
    return columns


def pandas_frame(tables: Sequence[pa.Table]) -> pd.DataFrame:
    """Arrow-backed, so that nothing is boxed on the way out; nested values are objects, as the bridge wants."""
    table = pa.concat_tables([shrink(t) for t in tables], promote_options="permissive").combine_chunks()
    return pd.DataFrame({name: _series(table.column(name)) for name in table.column_names}, copy=False)


def _series(column: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(maps_as_pydicts="strict"), dtype=object)
    return pd.Series(pd.arrays.ArrowExtensionArray(column), copy=False)


def record_batches(columns: dict[str, pa.ChunkedArray], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same for mapInArrow, in Spark's types and in batches of bounded bytes."""
    for block in slice_by_bytes(pa.table(columns)):
        yield from shrink(block).combine_chunks().cast(schema).to_batches()
