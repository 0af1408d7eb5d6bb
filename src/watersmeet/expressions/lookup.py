"""Rows looked up in tables, in process: the join with a table as an outer join of rows, by DuckDB, with the table's columns beside theirs.

Invariant: rows come back in the order in which they were given; every row comes at least once, whether the table has a partner or not, so that event time
can be told from all of them. A row that is set aside, without an event time or too far ahead, is looked up nowhere and comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions.evaluator import mask, match, quote
from watersmeet.query.expr import ColumnRef
from watersmeet.query.join import Join
from watersmeet.query.stream import COPY
from watersmeet.query.table import Lookup

_USABLE = "_usable"


def schemas_by_alias(join: Join, named: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The schemas of a query's aliases, by those of streams and tables by name."""
    own = {i.alias: widen_schema(named[i.stream], i.lookups, named) for i in join.inputs}
    return own | {lookup.alias: named[lookup.table] for lookup in join.last_lookups}


def widen_schema(schema: pa.Schema, lookups: Sequence[Lookup], tables: Mapping[str, pa.Schema]) -> pa.Schema:
    """The schema of rows after lookups."""
    for lookup in lookups:
        schema = schema.append(pa.field(lookup.flag, pa.bool_()))
        for field in tables[lookup.table]:
            schema = schema.append(field.with_name(lookup.column(field.name)))
    return schema


def look_up(
    rows: pa.Table, lookups: Sequence[Lookup], tables: Mapping[str, pa.Table], usable: np.ndarray, timezone: str
) -> pa.Table:
    """Rows with what tables say of those that are `usable`, and which of them were one row before."""
    rows = rows.append_column(COPY, pa.array(np.arange(rows.num_rows))).append_column(_USABLE, pa.array(usable))
    for lookup in lookups:
        rows = _look_up_one(rows, lookup, tables[lookup.table], lambda ref: ref.column, f'r."{_USABLE}"', timezone)
        found = pc.or_(rows.column(lookup.flag), pc.invert(rows.column(_USABLE)))
        rows = rows.set_column(rows.column_names.index(lookup.flag), lookup.flag, found)
    return rows.drop_columns([_USABLE])


def look_up_results(
    rows: pa.Table, join: Join, tables: Mapping[str, pa.Table], at: Mapping[ColumnRef, str]
) -> tuple[pa.Table, dict[ColumnRef, str]]:
    """Results with what tables say of them, less those that must be found in one and are not; and where all columns are, as `at` says of theirs."""
    at = dict(at)
    for lookup in join.last_lookups:
        at.update({ColumnRef(lookup.alias, name): lookup.column(name) for name in lookup.schema})
        rows = _look_up_one(rows, lookup, tables[lookup.table], at.__getitem__, "true", join.session.timezone)
        if lookup.kind == "inner":
            rows = rows.filter(rows.column(lookup.flag))
    for condition in join.last_conditions:
        holds = mask(rows, condition.duckdb(lambda ref: quote(at[ref])), f"{condition}", join.session.timezone)
        rows = rows.filter(pa.array(holds))
    return rows, at


def _look_up_one(
    rows: pa.Table, lookup: Lookup, table: pa.Table, at: Callable[[ColumnRef], str], where: str, timezone: str
) -> pa.Table:
    """Rows, outer joined with one table; `at` says how a column is called afterwards."""
    table = table.rename_columns([lookup.column(name) for name in table.column_names])

    def name(ref: ColumnRef) -> str:
        return f"{'t' if at(ref) in table.column_names else 'r'}.{quote(at(ref))}"

    conditions = " AND ".join([where, *(f"({e.duckdb(name)})" for e in lookup.on)])
    used = [c for c in rows.column_names if quote(c) in conditions] or rows.column_names[:1]
    left, right = match(rows.select(used), table, conditions, f"ON of table {lookup.alias}", timezone)
    rows = rows.take(left).append_column(lookup.flag, pc.is_valid(right))
    for column, values in zip(table.column_names, table.columns, strict=True):
        rows = rows.append_column(column, values.take(right))
    return rows
