"""Arrow types by their Spark names, and tables in the types that Spark has.

Invariant: `normal(table)` has only types that `spark_name` knows, where Spark has an equal; the rest travels untouched.
"""

from __future__ import annotations

import re

import pyarrow as pa

from watersmeet.units.blocks import shrink

_NAMES = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.bool_(): "boolean", pa.date32(): "date",
    pa.null(): "void",
}  # fmt: skip
_EQUALS = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32(),
}  # fmt: skip

_PLAIN = {name: kind for kind, name in _NAMES.items()} | {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def spark_name(kind: pa.DataType) -> str:
    """The Spark name of an Arrow type.

    >>> spark_name(pa.timestamp("us", tz="UTC")), spark_name(pa.decimal128(10, 2))
    ('timestamp', 'decimal(10,2)')
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_duration(kind):
        return "interval day to second"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{spark_name(f.type)}' for f in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    return str(kind)


def normal(table: pa.Table) -> pa.Table:
    """The table in Spark's types: microseconds, signed integers, 32-bit offsets, no dictionaries.

    >>> normal(pa.table({"t": pa.array([1], pa.timestamp("ms"))})).schema.field("t").type
    TimestampType(timestamp[us])
    """
    table = shrink(table)
    fields = [f.with_type(_normal_type(f.type)) for f in table.schema]
    return table.cast(pa.schema(fields), safe=False)


def _normal_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _normal_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return _EQUALS.get(kind, kind)


def arrow_type(name: str) -> pa.DataType | None:
    """The Arrow type of a plain Spark type; None of any other.

    >>> arrow_type("timestamp"), arrow_type("decimal(10,2)"), arrow_type("map<int,int>")
    (TimestampType(timestamp[us, tz=UTC]), Decimal128Type(decimal128(10, 2)), None)
    """
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PLAIN.get(name)
