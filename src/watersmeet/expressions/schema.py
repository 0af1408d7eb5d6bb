"""Which types expressions have, without evaluating them: DuckDB binds their text to the columns of a table that has no rows.

Binding takes a fifth of the time that an evaluation over no rows takes, and registering a query asks for the types of all its expressions. The tables stay registered with their connection.

Invariant: a schema that is found is that of the values over no rows. Where DuckDB refuses to bind, or a type is not one of those below, none is found, and the caller evaluates. What
breaks the connection is raised.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "DATE": pa.date32(), "VARCHAR": pa.large_string(), "BLOB": pa.large_binary(), "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}  # fmt: skip
"""As the evaluator returns them: texts with 64-bit offsets, instants as UTC."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_MOST_TABLES = 256
_tables: WeakKeyDictionary[duckdb.DuckDBPyConnection, OrderedDict[pa.Schema, str]] = WeakKeyDictionary()
"""By connection the tables without rows that are registered with it: their names by schema."""


def find_schema(con: duckdb.DuckDBPyConnection, columns: pa.Schema, items: str) -> pa.Schema | None:
    """The schema of a SELECT list over a table of these columns; None if it is to be evaluated.

    >>> import duckdb
    >>> con, columns = duckdb.connect(), pa.schema({"x": pa.int32()})
    >>> [str(t) for t in find_schema(con, columns, 'x * 2.50 AS "0", x > 1 AS "1"').types]
    ['decimal128(13, 2)', 'bool']
    >>> find_schema(con, columns, "y"), find_schema(con, columns, "[x]")
    (None, None)
    """
    import duckdb

    try:
        found = con.sql(f"SELECT {items} FROM {_register(con, columns)}")
        kinds = [_read_type(str(kind)) for kind in found.types]
    except (duckdb.InternalException, duckdb.FatalException):
        raise
    except duckdb.Error:
        return None
    return None if None in kinds else pa.schema(list(zip(found.columns, kinds, strict=True)))


def _register(con: duckdb.DuckDBPyConnection, columns: pa.Schema) -> str:
    """The name of a table without rows that a connection knows."""
    known = _tables.setdefault(con, OrderedDict())
    if columns not in known:
        name = f"_columns{len(known)}" if len(known) < _MOST_TABLES else known.popitem(last=False)[1]
        con.register(name, columns.empty_table())
        known[columns] = name
    known.move_to_end(columns)
    return known[columns]


def _read_type(text: str) -> pa.DataType | None:
    """A type of DuckDB's in Arrow.

    >>> [str(_read_type(text)) for text in ("DECIMAL(10,2)", "VARCHAR", "BIGINT[]")]
    ['decimal128(10, 2)', 'large_string', 'None']
    """
    if found := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _TYPES.get(text)
