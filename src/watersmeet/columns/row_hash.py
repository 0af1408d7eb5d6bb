"""Hashes of rows: 64 bits that tell rows apart, and their way to units by the placement hash.

Invariant: rows that Spark calls equal have equal hashes, in every process: NULL equals NULL, NaN equals NaN, 0.0 equals
-0.0. Code that matches by hash compares the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import codes, integers, is_bytes
from watersmeet.kernels.hash_window import group_rows
from watersmeet.kernels.hashing import combine, order_floats
from watersmeet.kernels.placement import hash_codes

HASH = "_hash"
"""The column of a row's hash, in segments of rows and of groups."""
_NULL = np.int64(0x4E554C4C5EED1D1F)
"""What NULL counts as: no value that anybody has."""


def row_hash(table: pa.Table, *, whole: bool = False) -> np.ndarray:
    """A hash of every row's values. Nested ones are left out, unless the `whole` row counts: hashes that are stored are without them.

    >>> a, b, c = row_hash(pa.table({"x": [0.0, -0.0, None], "y": ["s", "s", "s"]})).tolist()
    >>> a == b, a == c
    (True, False)
    """
    return _hash(table, (0,), whole=whole)[0]


def content_hash(table: pa.Table) -> np.ndarray:
    """A hash of all of a row's values, whatever the order of columns, nested ones included: the tie-break of sequences."""
    return content_hashes(table, (0,))[0]


def content_hashes(table: pa.Table, seeds: Sequence[int]) -> list[np.ndarray]:
    """The same for every seed."""
    return _hash(table.select(sorted(table.column_names)), seeds, whole=True)


def _hash(table: pa.Table, seeds: Sequence[int], *, whole: bool = False) -> list[np.ndarray]:
    out = [np.full(table.num_rows, seed, np.int64) for seed in seeds]
    for column in table.columns:
        if whole or not (pa.types.is_nested(column.type) or pa.types.is_null(column.type)):
            values = _values(column.combine_chunks())
            out = [combine(hashes, values) for hashes in out]
    return out


def by_hash(table: pa.Table, hashes: np.ndarray, units: int) -> Iterator[tuple[int, pa.Table]]:
    """One table per unit that gets rows, by the rows' hashes."""
    if table.num_rows:
        for unit, rows in group_rows(hash_codes(hashes) % units):
            yield unit, table if rows is None else table.take(pa.array(rows))


def _values(column: pa.Array) -> np.ndarray:
    """Codes of values, one for all NULLs."""
    values = _present(column)
    return np.where(pc.is_valid(column).to_numpy(zero_copy_only=False), values, _NULL) if column.null_count else values


def _present(column: pa.Array) -> np.ndarray:
    """Codes of values; those of NULLs are anything."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(kind):
        parts = [_values(column.field(n)) for n in range(kind.num_fields)]
        return reduce(combine, parts, np.zeros(len(column), np.int64))
    if pa.types.is_nested(kind):
        return _fold_lists(column)
    if pa.types.is_floating(kind):
        return order_floats(pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return integers(column)
    if pa.types.is_decimal(kind):
        return codes(column.cast(pa.decimal128(38, kind.scale)).fill_null(0), "bytes")
    return codes(pc.fill_null(column, b"" if is_bytes(kind) else ""), "bytes")


def _fold_lists(column: pa.Array) -> np.ndarray:
    """Codes of lists and maps: of their values with their places, added up."""
    if not hasattr(column, "offsets"):  # as long as each other
        column = column.cast(pa.list_(column.type.value_type))
    if not len(column):
        return np.empty(0, np.int64)
    offsets = np.asarray(column.offsets.to_numpy(zero_copy_only=False), np.int64)
    first, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    codes = _values(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
    places = np.arange(len(codes)) - np.repeat(first, lengths)
    sums = np.concatenate([[0], np.cumsum(combine(codes, places))])
    return combine(sums[first + lengths] - sums[first], lengths)
