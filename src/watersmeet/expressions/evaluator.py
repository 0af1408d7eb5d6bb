"""Conditions and projections by a library, inside a unit or the local runtime.

DuckDB evaluates the DuckDB text of expressions over Arrow tables. It has no access to files or the network, and its
configuration is locked. Every time zone has a database of its own, whose setting it is. Macros turn local times into instants, with Java's
answers where the clock is set:

    overlap   01:30 comes twice      Java: the earlier, or the one with the offset at hand     ICU: the later
    gap       02:30 never comes      Java: 02:30 by the offset before, that is 03:30           ICU: the same

    wm_instant(l)            the instant of a local time: CAST(timestamp_ntz AS timestamp)
    wm_resolve(l, near)      the same; where there are two, the one whose offset is that of the instant `near`
    wm_shift(t, days, us)    t + INTERVAL: days in local time, then microseconds
    wm_trunc(unit, t)        date_trunc by minutes, hours and days in local time
    wm_start(unit, t)        date_trunc by weeks and more
    wm_apart(y, x)           y - x in microseconds, of their local times
    wm_upper, wm_lower       by Unicode's full mapping: a letter may become several

Expressions name these macros whatever the zone; with a fixed offset they are plain arithmetic.

Invariant: rows come back in the order in which they were given, instants as UTC. What the data makes impossible (an overflow, a
cast that fails) is an error that names the piece of the query. The zone of one evaluation never reaches another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import mark_utc
from watersmeet.errors import DataError, OptionError
from watersmeet.expressions.schema import find_schema
from watersmeet.query.session import UTC, Session

if TYPE_CHECKING:
    import duckdb


_DAY_US = 86_400_000_000
_FIXED = (
    "wm_instant(l) AS CAST(l AS TIMESTAMPTZ)",
    f"wm_shift(t, days, us) AS t + to_microseconds(days * {_DAY_US} + us)",
    "wm_trunc(unit, t) AS date_trunc(unit, t)",
    "wm_start(unit, t) AS date_trunc(unit, t)",
    "wm_apart(y, x) AS epoch_us(y) - epoch_us(x)",
)
_CHANGING = (
    "wm_by_offset(l, near) AS make_timestamptz(epoch_us(l) - epoch_us(CAST(near AS TIMESTAMP)) + epoch_us(near))",
    # By the offset of a day before it is the earlier of two, if that is what the clock shows. Otherwise ICU answers as Java does.
    f"""wm_instant(l) AS CASE
        WHEN CAST(wm_by_offset(l, CAST(l AS TIMESTAMPTZ) - to_microseconds({_DAY_US})) AS TIMESTAMP) = l
        THEN wm_by_offset(l, CAST(l AS TIMESTAMPTZ) - to_microseconds({_DAY_US}))
        ELSE CAST(l AS TIMESTAMPTZ) END""",
    """wm_resolve(l, near) AS CASE
        WHEN CAST(wm_by_offset(l, near) AS TIMESTAMP) = l THEN wm_by_offset(l, near) ELSE wm_instant(l) END""",
    f"wm_shift(t, days, us) AS wm_resolve(CAST(t AS TIMESTAMP) + to_microseconds(days * {_DAY_US}), t) + to_microseconds(us)",
    "wm_trunc(unit, t) AS wm_resolve(date_trunc(unit, CAST(t AS TIMESTAMP)), t)",
    "wm_start(unit, t) AS wm_instant(date_trunc(unit, CAST(t AS TIMESTAMP)))",
    "wm_apart(y, x) AS epoch_us(CAST(y AS TIMESTAMP)) - epoch_us(CAST(x AS TIMESTAMP))",
)
_LOCAL = threading.local()
ROWS = "_rows"
"""The name under which expressions are evaluated over rows."""
_OWN: Mapping[str, str] = {}
"""Columns that users know by the names that they have."""
_MOST_SHOWN = 300
"""Characters of a row in an error."""
_NOTHING: dict[tuple[pa.Schema, str, str], pa.Table] = {}
"""What expressions over no rows have for values."""
_MOST_EMPTY, _MOST_REMEMBERED = 4_096, 4_000
"""So many of them are remembered, of texts of so many characters."""
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
    # -x < 0 would become x > 0, which never overflows; and of two equal parts inside TRY one would be computed before it, and its error not be caught
    con.execute("SET disabled_optimizers = 'expression_rewriter,common_subexpressions'")
    con.execute("SET arrow_large_buffer_size = true")  # texts with 64-bit offsets, as units have them
    for name, change in (("wm_upper", str.upper), ("wm_lower", str.lower)):
        con.create_function(name, partial(_change_case, change), ["VARCHAR"], "VARCHAR", type="arrow")
    for macro in _FIXED if Session(timezone).is_fixed else _CHANGING:
        con.execute(f"CREATE MACRO {macro}")
    con.execute("SET lock_configuration = true")
    return con


def _change_case(change: Callable[[str], str], texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Upper or lower case by Unicode's full mapping, as Spark has it: 'ß' becomes 'SS'. Of ASCII texts Arrow makes it.

    >>> _change_case(str.upper, pa.array(["straße", None])).to_pylist()
    ['STRASSE', None]
    """
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if pc.all(pc.string_is_ascii(whole), min_count=0).as_py():
        return pc.ascii_upper(whole) if change is str.upper else pc.ascii_lower(whole)
    return pa.array([None if text is None else change(text) for text in whole.to_pylist()], whole.type)


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


