"""Conditions and projections by a library, inside a unit or the local runtime.

DuckDB evaluates the DuckDB text of expressions over Arrow tables. It has no access to files or the network, and its
configuration is locked. Every time zone has a database of its own, whose setting it is; macros (`units.zone_macros`) turn local
times into instants as Java does.

Invariant: rows come back in the order in which they were given, instants as UTC. What the data makes impossible (an overflow, a
cast that fails) is an error that names the piece of the query. The zone of one evaluation never reaches another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.errors import DataError, OptionError
from watersmeet.query.session import UTC, Session
from watersmeet.units.zone_macros import macros

if TYPE_CHECKING:
    import duckdb

_LOCAL = threading.local()
_MOST_ZONES = 8
"""A thread keeps the databases of so many zones."""


def connection(timezone: str) -> duckdb.DuckDBPyConnection:
    """This thread's evaluator for a time zone; the library is loaded when a query first needs it."""
    known: OrderedDict[str, duckdb.DuckDBPyConnection] = _LOCAL.__dict__.setdefault("connections", OrderedDict())
    if timezone not in known:
        known[timezone] = _connect(timezone)
        if len(known) > _MOST_ZONES:
            known.popitem(last=False)[1].close()
    known.move_to_end(timezone)
    return known[timezone]


def _connect(timezone: str) -> duckdb.DuckDBPyConnection:
    import duckdb

    con = duckdb.connect(
        ":memory:", config={"threads": 1, "enable_external_access": False, "autoinstall_known_extensions": False}
    )
    try:
        con.execute(f"SET TimeZone = '{timezone}'")
    except duckdb.Error as error:
        con.close()
        raise OptionError(
            f"unknown time zone {timezone!r}: the evaluator has no rules for it; give a name such as 'Europe/Berlin', or an offset as '+02:00'"
        ) from error
    con.execute("SET preserve_insertion_order = true")
    con.execute("SET disabled_optimizers = 'expression_rewriter'")  # -x < 0 would become x > 0, which never overflows
    con.execute("SET arrow_large_buffer_size = true")  # texts with 64-bit offsets, as units have them
    for macro in macros(fixed=Session(timezone).is_fixed):
        con.execute(macro)
    con.execute("SET lock_configuration = true")
    return con


def knows(timezone: str) -> bool:
    """Whether the evaluator has rules for a zone of this very name.

    >>> knows("Europe/Berlin"), knows("europe/berlin"), knows("Mars/Olympus")
    (True, False, False)
    """
    try:
        found = connection(timezone).sql("SELECT current_setting('TimeZone')").fetchall()
    except OptionError:
        return False
    return bool(found == [(timezone,)])


def evaluate(table: pa.Table, expressions: Sequence[str], what: str, timezone: str) -> pa.Table:
    """The values of expressions over a table's rows in a session's time zone, as columns 0, 1, ...; `what` they are, for errors.

    >>> evaluate(pa.table({"x": [1, 2]}), ["x + 1"], "SELECT", "UTC").column(0).to_pylist()
    [2, 3]
    """
    items = ", ".join(f'({e}) AS "{i}"' for i, e in enumerate(expressions))
    return _answer(f"SELECT {items} FROM _rows", what, timezone, {"_rows": table})


def ask(sql: str, what: str, /, **tables: pa.Table) -> pa.Table:
    """The answer to a query over tables, by name, that no time zone touches; `what` it is for, for errors.

    >>> ask("SELECT sum(x) AS s FROM _t", "the sum", _t=pa.table({"x": [1.5, 2.0]})).to_pydict()
    {'s': [3.5]}
    """
    return _answer(sql, what, UTC, tables)


def _answer(sql: str, what: str, timezone: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    con = connection(timezone)
    import duckdb

    try:
        for name, table in tables.items():
            con.register(name, table)
        return in_utc(con.sql(sql).to_arrow_table())
    except duckdb.Error as error:
        if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
            _LOCAL.connections.pop(timezone)  # it answers nothing any more: the next one asks a new one
        raise DataError(
            f"{what} cannot be evaluated: {str(error).splitlines()[0]}; cast to a wider type, or leave such rows out with a condition on their stream"
        ) from error
    finally:
        with suppress(duckdb.Error):
            for name in tables:
                con.unregister(name)


def in_utc(table: pa.Table) -> pa.Table:
    """Instants are marked as UTC, whatever zone they came from; the values are the same."""
    fields = [f.with_type(_utc_type(f.type)) for f in table.schema]
    return table if fields == list(table.schema) else table.cast(pa.schema(fields))


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, UTC)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_utc_type(f.type)) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_utc_type(kind.value_type)))
    return kind


def mask(table: pa.Table, condition: str, what: str, timezone: str) -> np.ndarray:
    """Where a condition is true; NULL is not true."""
    values = evaluate(table, [f"coalesce({condition}, false)"], what, timezone).column(0)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
