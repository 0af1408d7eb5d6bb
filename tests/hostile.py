"""Arrow columns of hostile values, of every type and inside others, and how to compare what became of them.

Structs are as Spark writes them: fields that are never NULL have a NULL where the whole struct is one.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 6
LAST, FIRST = 2**63 - 1, -(2**63)
TIMES = [-188_395_027_200_000_000, 569_000_000_000_000_000, LAST, FIRST, 0, None]
"""Microseconds: years -4000 and 20000, the last and the first there are."""
NUMBERS = [math.nan, -0.0, math.inf, -math.inf, 5e-324, None]
TEXTS = [b"", b"a\0b", "😀é".encode(), b"\xff\0\xc3", b"a", None]
"""Spark does not mind bytes that are no UTF-8."""


def texts() -> pa.Array:
    bytes_ = pa.array(TEXTS, pa.binary())
    return pa.Array.from_buffers(pa.string(), ROWS, bytes_.buffers())


def flat() -> dict[str, pa.Array]:
    """A column of every type without parts."""
    times = pa.array(TIMES, pa.int64())
    whole = [-1, 0, 1, 100, -128, None]
    return {
        "number": pa.array(NUMBERS, pa.float64()),
        "single": pa.array([math.nan, -0.0, math.inf, -math.inf, 1e-45, None], pa.float32()),
        "text": texts(),
        "bytes": pa.array(TEXTS, pa.binary()),
        "decimal": pa.array([Decimal("9" * 20 + "." + "9" * 18), Decimal("-1e-18"), 0, 1, -1, None], pa.decimal128(38, 18)),
        "day": pa.array([2**31 - 1, -(2**31), -2_500_000, 5_000_000, -141_430, None], pa.int32()).cast(pa.date32()),
        "time": times.cast(pa.timestamp("us", "UTC")),
        "wall": times.cast(pa.timestamp("us")),
        "span": times.cast(pa.duration("us")),
        "clock": pa.array([0, 1000, 86_399_999_999_000, 5000, 7000, None], pa.int64()).cast(pa.time64("ns")),
        "truth": pa.array([True, False, True, False, True, None], pa.bool_()),
        "tiny": pa.array(whole, pa.int8()),
        "big": pa.array([FIRST, LAST, 2**53 + 1, 0, -1, None], pa.int64()),
        "nothing": pa.nulls(ROWS),
    }  # fmt: skip


def columns() -> dict[str, pa.Array]:
    """A column of every type, and of lists, structs and maps of it."""
    plain = flat()
    out = dict(plain)
    for name, column in plain.items():
        out[f"{name}s"] = in_lists(column)
        out[f"{name}_struct"] = in_structs(column)
        out[f"{name}_structs"] = in_lists(out[f"{name}_struct"])
        out[f"{name}_lists"] = in_lists(out[f"{name}s"])
        if name != "nothing":
            out[f"by_{name}"] = in_maps(column)
            out[f"by_{name}_struct"] = in_maps(in_structs(column, masked=False))
    return out


def in_lists(column: pa.Array) -> pa.Array:
    """Lists of a column's values: all, none, NULL, one, all but one, one."""
    offsets, values = np.array([0, 6, 6, 6, 7, 11, 12], np.int32), pa.concat_arrays([column, column])
    valid = np.packbits([1, 1, 0, 1, 1, 1, 0, 0], bitorder="little").tobytes()
    kind = pa.list_(pa.field("element", column.type))
    return pa.Array.from_buffers(kind, ROWS, [pa.py_buffer(valid), pa.py_buffer(offsets)], children=[values])


def in_structs(column: pa.Array, *, masked: bool = True) -> pa.Array:
    """Structs of a column and of itself as a field that is never NULL; the last two are NULL."""
    fields = [
        pa.field("a b", column.type),
        pa.field("never", column.type, nullable=pa.types.is_null(column.type)),
        pa.field("a b", pa.int32()),
    ]
    numbers = pa.array(range(ROWS), pa.int32())
    mask = pa.array([False] * 4 + [True] * 2) if masked else None
    return pa.StructArray.from_arrays([column, column, numbers], fields=fields, mask=mask)


def in_maps(column: pa.Array) -> pa.Array:
    """Maps of a column's values to them, NULL aside."""
    keys, numbers = column.slice(0, ROWS - 1), pa.array([0, 2, 2, 4, 4, 4, 5], pa.int32())
    return pa.MapArray.from_arrays(numbers, keys, keys)


def show(value: pa.Scalar) -> Any:
    """A value as Python can compare it, to the last bit."""
    kind = value.type
    if not value.is_valid or pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        return tuple((field.name, show(value[n])) for n, field in enumerate(kind))
    if pa.types.is_nested(kind):
        return [show(item) for item in value.values]
    if pa.types.is_floating(kind):
        return repr(value.as_py())
    if pa.types.is_temporal(kind):
        return value.value
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes()
    return value.as_py()


def show_all(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    return [show(value) for value in column]
