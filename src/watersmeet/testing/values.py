"""Values as tests write them, and Arrow columns: tables out of tuples, and instants out of numbers and texts.

    7, 7.5                      seconds after 1970-01-01 00:00:00 UTC, in a column of timestamps
    "2026-01-01 12:00:07"       an instant, in UTC if it names no zone

Invariant: what a column cannot hold is an error that names the row, the column and the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from watersmeet.columns.retype import retype_table
from watersmeet.columns.spark_types import arrow_type
from watersmeet.errors import DataError, StreamError

Row = Sequence[Any] | Mapping[str, Any]
"""A row as a test gives it: values in the order of the columns, or by their names, NULL where one is left out."""
Rows: TypeAlias = Iterable[Row] | pa.Table
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s+([a-zA-Z_]+(?:\s*\([\d\s,]*\))?)\s*", re.ASCII)
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}


def table(columns: str | pa.Schema, rows: Iterable[Row] = ()) -> pa.Table:
    """An Arrow table: its columns as Spark writes a schema, and rows, if there are any.

    Rows are tuples, or mappings by column. In columns of timestamps numbers are seconds after 1970-01-01 00:00:00 UTC.

    >>> table("id bigint, ts timestamp", [(1, 0), {"ts": "2026-01-01 12:00"}]).column("id").to_pylist()
    [1, None]
    """
    schema = columns if isinstance(columns, pa.Schema) else read_schema(columns)
    return make_table(schema, list(rows), "the table")


def read_schema(text: str) -> pa.Schema:
    """A schema as Spark writes it.

    >>> read_schema("id bigint, price decimal(10, 2), `a b` string").names
    ['id', 'price', 'a b']
    """
    fields = []
    for part in re.split(r",(?![^(]*\))", text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise StreamError(f"column {part.strip()!r}: write a name and a type, as in 'id bigint, ts timestamp'")
        name, kind = found[1] or found[2], "".join(found[3].lower().split())
        known = arrow_type(_SYNONYMS.get(kind, kind))
        if known is None:
            raise StreamError(
                f"column {name}: no type {found[3]!r}; write one such as bigint, double, string or timestamp, or give a pyarrow schema"
            )
        fields.append(pa.field(name, known))
    return pa.schema(fields)


def make_table(schema: pa.Schema, rows: Rows, whose: str) -> pa.Table:
    """Rows of a stream as a table of its schema."""
    if isinstance(rows, pa.Table):
        return retype_table(rows.select(schema.names), schema)
    whole = [_in_order(schema, row, f"row {n} of {whose}") for n, row in enumerate(rows, start=1)]
    columns = []
    for n, field in enumerate(schema):
        columns.append(_column(field, [row[n] for row in whole], whose))
    return pa.Table.from_arrays(columns, schema=schema)


def _in_order(schema: pa.Schema, row: Any, where: str) -> Sequence[Any]:
    """A row's values in the order of the columns."""
    names = ", ".join(schema.names)
    if isinstance(row, Mapping):
        unknown = [name for name in row if name not in schema.names]
        if unknown:
            raise DataError(f"{where}: no column {unknown[0]!r}; the columns are {names}")
        return [row.get(name) for name in schema.names]
    if not isinstance(row, Sequence) or isinstance(row, str | bytes):
        raise DataError(f"{where} is {row!r}: give a tuple of ({names}), or a mapping by column")
    if len(row) != len(schema):
        raise DataError(f"{where} has {len(row)} values, {row!r}, and there are {len(schema)} columns: {names}")
    return row


def _column(field: pa.Field, values: Sequence[Any], whose: str) -> pa.Array:
    for n, value in enumerate(values, start=1):
        try:
            pa.array([convert(field.type, value)], field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"row {n} of {whose}: {field.name} is {value!r}, which is no {field.type}") from error
    return pa.array([convert(field.type, value) for value in values], field.type)


def convert(kind: pa.DataType, value: Any) -> Any:
    """A value as an Arrow column of a type takes it: numbers and texts become instants where those are wanted.

    >>> convert(pa.timestamp("us"), 90), convert(pa.int64(), 90)
    (datetime.datetime(1970, 1, 1, 0, 1, 30), 90)
    """
    if value is None or not pa.types.is_timestamp(kind):
        return value
    instant = read_instant(value)
    return instant if kind.tz else instant.replace(tzinfo=None)


def read_instant(value: Any) -> datetime:
    """An instant in UTC, of a number of seconds, a text or a datetime.

    >>> read_instant(1.5) == read_instant("1970-01-01 00:00:01.5") == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    True
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return EPOCH + timedelta(seconds=value)
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise TypeError(f"{value!r} is no instant: give a datetime, a text as '2026-01-01 12:00:00', or seconds")
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def to_us(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def from_us(us: int) -> datetime:
    """The instant of these microseconds."""
    return EPOCH + timedelta(microseconds=us)
