"""Conditions and projections by a library, inside a unit or the local runtime.

DuckDB evaluates the DuckDB text of expressions over Arrow tables. It has no access to files or the network, and its
configuration is locked.

Invariant: rows come back in the order in which they were given. What the data makes impossible (an overflow, a cast that
fails) is an error that names the piece of the query.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.errors import DataError

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


def evaluate(table: pa.Table, expressions: Sequence[str], what: str) -> pa.Table:
    """The values of expressions over a table's rows, as columns 0, 1, ...; `what` they are, for errors.

    >>> evaluate(pa.table({"x": [1, 2]}), ["x + 1"], "SELECT").column(0).to_pylist()
    [2, 3]
    """
    items = ", ".join(f'({e}) AS "{i}"' for i, e in enumerate(expressions))
    return ask(f"SELECT {items} FROM _rows", what, _rows=table)


def ask(sql: str, what: str, /, **tables: pa.Table) -> pa.Table:
    """The answer to a query over tables, by name; `what` it is for, for errors.

    >>> ask("SELECT sum(x) AS s FROM _t", "the sum", _t=pa.table({"x": [1.5, 2.0]})).to_pydict()
    {'s': [3.5]}
    """
    con = connection()
    import duckdb

    try:
        for name, table in tables.items():
            con.register(name, table)
        return con.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise DataError(
            f"{what} cannot be evaluated: {str(error).splitlines()[0]}; cast to a wider type, or leave such rows out with a condition on their stream"
        ) from error
    finally:
        for name in tables:
            con.unregister(name)


def mask(table: pa.Table, condition: str, what: str) -> np.ndarray:
    """Where a condition is true; NULL is not true."""
    values = evaluate(table, [f"coalesce({condition}, false)"], what).column(0)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
