"""Types of Spark by their names, and of Arrow: the one table between them.

Invariant: `spark_name(arrow_type(name)) == name` for every plain type, that is, one without parts; `held_type(name)` is the type that units have all columns of a Spark type in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    if pa.types.is_time(kind):
        return "time(6)"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field_name(f.name)}:{spark_name(f.type)}' for f in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    return str(kind)


def field_name(name: str) -> str:
    """The name of a struct's field as it stands in the name of a type: quoted, unless SQL needs no quotes."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


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


_OTHERS = (
    (r"(var)?char\(\d+\)|string collate .*", pa.string()),
    (r"interval (day|hour|minute|second).*", pa.duration("us")),
    (r"time\(\d+\)", pa.time64("ns")),
    (r"variant", pa.struct([("value", pa.binary()), ("metadata", pa.binary())])),
    (r"geo(metry|graphy)\(.*\)", pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])),
)
"""Types of Spark without parts that are none of the plain ones."""


def held_type(name: str) -> pa.DataType | None:
    """The type in which units hold columns of a Spark type; None of one that is not known.

    >>> held_type("array<struct<a:int,`b:c`:map<string,double>>>")
    LargeListType(large_list<item: struct<a: int32, b:c: map<large_string, double>>>)
    """
    found = _read(name)
    return None if found is None else large_type(found)


def _read(name: str) -> pa.DataType | None:
    outer, _, rest = name.partition("<")
    if not rest:
        others = (kind for pattern, kind in _OTHERS if re.fullmatch(pattern, name))
        return arrow_type(name) or next(others, None)
    parts = list(_split(rest[:-1]))
    names = [_split_name(part) for part in parts] if outer == "struct" else [("", part) for part in parts]
    kinds = [_read(kind) for _, kind in names]
    if any(kind is None for kind in kinds):
        return None
    if outer == "struct":
        return pa.struct([(name, kind) for (name, _), kind in zip(names, kinds, strict=True)])
    return pa.list_(*kinds) if outer == "array" else pa.map_(*kinds)


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no brackets and no quotes.

    >>> list(_split("a:int,`b,c`:map<int,decimal(3,1)>"))
    ['a:int', '`b,c`:map<int,decimal(3,1)>']
    """
    begin, depth, is_quoted = 0, 0, False
    for at, sign in enumerate(text):
        is_quoted ^= sign == "`"
        depth += 0 if is_quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and not depth and not is_quoted:
            yield text[begin:at]
            begin = at + 1
    if text:
        yield text[begin:]


def _split_name(part: str) -> tuple[str, str]:
    """The name and the type of a struct's field."""
    quoted = re.match(r"`((?:[^`]|``)*)`:", part)
    if quoted:
        return quoted[1].replace("``", "`"), part[quoted.end() :]
    name, _, kind = part.partition(":")
    return name, kind
