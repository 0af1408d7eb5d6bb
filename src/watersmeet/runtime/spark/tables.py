"""Tuples looked up in tables on Spark: a left join of the source with the static DataFrame, before wire rows are made.

Spark chooses between broadcasting the table and shuffling both, and reads the table anew in every micro-batch. The join is an outer join also where the query has
an inner one: a row without a partner moves its stream's watermark like any other, and is dropped afterwards, by the flag that no row of the table was found.

A row with several partners comes several times. Copies are told by a number that the row gets before, and lie in one task, since Spark's joins keep a left row in one task; they lie
together after one join, which goes through the left side row by row, and may lie mixed after two that shuffle. A table whose ON names another table could be shuffled by that one's
columns, so it is broadcast.

Invariant: every row of the source is there at least once, with its event time. A row that is set aside, without an event time or too far ahead, is looked up nowhere and comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.query.expr import ColumnRef
from watersmeet.query.join import Join
from watersmeet.query.stream import COPY
from watersmeet.query.table import Lookup
from watersmeet.runtime.spark.versions import in_session

_NUMBER = "CAST(rand() * 9007199254740992D AS BIGINT)"
"""Rows of one task that have the same by chance are one in the count of late rows; nothing else depends on it."""


def look_up(frame: DataFrame, lookups: Sequence[Lookup], tables: Mapping[str, DataFrame], usable: str) -> DataFrame:
    """A source's rows with what tables say of those that are `usable`, and the number of the row that they were."""
    if not lookups:
        return frame
    rows = frame.withColumn(COPY, F.expr(_NUMBER))
    for lookup in lookups:
        rows = _look_up_one(rows, lookup, tables[lookup.table], lambda ref: quote(ref.column), usable)
        rows = rows.withColumn(lookup.flag, F.expr(f"coalesce({quote(lookup.flag)}, NOT ({usable}))"))
    return rows


def look_up_results(
    rows: DataFrame, join: Join, tables: Mapping[str, DataFrame], at: Mapping[ColumnRef, str], usable: str
) -> tuple[DataFrame, dict[ColumnRef, str]]:
    """Results with what tables say of those that are `usable`, less those that must be found in one and are not; and where all columns are, as `at` says of theirs."""
    at = dict(at)
    for lookup in join.last_lookups:
        at.update({ColumnRef(lookup.alias, name): quote(lookup.column(name)) for name in lookup.schema})
        rows = _look_up_one(rows, lookup, in_session(tables[lookup.table], rows), at.__getitem__, usable)
        rows = rows.where(f"{quote(lookup.flag)} OR NOT ({usable})") if lookup.kind == "inner" else rows
    for condition in join.last_conditions:
        rows = rows.where(f"CASE WHEN {usable} THEN {condition.spark(at.__getitem__)} ELSE true END")
    return rows, at


def _look_up_one(
    rows: DataFrame, lookup: Lookup, table: DataFrame, at: Callable[[ColumnRef], str], where: str
) -> DataFrame:
    """Rows, outer joined with one table; `at` says how a column is written afterwards."""
    named = name_columns(lookup, table)
    on = " AND ".join([where, *(f"({e.spark(at)})" for e in lookup.on)])
    return rows.join(F.broadcast(named) if lookup.chained else named, F.expr(on), "left")


def name_columns(lookup: Lookup, table: DataFrame) -> DataFrame:
    """A table's rows as tuples have them: the flag, and its columns under their names in the tuple."""
    columns = [F.col(quote(name)).alias(lookup.column(name)) for name in table.columns]
    return table.select(F.lit(True).alias(lookup.flag), *columns)


def quote(name: str) -> str:
    """A column's name in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
