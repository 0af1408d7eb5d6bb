"""Types of Spark by their names, and of Arrow: the one table between them.

Invariant: `spark_name(arrow_type(name)) == name` for every plain type, that is, one without parts.
"""

from __future__ import annotations

import pyarrow as pa

from watersmeet.columns.arrow import large_type
from watersmeet.query.stream import DECIMAL

_NAMES = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.bool_(): "boolean", pa.date32(): "date",
    pa.null(): "void",
}  # fmt: skip
_PLAIN = {name: kind for kind, name in _NAMES.items()} | {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


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


def arrow_type(name: str) -> pa.DataType | None:
    """The Arrow type of a plain Spark type; None of any other.

    >>> arrow_type("timestamp"), arrow_type("decimal(10,2)"), arrow_type("map<int,int>")
    (TimestampType(timestamp[us, tz=UTC]), Decimal128Type(decimal128(10, 2)), None)
    """
    decimal = DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PLAIN.get(name)


def unit_type(name: str) -> pa.DataType | None:
    """The same as units hold it, with 64-bit offsets; None of NULL's own, too, which no column is cast to.

    >>> unit_type("string"), unit_type("decimal(10,2)")
    (DataType(large_string), Decimal128Type(decimal128(10, 2)))
    """
    kind = arrow_type(name)
    return None if kind is None or pa.types.is_null(kind) else large_type(kind)
