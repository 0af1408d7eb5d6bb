"""Results of the join to the rows that DISTINCT and GROUP BY see, and the columns of all that leaves units, by name and Spark type.

    o0 ...          results of the joins                    p0 ...          projected rows, in the order of SELECT
                                                            r0 ...          the query's rows, where units select
    g0 ... v0 ...   local views of GROUP BY                 g0 ... a0 ...   groups with their values; the end of a window before these

Invariant: equal rows are made of equal values: 0.0 stands for -0.0, as Spark's own grouping has it. Columns are a function of the plan alone:
driver and workers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.columns.spark_types import unit_type
from watersmeet.expressions.evaluator import evaluate
from watersmeet.kernels.instants import shift
from watersmeet.plan.model import ROWS_ONLY, TIME, Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.select import END, GroupWindow


def project_rows(plan: Plan, results: pa.Table) -> pa.Table:
    """The projected rows of a table of results; the number of rows survives without a column."""
    assert plan.finish is not None
    columns = zip(select_columns(plan, results), plan.finish.columns, strict=True)
    projected = {f"p{n}": cast_column(column, kind) for n, (column, kind) in enumerate(columns)}
    return plain_zeros(pa.table(projected or {ROWS_ONLY: pa.nulls(results.num_rows, pa.bool_())}))


def select_columns(
    plan: Plan,
    results: pa.Table,
    at: Mapping[ColumnRef, str] | None = None,
    settle: Callable[[pa.Table], pa.Table] = lambda made: made,
) -> list[pa.ChunkedArray]:
    """The columns of the join's SELECT over a table of results: plain ones as they are, the rest by the evaluator.

    `at` says how the table calls what is selected, o0, ... by default; `settle` changes the types that the evaluator has given.
    """
    select = plan.join.select
    if at is None:
        results = results.rename_columns([f"o{n}" for n in range(results.num_columns)])
        at = {ref: f"o{n}" for n, ref in enumerate(plan.output)}
    computed = [n for n, o in enumerate(select) if o.expr.duckdb_template != "{0}"]
    values: dict[int, pa.ChunkedArray] = {}
    if computed:
        texts = [select[n].expr.duckdb(lambda r: f'"{at[r]}"') for n in computed]
        made = settle(evaluate(results, texts, "SELECT", plan.timezone, {name: str(ref) for ref, name in at.items()}))
        values = {n: made.column(i) for i, n in enumerate(computed)}
    return [values[n] if n in values else results.column(at[o.expr.columns[0]]) for n, o in enumerate(select)]


def select_final(plan: Plan, left: pa.Table) -> pa.Table:
    """The query's rows, of what leaves the last units, where these can select: see `plan.rules.finish.why_spark_selects`."""
    if plan.join.distinct:
        return left
    if plan.finish is None:
        columns = select_columns(plan, left)
    else:
        assert plan.join.grouping is not None
        at = {name: n for n, (name, _) in enumerate(final_fields(plan))}
        columns = [left.column(at[output.expr.columns[0].column]) for output in plan.join.grouping.select]
    return pa.table(columns, names=[f"r{n}" for n in range(len(columns))])


def assign_windows(window: GroupWindow, rows: pa.Table) -> pa.Table:
    """Projected rows, once for every window that their event time lies in, whose start takes its place; rows without a time fall into none.

    >>> rows = pa.table({"p0": pa.array([12, -1, None], pa.timestamp("us"))})
    >>> assign_windows(GroupWindow(0, "a", 10, 5, 0, ""), rows).column("p0").cast(pa.int64()).to_pylist()
    [10, 5, -5, -10]
    """
    at = rows.column_names.index(f"p{window.key}")
    rows = rows.filter(pc.is_valid(rows.column(at)))
    times = integers(rows.column(at).combine_chunks())
    last, most = times - (times - window.start_us) % window.slide_us, -(-window.size_us // window.slide_us)
    starts = np.stack([shift(last, -n * window.slide_us) for n in range(most)], axis=1).reshape(-1)
    inside = np.repeat(times, most) < shift(starts, window.size_us)
    kind = rows.schema.field(at).type
    if most > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(len(times)), most)[inside]))
    return rows.set_column(at, f"p{window.key}", pa.array(starts[inside]).cast(kind))


def shift_times(column: pa.ChunkedArray, by_us: int) -> pa.ChunkedArray:
    """A column of times, moved by a span."""
    moved = pa.array(shift(integers(column.combine_chunks()), by_us))
    return pa.chunked_array([moved.cast(column.type)])


def cast_column(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """A column in the Arrow type of a Spark type; as it is if that is none of the plain ones."""
    wanted = unit_type(kind)
    return column if wanted is None or column.type == wanted else column.cast(wanted)


def plain_zeros(rows: pa.Table) -> pa.Table:
    """The rows with 0.0 in place of -0.0."""
    columns = [pc.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c for c in rows.columns]
    return pa.table(columns, names=rows.column_names)


Fields = Sequence[tuple[str, str]]
"""(name, Spark type) of columns."""


def result_fields(plan: Plan) -> Fields:
    """The columns of results, inside the units."""
    kinds = {i.alias: {c.name: c.type for c in i.columns} for i in plan.inputs}
    found = [(f"o{n}", kinds[r.alias][plan.by_alias[r.alias].column(r)]) for n, r in enumerate(plan.output)]
    return found or [(ROWS_ONLY, "boolean")]


def join_fields(plan: Plan) -> Fields:
    """The columns of what leaves the joins."""
    if plan.finish is None or not plan.finish.inside:
        return [*result_fields(plan), *([(TIME, "bigint")] if plan.join.distinct else [])]
    if plan.join.distinct:
        return [*row_fields(plan), (TIME, "bigint")]
    partials = [(f"v{n}", p.type) for n, p in enumerate(plan.finish.partials)]
    return [*_key_fields(plan), *partials]


def final_fields(plan: Plan) -> Fields:
    """The columns of what leaves the last units, which keep rows or groups, if the plan has them."""
    if plan.finish is None:
        return result_fields(plan)
    if plan.join.distinct:
        return row_fields(plan)
    window = plan.join.group_window
    end = [] if window is None else [(END, plan.finish.columns[window.key])]
    return [*_key_fields(plan), *end, *((f"a{n}", v.type) for n, v in enumerate(plan.finish.values))]


def row_fields(plan: Plan) -> Fields:
    """The columns of projected rows."""
    assert plan.finish is not None
    return [(f"p{n}", kind) for n, kind in enumerate(plan.finish.columns)]


def _key_fields(plan: Plan) -> Fields:
    assert plan.finish is not None
    return [(f"g{n}", kind) for n, kind in enumerate(plan.finish.keys(plan.join))]
