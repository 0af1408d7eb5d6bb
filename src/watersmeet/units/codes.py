"""Arrow columns to 64-bit codes.

Invariant: the code depends on the value alone, so every process and runtime agrees; see `plan.encoding` for the kinds.
The arrays are fresh and writable: compiled kernels take no read-only views.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels.hashing import combine, hash_bytes, order_floats
from watersmeet.plan.encoding import Kind
from watersmeet.units.blocks import is_bytes, is_text, large_type, rebuilt


def codes(column: pa.Array, kind: Kind) -> np.ndarray:
    """Codes of a column without NULLs.

    >>> codes(pa.array([3, 1]), "integer").tolist()
    [3, 1]
    """
    if kind == "integer":
        return integers(column)
    if kind == "float":
        return order_floats(column.to_numpy(zero_copy_only=False))
    if kind == "decimal":
        return _words(column)[:, 0].copy()
    return _hashes(column)


def integers(column: pa.Array) -> np.ndarray:
    """Whole numbers, dates, times and booleans as 64 bits."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.array(column.cast(pa.int8()).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        column = column.view(pa.int64())
    return np.array(column.to_numpy(zero_copy_only=False), np.int64)


def floats(column: pa.Array) -> np.ndarray:
    """Numbers as doubles."""
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def content_hash(table: pa.Table) -> np.ndarray:
    """A hash of all of a row's values, NULLs included: the tie-break of sequences."""
    out = np.zeros(table.num_rows, np.int64)
    for name in sorted(table.column_names):
        column = table.column(name).combine_chunks()
        present = pc.is_valid(column)
        text = column if is_bytes(column.type) or is_text(column.type) else _as_text(column)
        value = _hashes(pc.fill_null(text, b"" if is_bytes(text.type) else ""))
        out = combine(out, value ^ np.array(present.to_numpy(zero_copy_only=False), np.int64))
    return out


def text_hash(column: pa.Array) -> np.ndarray:
    """Codes of texts or bytes without NULLs."""
    return _hashes(column)


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array([None if v is None else repr(v) for v in _plain_times(column).to_pylist()], pa.large_string())
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return column.cast(pa.large_string())


def _plain_times(column: pa.Array) -> pa.Array:
    """Nested values with whole numbers in place of times and dates: not every time is one of Python's."""
    return column.cast(_without_times(column.type))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    return rebuilt(kind, _without_times)


def _words(column: pa.Array) -> np.ndarray:
    """A decimal128 column as rows of two 64-bit words, the low one first."""
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def _hashes(column: pa.Array) -> np.ndarray:
    if pa.types.is_decimal(column.type):
        words = _words(column)
        return combine(words[:, 0].copy(), words[:, 1].copy())
    column = column.cast(large_type(column.type))
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1].copy()
    bytes_ = np.zeros(1, np.uint8) if data is None or data.size == 0 else np.frombuffer(data, np.uint8)
    return hash_bytes(starts, bytes_)
