"""Hashes of whole rows, and their way to the units that keep rows apart.

Invariant: rows that Spark calls equal have equal hashes, in every process: NULL equals NULL, NaN equals NaN, 0.0 equals
-0.0. Nested values are left out, since their parts would need the same care; code that matches by hash compares the values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import codes, integers, is_bytes
from watersmeet.kernels.hashing import combine, order_floats, remainder
from watersmeet.routing.hypercube import group_rows

HASH = "_hash"
"""The column of a row's hash, in segments of rows and of groups."""
_NULL = np.int64(0x4E554C4C5EED1D1F)
"""What NULL counts as: no value that anybody has."""


def row_hash(table: pa.Table, seed: int = 0) -> np.ndarray:
    """A hash of every row's values; another one for another seed.

    >>> a, b, c = row_hash(pa.table({"x": [0.0, -0.0, None], "y": ["s", "s", "s"]})).tolist()
    >>> a == b, a == c
    (True, False)
    """
    out = np.full(table.num_rows, seed, np.int64)
    for column in table.columns:
        if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
            continue
        whole = column.combine_chunks()
        values = _values(whole)
        if whole.null_count:
            values = np.where(pc.is_valid(whole).to_numpy(zero_copy_only=False), values, _NULL)
        out = combine(out, values)
    return out


def by_hash(table: pa.Table, hashes: np.ndarray, units: int) -> Iterator[tuple[int, pa.Table]]:
    """One table per unit that gets rows, by the rows' hashes."""
    if table.num_rows:
        for unit, rows in group_rows(remainder(hashes, units)):
            yield unit, table if rows is None else table.take(pa.array(rows))


def _values(column: pa.Array) -> np.ndarray:
    """Codes of values; those of NULLs are anything."""
    kind = column.type
    if pa.types.is_floating(kind):
        return order_floats(pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False))
    if pa.types.is_boolean(kind):
        return integers(pc.fill_null(column, False))
    if pa.types.is_date32(kind):
        return integers(pc.fill_null(column.view(pa.int32()), 0))
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return integers(pc.fill_null(column.view(pa.int64()), 0))
    if pa.types.is_integer(kind):
        return integers(pc.fill_null(column, 0))
    if pa.types.is_decimal(kind):
        return codes(column.cast(pa.decimal128(38, kind.scale)).fill_null(0), "bytes")
    return codes(pc.fill_null(column, b"" if is_bytes(kind) else ""), "bytes")