def quote(name: str) -> str:
    """A column's name in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def evaluate(
    table: pa.Table, expressions: Sequence[str], what: str, timezone: str, names: Mapping[str, str] = _OWN
) -> pa.Table:
    """The values of expressions over a table's rows in a session's time zone, as columns 0, 1, ...; `what` they are, and what users call the table's columns, for errors.

    >>> evaluate(pa.table({"x": [1, 2]}), ["x + 1"], "SELECT", "UTC").column(0).to_pylist()
    [2, 3]
    """
    items = ", ".join(f'({e}) AS "{i}"' for i, e in enumerate(expressions))
    if not table.num_rows and len(items) <= _MOST_REMEMBERED:
        return _evaluate_nothing(table.schema, items, what, timezone)
    return _answer(f"SELECT {items} FROM {ROWS}", what, timezone, {ROWS: table}, names)


def _evaluate_nothing(schema: pa.Schema, items: str, what: str, timezone: str) -> pa.Table:
    """The values over no rows, which are types alone: of a text over one schema they are asked for once. An error is not remembered."""
    key = schema, items, timezone
    found = _NOTHING.get(key)
    if found is None:
        types = _find_schema(schema, items, timezone)
        rows = {ROWS: schema.empty_table()}
        found = _answer(f"SELECT {items} FROM {ROWS}", what, timezone, rows) if types is None else types.empty_table()
        if len(_NOTHING) >= _MOST_EMPTY:
            _NOTHING.clear()
        _NOTHING[key] = found
    return found


def _find_schema(schema: pa.Schema, items: str, timezone: str) -> pa.Schema | None:
    """The types alone, if they are known without an evaluation."""
    con = connection(timezone)
    import duckdb

    try:
        return find_schema(con, schema, items)
    except duckdb.Error:
        _LOCAL.connections.pop(timezone)  # it answers nothing any more: the next one asks a new one
        return None


def ask(sql: str, what: str, /, **tables: pa.Table) -> pa.Table:
    """The answer to a query over tables, by name, that no time zone touches; `what` it is for, for errors.

    >>> ask("SELECT sum(x) AS s FROM _t", "the sum", _t=pa.table({"x": [1.5, 2.0]})).to_pydict()
    {'s': [3.5]}
    """
    return _answer(sql, what, UTC, tables)


def match(left: pa.Table, right: pa.Table, condition: str, what: str, timezone: str) -> tuple[pa.Array, pa.Array]:
    """The row numbers of a left outer join of `r` and `t`, in their order; NULL where a left row has no partner.

    >>> found = match(pa.table({"k": [1, 2]}), pa.table({"k": [2, 2]}), "r.k = t.k", "ON", "UTC")
    >>> [side.to_pylist() for side in found]
    [[0, 1, 1], [None, 0, 1]]
    """
    sides = {
        name: table.append_column("_number", pa.array(np.arange(table.num_rows)))
        for name, table in (("_left", left), ("_right", right))
    }
    sql = f"SELECT r._number, t._number FROM _left r LEFT JOIN _right t ON {condition} ORDER BY 1, 2"
    found = _answer(sql, what, timezone, sides)
    return found.column(0).combine_chunks(), found.column(1).combine_chunks()


def _answer(
    sql: str, what: str, timezone: str, tables: Mapping[str, pa.Table], names: Mapping[str, str] = _OWN
) -> pa.Table:
    con = connection(timezone)
    import duckdb

    try:
        for name, table in tables.items():
            con.register(name, table)
        return mark_utc(con.sql(sql).to_arrow_table())
    except duckdb.Error as error:
        sample = ""
        if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
            _LOCAL.connections.pop(timezone)  # it answers nothing any more: the next one asks a new one
        elif ROWS in tables:
            culprit = _find_culprit(con, sql, tables[ROWS])
            sample = f" for the row {show_row(tables[ROWS], culprit, names)}"
        raise DataError(
            f"{what} cannot be evaluated{sample}: {str(error).splitlines()[0]}; cast to a wider type, or leave such rows out with a condition on their stream"
        ) from error
    finally:
        with suppress(duckdb.Error):
            for name in tables:
                con.unregister(name)


def attempt(table: pa.Table, expression: str, timezone: str) -> pa.ChunkedArray | None:
    """The values of an expression, or of the first of several; None if one has none for some row. Nobody looks for that row.

    >>> attempt(pa.table({"s": ["1"]}), "CAST(s AS INTEGER)", "UTC").to_pylist()
    [1]
    >>> attempt(pa.table({"s": ["1", "x"]}), "CAST(s AS INTEGER)", "UTC")
    """
    con = connection(timezone)
    import duckdb

    try:
        con.register(ROWS, table)
        return con.sql(f"SELECT {expression} FROM {ROWS}").to_arrow_table().column(0)
    except duckdb.Error as error:
        if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
            _LOCAL.connections.pop(timezone)  # it answers nothing any more: the next one asks a new one
        return None
    finally:
        with suppress(duckdb.Error):
            con.unregister(ROWS)


def _find_culprit(con: duckdb.DuckDBPyConnection, sql: str, table: pa.Table) -> int:
    """The first row for which a query over rows has no answer: some are asked together, and halved."""
    import duckdb

    first, count = 0, table.num_rows
    while count > 1:
        half = count // 2
        try:
            con.register(ROWS, table.slice(first, half))
            con.sql(sql).to_arrow_table()
            first, count = first + half, count - half
        except duckdb.Error:
            count = half
    return first


def show_row(table: pa.Table, number: int, names: Mapping[str, str] = _OWN) -> str:
    """A row of a table, cut where it is long.

    >>> show_row(pa.table({"x": [1, 2], "s": ["a", "b" * 500]}), 0)
    '{x: 1, s: a}'
    """
    values = {names.get(n, n): _show(table.column(n)[number]) for n in table.column_names if table.num_rows}
    text = "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def _show(value: pa.Scalar) -> object:
    """A value for an error; instants that Python does not know as numbers."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.cast(pa.int64()).as_py()


def mask(table: pa.Table, condition: str, what: str, timezone: str, names: Mapping[str, str] = _OWN) -> np.ndarray:
    """Where a condition is true; NULL is not true."""
    values = evaluate(table, [f"coalesce({condition}, false)"], what, timezone, names).column(0)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
