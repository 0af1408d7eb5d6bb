"""Results of the join to the rows that DISTINCT and GROUP BY see: p0, p1, ... in the order of SELECT.

Invariant: equal rows are made of equal values: 0.0 stands for -0.0, as Spark's own grouping has it.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels.instants import shift
from watersmeet.plan.finish import bucket_us
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.window import UNBOUNDED
from watersmeet.units.codes import integers
from watersmeet.units.evaluator import evaluate
from watersmeet.units.join_unit import ROWS_ONLY
from watersmeet.units.watermark import TIMELESS

_ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.large_string(), "binary": pa.large_binary(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def projected(plan: Plan, results: pa.Table) -> pa.Table:
    """The projected rows of a table of results; the number of rows survives without a column."""
    assert plan.finish is not None
    select = plan.join.select
    table = results.rename_columns([f"o{n}" for n in range(results.num_columns)])
    at = {ref: f"o{n}" for n, ref in enumerate(plan.output)}
    computed = [n for n, o in enumerate(select) if o.expr.duckdb_template != "{0}"]
    values: dict[int, pa.ChunkedArray] = {}
    if computed:
        made = evaluate(
            table, [select[n].expr.duckdb(lambda r: f'"{at[r]}"') for n in computed], "SELECT", plan.timezone
        )
        values = {n: made.column(i) for i, n in enumerate(computed)}
    columns = {}
    for n, (output, kind) in enumerate(zip(select, plan.finish.columns, strict=True)):
        column = values[n] if n in values else table.column(at[output.expr.columns[0]])
        columns[f"p{n}"] = typed(column, kind)
    return plain_zeros(pa.table(columns or {ROWS_ONLY: pa.nulls(results.num_rows, pa.bool_())}))


def bucket(plan: Plan, results: pa.Table) -> pa.Array:
    """For every result the last instant of its bucket."""
    times = [plan.output.index(ColumnRef(i.alias, plan.join.spec(i.alias).time)) for i in plan.inputs]
    youngest = np.maximum.reduce([integers(results.column(n).combine_chunks()) for n in times])
    width = bucket_us(plan.join)
    return pa.array(last_instant(youngest, np.int64(UNBOUNDED if width is None else width)))


def last_instant(youngest: np.ndarray, width_us: np.ndarray | np.int64) -> np.ndarray:
    """The last instant of the buckets of some times: what DISTINCT tells equal rows apart by, and what they expire by.

    With buckets of width h a time t lies in [b h, (b + 1) h) for b = floor(t / h). Zero: every instant is a bucket;
    UNBOUNDED: all time is one, whose end is put before all time, since it never comes.

    >>> last_instant(np.array([12, 12, 12]), np.array([10, 0, UNBOUNDED])).tolist() == [19, 12, TIMELESS]
    True
    """
    width = np.broadcast_to(width_us, youngest.shape)
    left = np.maximum(width, 1) - 1 - youngest % np.maximum(width, 1)
    return np.where(width >= UNBOUNDED, TIMELESS, np.where(width == 0, youngest, shift(youngest, left)))


def bucketed(plan: Plan, rows: pa.Table, results: pa.Table) -> pa.Table:
    """Rows made of results, with their buckets."""
    return rows.append_column(TIME, bucket(plan, results))


def typed(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """A column in the Arrow type of a Spark type; as it is if that is none of the plain ones."""
    wanted = arrow_type(kind)
    return column if wanted is None or column.type == wanted else column.cast(wanted)


def arrow_type(kind: str) -> pa.DataType | None:
    """The Arrow type of a plain Spark type.

    >>> arrow_type("decimal(10,2)"), arrow_type("map<int,int>")
    (Decimal128Type(decimal128(10, 2)), None)
    """
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW.get(kind)


def plain_zeros(rows: pa.Table) -> pa.Table:
    """The rows with 0.0 in place of -0.0."""
    columns = [pc.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c for c in rows.columns]
    return pa.table(columns, names=rows.column_names)
