"""Columns in other types that hold the same values: other offsets, another zone, other names or flags of the parts.

Arrow's own cast refuses a struct that is NULL if one of its fields may not be: Spark writes such structs, with NULLs in the fields. So parts are
cast, and nested arrays are put together anew around them.

    struct   NULLs | field, field, ...        list   NULLs | offsets | values        map   NULLs | offsets | struct of key and value

Invariant: values, NULLs and their order are the same; nothing but what changes is copied. A value that the new type cannot hold is an error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def retype_table(table: pa.Table, schema: pa.Schema, *, safe: bool = True) -> pa.Table:
    """A table in the types of a schema, column by column."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    pairs = zip(table.columns, schema, strict=True)
    return pa.Table.from_arrays([retype(column, field.type, safe=safe) for column, field in pairs], schema=schema)


def retype(column: pa.ChunkedArray, kind: pa.DataType, *, safe: bool = True) -> pa.ChunkedArray:
    """A column in another type.

    >>> fields = [pa.field("a", pa.string(), nullable=False)]
    >>> column = pa.chunked_array([pa.StructArray.from_arrays([pa.array(["x", None])], fields=fields, mask=pa.array([False, True]))])
    >>> retype(column, pa.struct([pa.field("a", pa.large_string(), nullable=False)])).to_pylist()
    [{'a': 'x'}, None]
    """
    if column.type.equals(kind, check_metadata=True):
        return column
    if not pa.types.is_nested(kind):
        return column.cast(kind, safe=safe)
    return pa.chunked_array([_retype(chunk, kind, safe) for chunk in column.chunks], kind)


Leaf = Callable[[pa.Array], pa.Array]


def map_leaves(array: pa.Array, leaf: Leaf, key: Leaf = lambda keys: keys) -> pa.Array:
    """An array with other values where it has no parts, and other keys of maps, of whatever types these are; of equal names of fields the later ones get a number."""
    if not _has_parts(array.type):
        return leaf(array)
    parts = [map_leaves(part, leaf, key) for part in _parts_of(array)]
    if pa.types.is_struct(array.type):
        names = _tell_apart([field.name for field in array.type])
        return _assemble(array, pa.struct([(name, p.type) for name, p in zip(names, parts, strict=True)]), parts)
    if pa.types.is_map(array.type):
        keys, values = key(parts[0].field(0)), parts[0].field(1)
        entries = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        return _assemble(array, pa.map_(keys.type, values.type), [entries])
    return _assemble(array, pa.large_list(parts[0].type), parts)


def _tell_apart(names: list[str]) -> list[str]:
    """Names, each once.

    >>> _tell_apart(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    return [name if name not in names[:n] else f"{name}_{n}" for n, name in enumerate(names)]


def _retype(array: pa.Array, kind: pa.DataType, safe: bool) -> pa.Array:
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if not _have_equal_parts(array.type, kind):
        return array.cast(kind, safe=safe)
    pairs = zip(_parts_of(array), _types_of(kind), strict=True)
    parts = [_retype(part, its, safe) for part, its in pairs]
    if pa.types.is_struct(kind):
        parts = [part if field.nullable else _fill(part) for part, field in zip(parts, kind, strict=True)]
    return _assemble(array, kind, parts)


def _fill(part: pa.Array) -> pa.Array:
    """A field that may not be NULL: of a struct that is NULL it has no value, and its bytes are empty."""
    is_bytes = pa.types.is_binary(part.type) or pa.types.is_large_binary(part.type)
    return pc.fill_null(part, pa.scalar(b"", part.type)) if is_bytes and part.null_count else part


def _have_equal_parts(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are structs of as many fields, or both lists, or both maps."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return bool(one.num_fields == other.num_fields)
    return _has_offsets(one) and _has_offsets(other) and pa.types.is_map(one) == pa.types.is_map(other)


def _types_of(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    return [pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type]


def _parts_of(array: pa.Array) -> list[pa.Array]:
    """The fields of structs, or the values of lists: those that a slice has."""
    if pa.types.is_struct(array.type):
        return [array.field(n) for n in range(array.type.num_fields)]
    offsets = _offsets_of(array)
    return [array.values.slice(offsets[0], offsets[-1] - offsets[0])]


def _assemble(array: pa.Array, kind: pa.DataType, parts: list[pa.Array]) -> pa.Array:
    """An array of a type with the NULLs and the lengths of another, and with parts of its own."""
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, len(array), [_valid_bits(array)], children=parts)
    offsets = _offsets_of(array)
    moved = pa.array(offsets - offsets[0]).cast(pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    return pa.Array.from_buffers(kind, len(array), [_valid_bits(array), moved.buffers()[1]], children=parts)


def _offsets_of(array: pa.Array) -> np.ndarray:
    """Where each list begins, and the last ends; an empty array may have no buffer for that."""
    return np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64) if len(array) else np.zeros(1, np.int64)


def _has_parts(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or _has_offsets(kind)


def _has_offsets(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)


def _valid_bits(array: pa.Array) -> pa.Buffer | None:
    """Which values are there, one bit each; None: all."""
    if not array.null_count:
        return None
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
