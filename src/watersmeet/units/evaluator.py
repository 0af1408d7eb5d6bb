"""Conditions and projections by a library, inside a unit or the local runtime.

DuckDB evaluates the DuckDB text of expressions over Arrow tables. It has no access to files or the network, and its
configuration is locked.

Invariant: rows come back in the order in which they were given.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_LOCAL = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's evaluator; the library is loaded when a query first needs it."""
    if not hasattr(_LOCAL, "connection"):
        import duckdb

        con = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": False, "autoinstall_known_extensions": False}
        )
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET preserve_insertion_order = true")
        con.execute("SET lock_configuration = true")
        _LOCAL.connection = con
    return _LOCAL.connection


def evaluate(table: pa.Table, expressions: Sequence[str]) -> pa.Table:
    """The values of expressions over a table's rows, as columns 0, 1, ...

    >>> evaluate(pa.table({"x": [1, 2]}), ["x + 1"]).column(0).to_pylist()
    [2, 3]
    """
    con = connection()
    con.register("_rows", table)
    try:
        items = ", ".join(f'({e}) AS "{i}"' for i, e in enumerate(expressions))
        return con.sql(f"SELECT {items} FROM _rows").to_arrow_table()
    finally:
        con.unregister("_rows")


def ask(sql: str, **tables: pa.Table) -> pa.Table:
    """The answer to a query over tables, by name.

    >>> ask("SELECT sum(x) AS s FROM _t", _t=pa.table({"x": [1.5, 2.0]})).to_pydict()
    {'s': [3.5]}
    """
    con = connection()
    try:
        for name, table in tables.items():
            con.register(name, table)
        return con.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            con.unregister(name)


def mask(table: pa.Table, condition: str) -> np.ndarray:
    """Where a condition is true; NULL is not true."""
    values = evaluate(table, [f"coalesce({condition}, false)"]).column(0)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
