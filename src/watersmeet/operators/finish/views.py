"""Local views: one row per group, with partials that all aggregates can be made of. `plan.finish` has the algebra.

    rows    p0 p1           view    g0 v0 v1       merged   g0 v0 v1       values   g0 a0 a1
            x   1                   x   2  4                x   5  9                x   5  1.8
            x   3

Aggregates mean what they mean to Spark in ANSI mode: NULLs are skipped, NULL keys form a group, sums of whole numbers are
bigint and overflow with an error (partials do, too, as Spark's own), NaN is the largest number.

A view is made by Arrow's own hash aggregation where that means what Spark means, several times as fast as a SQL query, and by SQL otherwise:

    keys       whole numbers, booleans, dates, timestamps, texts and bytes
    count      of anything
    sum        of whole numbers that cannot overflow, whatever the groups; of doubles
    min, max   of whole numbers, dates and timestamps; of doubles without NaN

Invariant: merging is associative and commutative, up to the order in which doubles are added. Both ways make the same view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import is_bytes, is_text
from watersmeet.columns.spark_types import unit_type
from watersmeet.expressions.evaluator import ask
from watersmeet.operators.finish.partials import SIMPLE, compute_value, make_sql, means, merge_sql, stored_type
from watersmeet.operators.finish.project import assign_windows, shift_times
from watersmeet.plan.finish import FinishPlan, Partial
from watersmeet.plan.model import Plan
from watersmeet.query.select import END

_NEW = "_new"


def make_view(plan: Plan, rows: pa.Table) -> pa.Table:
    """The local view of projected rows."""
    made, keys = _finish(plan), _keys(plan)
    if plan.join.group_window is not None:
        rows = assign_windows(plan.join.group_window, rows)
    quick = quick_view([f"p{n}" for n in range(len(keys))], made.partials, rows)
    if quick is not None:
        return _cast_view(plan, quick)
    items = [f"p{n} AS {key}" for n, key in enumerate(keys)]
    for n, partial in enumerate(made.partials):
        items.append(f"{make_sql(partial)} AS v{n}")
    by = [f"p{n}" for n in range(len(keys))]
    return _cast_view(plan, ask(f"SELECT {', '.join(items)} FROM _rows{_group_by(by)}", "an aggregate", _rows=rows))


def merge_views(plan: Plan, views: Sequence[pa.Table]) -> pa.Table:
    """One view of the same groups; without keys it has one group, even of nothing."""
    if len(views) == 1 and (_keys(plan) or views[0].num_rows):
        return views[0].select(_names(plan))
    every = _concat(plan, views)
    quick = quick_view(_keys(plan), _merges(plan), every)
    if quick is not None:
        return _cast_view(plan, quick)
    return _cast_view(plan, ask(f"{_merge_sql(plan)}{_group_by(_keys(plan))}", "an aggregate", _views=every))


def update_view(plan: Plan, new: pa.Table, old: Sequence[pa.Table]) -> pa.Table:
    """The groups of a view, merged with what older views hold of them; other groups of older views are left out."""
    if not any(t.num_rows for t in old):
        return new
    kept = _concat(plan, old)
    both = pa.concat_tables([_mark(_concat(plan, [new]), 1), _mark(kept, 0)])
    quick = quick_view(_keys(plan), (*_merges(plan), Partial("max", _NEW, "int")), both)
    if quick is not None:
        marks = quick.column(quick.num_columns - 1)
        return _cast_view(plan, quick.filter(pc.equal(marks, 1)).select(_names(plan)))
    sql = f"{_merge_sql(plan)}{_group_by(_keys(plan))} HAVING max({_NEW}) = 1"
    return _cast_view(plan, ask(sql, "an aggregate", _views=both))


def compute_values(plan: Plan, view: pa.Table) -> pa.Table:
    """Groups with the values of their aggregates: g0, ..., a0, ...; the end of a window follows the keys."""
    columns = {key: view.column(key) for key in _keys(plan)}
    window = plan.join.group_window
    if window is not None:
        columns[END] = shift_times(columns[f"g{window.key}"], window.size_us)
    for n, value in enumerate(_finish(plan).values):
        columns[f"a{n}"] = compute_value(value, [view.column(name) for name in value.of])
    return pa.table(columns)


def empty_view(plan: Plan) -> pa.Table:
    """A view without groups."""
    kinds = [kind or pa.null() for kind in _kinds(plan)]
    return pa.schema(list(zip(_names(plan), kinds, strict=True))).empty_table()


def _finish(plan: Plan) -> FinishPlan:
    assert plan.finish is not None
    return plan.finish


def _keys(plan: Plan) -> list[str]:
    assert plan.join.grouping is not None
    return [f"g{n}" for n in range(plan.join.grouping.keys)]


def _mark(view: pa.Table, mark: int) -> pa.Table:
    return view.append_column(_NEW, pa.repeat(pa.scalar(mark, pa.int32()), view.num_rows))


def _merges(plan: Plan) -> tuple[Partial, ...]:
    """Partials of views from partials of views."""
    return tuple(Partial(p.merge, f"v{n}", p.type) for n, p in enumerate(_finish(plan).partials))


def _merge_sql(plan: Plan) -> str:
    partials = _finish(plan).partials
    names = {partial: f"v{n}" for n, partial in enumerate(partials)}
    merged = [f"{merge_sql(partial, name, names)} AS {name}" for partial, name in names.items()]
    return f"SELECT {', '.join([*_keys(plan), *merged])} FROM {means(partials, names, _keys(plan))}"


def _group_by(names: Sequence[str]) -> str:
    return f" GROUP BY {', '.join(names)}" if names else ""


def _names(plan: Plan) -> list[str]:
    """The columns of a view."""
    return [*_keys(plan), *(f"v{n}" for n in range(len(_finish(plan).partials)))]


def _kinds(plan: Plan) -> list[pa.DataType | None]:
    """Their types."""
    keys = [unit_type(kind) for kind in _finish(plan).columns[: len(_keys(plan))]]
    return [*keys, *(stored_type(p) for p in _finish(plan).partials)]


def _concat(plan: Plan, views: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([empty_view(plan), *(v.select(_names(plan)) for v in views)])


def _cast_view(plan: Plan, table: pa.Table) -> pa.Table:
    kinds = zip(table.columns, _kinds(plan), strict=True)
    columns = [c if kind is None or c.type == kind else c.cast(kind) for c, kind in kinds]
    return pa.table(columns, names=table.column_names).combine_chunks()


_LARGEST = 2**63 - 1


def quick_view(keys: list[str], partials: tuple[Partial, ...], rows: pa.Table) -> pa.Table | None:
    """The view of rows by key columns, with columns g0, ..., v0, ...; None if Arrow would not answer as Spark does."""
    if not keys or not all(_is_key(rows.schema.field(key).type) for key in keys):
        return None
    columns, asked = {key: rows.column(key) for key in keys}, list[tuple[Any, str]]()
    for n, partial in enumerate(partials):
        if partial.argument is None:
            asked.append(([], "count_all"))
            continue
        column = rows.column(partial.argument)
        if partial.function == "sum" and partial.type == "double" and pa.types.is_signed_integer(column.type):
            column = column.cast(pa.float64(), safe=False)  # the nearest double, as Spark has it
        if not _is_exact(partial, column):
            return None
        columns[f"v{n}"] = column
        asked.append((f"v{n}", partial.function))
    made = pa.TableGroupBy(pa.table(columns), keys, use_threads=False).aggregate(asked)
    found = {f"g{n}": made.column(key) for n, key in enumerate(keys)}
    names = ["count_all" if not column else f"{column}_{function}" for column, function in asked]
    return pa.table({**found, **{f"v{n}": made.column(name) for n, name in enumerate(names)}})


def _is_key(kind: pa.DataType) -> bool:
    plain = is_text(kind) or is_bytes(kind) or pa.types.is_boolean(kind)
    return plain or _is_whole(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def _is_exact(partial: Partial, column: pa.ChunkedArray) -> bool:
    kind = column.type
    if partial.function not in SIMPLE:
        return False
    if partial.function == "count":
        return True
    if partial.function == "sum":
        return pa.types.is_float64(kind) if partial.type == "double" else _cannot_overflow(partial, column)
    return _is_whole(kind) or (pa.types.is_float64(kind) and not pc.any(pc.is_nan(column)).as_py())


def _cannot_overflow(partial: Partial, column: pa.ChunkedArray) -> bool:
    if partial.type != "bigint" or not pa.types.is_signed_integer(column.type):
        return False
    extremes = pc.min_max(column)
    furthest = max(abs(extremes[end].as_py() or 0) for end in ("min", "max"))
    return furthest * len(column) <= _LARGEST
