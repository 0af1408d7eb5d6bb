"""Local views by Arrow's own hash aggregation, where it means what Spark means: several times as fast as a SQL query.

    keys       whole numbers, booleans, dates, timestamps, texts and bytes
    count      of anything
    sum        of whole numbers that cannot overflow, whatever the groups; of doubles
    min, max   of whole numbers, dates and timestamps; of doubles without NaN

Invariant: a view made here is the one that `views` would make by SQL; for all else there is none.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.plan.finish import Partial
from watersmeet.units.blocks import is_bytes, is_text

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
