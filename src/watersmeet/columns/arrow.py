"""Arrow columns as the units hold them: with 64-bit offsets, in blocks of bounded bytes, as 64-bit codes.

    rows     |a|b|        c        |d|e|f|            widths differ: cuts go by the bytes that are there, not by an average
    blocks   [a b][        c       ][d e f]           a row that is wider than a block has one to itself

Arrow counts the bytes of a `string` column in 32 bits. Inside the units texts, bytes and lists have 64-bit offsets, so that one unit's
tuples may pass 2 GiB; they get Spark's types again when they leave, block by block.

Invariant: the blocks of a table, laid end to end, are the table; a block of several rows holds at most the limit. A code depends on the value
alone, so every process and runtime agrees; see `plan.types` for the kinds. Keys are placed as Spark's `hash` places values of their type,
see `kernels.placement`. Arrays of codes are fresh and writable: compiled kernels take no
read-only views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.retype import retype_table
from watersmeet.kernels import placement
from watersmeet.kernels.hashing import combine, hash_bytes, order_bytes, order_floats
from watersmeet.plan.types import Kind

BLOCK_BYTES = 32 * 2**20
_INT64 = pa.int64().id
_LARGE_TEXTS = frozenset({pa.large_string().id, pa.large_binary().id})
"""The most bytes of rows that are made, sent or stored in one piece. Tests make it small."""


def block_bytes(most: int | None = None) -> int:
    """The limit of a block, or a lower one."""
    return BLOCK_BYTES if most is None else min(most, BLOCK_BYTES)


def slice_by_bytes(table: pa.Table, most: int | None = None) -> Iterator[pa.Table]:
    """The blocks of a table, without a copy; none of an empty one.

    >>> wide = pa.table({"s": ["a" * 10, "b" * 200, "c", "d"]})
    >>> [t.num_rows for t in slice_by_bytes(wide, 100)]
    [1, 1, 2]
    """
    if table.num_rows:
        for begin, end in cuts(table_widths(table), table.num_rows, block_bytes(most)):
            yield table if end - begin == table.num_rows else table.slice(begin, end - begin)


class Fold:
    """The one table that tables merge to. They are merged on the way, each time that they have doubled beyond a block, so what is
    held is at most a few times the answer."""

    def __init__(self, merge: Callable[[list[pa.Table]], pa.Table]) -> None:
        self._merge, self._held, self._size, self._enough = merge, list[pa.Table](), 0, block_bytes()

    def add(self, table: pa.Table) -> None:
        self._held.append(table)
        self._size += table.nbytes
        if self._size > self._enough and len(self._held) > 1:
            self._held = [self._merge(self._held)]
            self._size = self._held[0].nbytes
            self._enough = max(2 * self._size, block_bytes())

    def merge(self) -> pa.Table:
        return self._merge(self._held)


def fold(tables: Iterable[pa.Table], merge: Callable[[list[pa.Table]], pa.Table]) -> Iterator[pa.Table]:
    """The one table that tables merge to, or none of none; see `Fold`.

    >>> [t.to_pydict() for t in fold([pa.table({"n": [1]}), pa.table({"n": [2]})], pa.concat_tables)]
    [{'n': [1, 2]}]
    """
    held = None
    for table in tables:
        held = held or Fold(merge)
        held.add(table)
    if held is not None:
        yield held.merge()


def cuts(widths: int | np.ndarray, rows: int, limit: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of runs of rows that together are at most so wide; a wider row is a run by itself.

    >>> list(cuts(np.array([5, 5, 30, 5]), 4, 10)), list(cuts(4, 5, 10))
    ([(0, 2), (2, 3), (3, 4)], [(0, 2), (2, 4), (4, 5)])
    """
    if isinstance(widths, int):
        step = max(limit // max(widths, 1), 1)
        yield from ((at, min(at + step, rows)) for at in range(0, rows, step))
        return
    ends, begin = np.cumsum(widths), 0
    while begin < rows:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield begin, end
        begin = end


def row_widths(column: pa.Array | pa.ChunkedArray) -> int | np.ndarray:
    """The bytes of every value; one number if all are equally wide.

    >>> row_widths(pa.array([1, 2])), row_widths(pa.array(["a", None, "bcd"])).tolist()
    (8, [9, 8, 11])
    >>> row_widths(pa.array([["ab", "c"], []])).tolist()
    [27, 8]
    """
    if isinstance(column, pa.ChunkedArray) and pa.types.is_nested(column.type):
        parts = [_broadcast(row_widths(chunk), len(chunk)) for chunk in column.chunks]
        return np.concatenate([np.empty(0, np.int64), *parts])
    kind = column.type
    if _is_text(kind):
        return 8 + np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_struct(kind):
        return _sum([row_widths(part) for part in column.flatten()])
    if pa.types.is_map(kind):
        return 8 + _inside(column, _sum([row_widths(column.keys), row_widths(column.items)]))
    if pa.types.is_nested(kind):
        return 8 + _inside(column, row_widths(column.values)) if hasattr(column, "offsets") else 8
    return 0 if pa.types.is_null(kind) else -(-kind.bit_width // 8)


def widest_value(column: pa.Array) -> int:
    """The bytes of the widest value.

    >>> widest_value(pa.array(["a", None, "bcd"], pa.large_string()).slice(1)), widest_value(pa.array([1, 2]))
    (11, 8)
    """
    if column.type.id in _LARGE_TEXTS and len(column):  # by its offsets, without a number for every value
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        return 8 + int((offsets[1:] - offsets[:-1]).max())
    return int(np.max(row_widths(column), initial=0))


def _inside(lists: pa.Array, widths: int | np.ndarray) -> np.ndarray:
    """The bytes of the values inside every list."""
    offsets = np.asarray(lists.offsets.to_numpy(zero_copy_only=False), np.int64)
    if isinstance(widths, int):
        return np.diff(offsets) * widths
    return np.diff(np.concatenate([[0], np.cumsum(widths)])[offsets])


def table_widths(table: pa.Table) -> int | np.ndarray:
    """The bytes of every row of a table; one number if all are equally wide."""
    return _sum([row_widths(column) for column in table.columns])


def _sum(widths: list[int | np.ndarray]) -> int | np.ndarray:
    total: int | np.ndarray = 0
    for width in widths:
        total = total + width
    return total


def _broadcast(widths: int | np.ndarray, rows: int) -> np.ndarray:
    return np.full(rows, widths, np.int64) if isinstance(widths, int) else widths


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts, whatever their offsets."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes of any length, whatever their offsets."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def enlarge(table: pa.Table) -> pa.Table:
    """The table with 64-bit offsets; data are shared, not copied.

    >>> enlarge(pa.table({"s": ["a"], "k": [1]})).schema.types
    [DataType(large_string), DataType(int64)]
    """
    return _cast(table, large_type)


def shrink(table: pa.Table) -> pa.Table:
    """The table with 32-bit offsets, as Spark has them; what is too much for these comes in several chunks."""
    try:
        return _cast(table, small_type)
    except pa.ArrowInvalid:  # offsets past 32 bits, if only those of a slice: a copy of a block begins at zero
        blocks = (block.take(pa.array(np.arange(block.num_rows))) for block in slice_by_bytes(table))
        return pa.concat_tables([_cast(block, small_type) for block in blocks])


def _cast(table: pa.Table, into: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    schema = _convert_schema(table.schema, into)
    return table if schema is None else retype_table(table, schema.with_metadata(table.schema.metadata))


@lru_cache(maxsize=1024)
def _convert_schema(schema: pa.Schema, into: Callable[[pa.DataType], pa.DataType]) -> pa.Schema | None:
    """A schema with other types; None: it has them."""
    found = pa.schema([f.with_type(into(f.type)) for f in schema])
    return None if found.equals(schema) else found


def large_type(kind: pa.DataType) -> pa.DataType:
    """A type with 64-bit offsets wherever it has offsets, and without what is said of its parts besides: their names in lists and maps, or that they are never NULL.

    So the units' type is a function of Spark's: columns of one kind, whoever has made them, lie in one table.
    """
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(large_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, large_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(large_type(kind.key_type), large_type(kind.item_type))
    return kind


def small_type(kind: pa.DataType) -> pa.DataType:
    """A type with 32-bit offsets.

    >>> small_type(large_type(pa.list_(pa.struct([("x", pa.binary())])))) == pa.list_(pa.struct([("x", pa.binary())]))
    True
    """
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(small_type(kind.value_type)))
    return rebuilt(kind, small_type)


def mark_utc(table: pa.Table) -> pa.Table:
    """The table with instants marked as UTC, whatever zone they came from; the values are the same."""
    return _cast(table, _utc_type)


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return rebuilt(kind, _utc_type)


def number_fields(kind: pa.DataType) -> pa.DataType:
    """A type whose structs have numbers for names: Spark lets two fields of a struct have one name, and DuckDB does not.

    >>> number_fields(pa.list_(pa.struct([("a", pa.int8()), ("a", pa.int8())])))
    ListType(list<item: struct<0: int8, 1: int8>>)
    """
    if pa.types.is_struct(kind):
        return pa.struct([(str(n), number_fields(field.type)) for n, field in enumerate(kind)])
    return rebuilt(kind, number_fields)


def rebuilt(kind: pa.DataType, into: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with other types inside; any other as it is."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(into(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(into(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(into(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(into(kind.key_type)), kind.item_field.with_type(into(kind.item_type)))
    return kind


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(blob: bytes | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream; instants are UTC, whatever the session was that wrote it."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return enlarge(mark_utc(reader.read_all()))


def codes(column: pa.Array, kind: Kind) -> np.ndarray:
    """Codes of a column without NULLs.

    >>> codes(pa.array([3, 1]), "integer").tolist()
    [3, 1]
    """
    if kind == "integer":
        return integers(column)
    if kind == "float":
        return order_floats(floats(column))
    if kind == "decimal":
        return split_decimals(column)[:, 0].copy()
    if pa.types.is_decimal(column.type):
        words = split_decimals(column)
        return combine(words[:, 0].copy(), words[:, 1].copy())
    return (order_bytes if kind == "prefix" else hash_bytes)(*split_texts(column))


def code_together(codes: Sequence[np.ndarray]) -> np.ndarray:
    """One code for several values of a row."""
    return reduce(combine, codes)


def integers(column: pa.Array) -> np.ndarray:
    """Whole numbers, dates, times and booleans as 64 bits."""
    kind = column.type
    if kind.id == _INT64:
        pass
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        column = column.view(pa.int64())
    elif pa.types.is_time32(kind):
        column = column.view(pa.int32())
    if column.null_count:  # whoever asks knows which rows are valid
        column = column.fill_null(0)
    return np.array(column.to_numpy(zero_copy_only=False), np.int64)


def floats(column: pa.Array) -> np.ndarray:
    """Numbers as doubles."""
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def split_decimals(column: pa.Array) -> np.ndarray:
    """A decimal128 column as rows of two 64-bit words, the low one first."""
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def split_texts(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Texts or bytes as where each begins and ends, and all bytes."""
    column = column.cast(large_type(column.type))
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1].copy()
    return starts, np.zeros(1, np.uint8) if data is None or data.size == 0 else np.frombuffer(data, np.uint8)


_INTS = ("boolean", "tinyint", "smallint", "int", "date")
"""Types that Spark hashes as 32 bits; other whole numbers and times have 64."""


def place_keys(keys: Sequence[tuple[pa.Array, str]]) -> np.ndarray:
    """The placement hash of keys, which are columns with their Spark types: that of each goes on from that of the keys before it."""
    out = np.full(len(keys[0][0]), placement.SEED, np.int64)
    for column, spark_type in keys:
        hashed = _place(out, column, spark_type)
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False) if column.null_count else None
        out = hashed if valid is None else np.where(valid, hashed, out)
    return out


def _place(seeds: np.ndarray, column: pa.Array, spark_type: str) -> np.ndarray:
    if spark_type in ("float", "double"):
        single = spark_type == "float"
        values = np.array(column.to_numpy(zero_copy_only=False), np.float32 if single else np.float64)
        values[values == 0] = 0
        values[np.isnan(values)] = np.nan
        bits = values.view(np.int32 if single else np.int64).astype(np.int64)
        return (placement.hash_ints if single else placement.hash_longs)(seeds, bits)
    if pa.types.is_decimal(column.type):
        words = split_decimals(column)
        low, high = words[:, 0].copy(), words[:, 1].copy()
        if column.type.precision <= 18:
            return placement.hash_longs(seeds, low)
        offsets = np.empty(len(column) + 1, np.int64)
        return placement.hash_texts(seeds, offsets, placement.write_big_endian(low, high, offsets))
    if pa.types.is_integer(column.type) or pa.types.is_temporal(column.type) or pa.types.is_boolean(column.type):
        return (placement.hash_ints if spark_type in _INTS else placement.hash_longs)(seeds, integers(column))
    return placement.hash_texts(seeds, *split_texts(column))
