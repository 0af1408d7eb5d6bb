"""Partials of local views: how they are made of rows, merged, and become values. DuckDB does it, group by group.

    count, sum, min, max                               merged by sum, sum, min, max
    m2      sum of squared distances from the mean     with count n and sum s beside it; merged: m2 + n (s / n - mean of all)^2, summed
    set     distinct values, ascending                 list     (by, value) of every row, ascending
    first   the least (by, value)                      last     the largest

NULLs are left out of sets and lists. Of values at the same `by`, `first` takes the smallest and `last` the largest, NULL only if there is no other.

Invariant: merge(partial(A), partial(B)) = partial(A + B), whatever the order of rows, up to the order in which doubles are added.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers
from watersmeet.columns.spark_types import unit_type
from watersmeet.plan.finish import Partial, Value

SIMPLE = ("count", "sum", "min", "max")


def make_sql(partial: Partial) -> str:
    """A partial of rows."""
    value, by = partial.argument, partial.by
    if partial.function in SIMPLE:
        argument = "*" if value is None else value
        if partial.function == "sum" and partial.type == "double":
            argument = f"CAST({argument} AS DOUBLE)"
        return f"CAST({partial.function}({argument}) AS {_name(partial.type)})"
    if partial.function == "m2":
        x = f"CAST({value} AS DOUBLE)"
        finite = f"var_pop({x}) FILTER (isfinite({x})) * count({value})"
        return f"CASE WHEN bool_or(NOT isfinite({x})) THEN CAST('NaN' AS DOUBLE) ELSE {finite} END"
    if partial.function == "set":
        return f"coalesce(list_sort(list(DISTINCT {value}) FILTER ({value} IS NOT NULL)), [])"
    if partial.function == "list":
        pair = f"struct_pack(t := {by}, v := {value})"
        return f"coalesce(list_sort(list({pair}) FILTER ({value} IS NOT NULL)), [])"
    extreme, is_last = ("min", "IS NULL") if partial.function == "first" else ("max", "IS NOT NULL")
    where = {"value": f" FILTER ({value} IS NOT NULL)", "by": f" FILTER ({by} IS NOT NULL)"}.get(partial.needs, "")
    return f"{extreme}(struct_pack(t := {by}, n := {value} {is_last}, v := {value})){where}"


def merge_sql(partial: Partial, name: str, names: dict[Partial, str]) -> str:
    """Partials of one group, in the column `name`, as one; `names` are the columns of all of them."""
    if partial.function in SIMPLE:
        merged = f"CAST({partial.merge}({name}) AS {_name(partial.type)})"
        return f"coalesce({merged}, 0)" if partial.function == "count" else merged
    if partial.function == "m2":
        count, total = (names[other] for other in companions(partial))
        return f"sum({name} + {count} * pow({total} / {count} - {mean_of(name)}, 2))"
    if partial.function == "set":
        return f"list_sort(list_distinct(flatten(list({name}))))"
    if partial.function == "list":
        return f"list_sort(flatten(list({name})))"
    return f"{'min' if partial.function == 'first' else 'max'}({name})"


def _name(kind: str) -> str:
    """A type by its DuckDB name; the type of min and max is not changed."""
    return {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}.get(
        kind, kind
    )


def companions(partial: Partial) -> tuple[Partial, Partial]:
    """Count and sum, which stand beside the squares of the same values."""
    return Partial("count", partial.argument, "bigint"), Partial("sum", partial.argument, "double")


def mean_of(name: str) -> str:
    """The column of a group's mean, beside its squares."""
    return f"mean_{name}"


def means(partials: tuple[Partial, ...], names: dict[Partial, str], keys: list[str]) -> str:
    """The views, with the mean of every group beside its squares."""
    out, by = [], ", ".join(keys)
    for partial in (p for p in partials if p.function == "m2"):
        count, total = (names[other] for other in companions(partial))
        whole = f"sum({total}) OVER (PARTITION BY {by}) / nullif(sum({count}) OVER (PARTITION BY {by}), 0)"
        out.append(f"{whole} AS {mean_of(names[partial])}")
    return f"(SELECT *, {', '.join(out)} FROM _views)" if out else "_views"


def stored_type(partial: Partial) -> pa.DataType | None:
    """The Arrow type of a partial's column; None: as it comes."""
    value, by = unit_type(partial.type), unit_type(partial.by_type)
    if partial.function in SIMPLE or value is None:
        return value
    if partial.function == "m2":
        return pa.float64()
    if partial.function == "set":
        return pa.large_list(value)
    assert by is not None
    if partial.function == "list":
        return pa.large_list(pa.struct({"t": by, "v": value}))
    return pa.struct({"t": by, "n": pa.bool_(), "v": value})


def compute_value(value: Value, partials: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """The aggregate that merged partials make."""
    function = value.aggregate.function
    if function in SIMPLE:
        return partials[0]
    if function == "avg":
        return _mean(value, *partials)
    first = partials[0].combine_chunks()
    if function == "count_distinct":
        return pa.chunked_array([pc.list_value_length(first).cast(pa.int64())])
    if function in ("first", "last", "min_by", "max_by"):
        return pa.chunked_array([pc.struct_field(first, "v")])
    if function == "collect_list":
        lengths = integers(pc.list_value_length(first))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return pa.chunked_array(
            [pa.LargeListArray.from_arrays(pa.array(offsets), pc.struct_field(first.flatten(), "v"))]
        )
    if function == "collect_set":
        return pa.chunked_array([first])
    return _spread(function, first, partials[1].combine_chunks())


def _mean(value: Value, total: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decimals are rounded half up, as in Spark."""
    counted = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
    if value.type == "double":
        return pc.divide(total, counted.cast(pa.float64()))
    kind = unit_type(value.type)
    assert kind is not None
    exact = pc.divide(total.cast(pa.decimal256(38, total.type.scale)), counted.cast(pa.decimal256(19, 0)))
    return pc.round(exact, kind.scale, "half_towards_infinity").cast(kind)


def _spread(function: str, squares: pa.Array, count: pa.Array) -> pa.ChunkedArray:
    """Variance or deviation; of one value a sample has none, as in Spark."""
    less = 1 if function.endswith("samp") else 0
    divisor = pc.subtract(count, less)
    divisor = pc.if_else(pc.greater(divisor, 0), divisor, pa.scalar(None, pa.int64()))
    variance = pc.divide(squares, divisor.cast(pa.float64()))
    return pa.chunked_array([pc.sqrt(variance) if function.startswith("stddev") else variance])
