"""Whether an alias with tables takes a row of its stream, for the later aliases of the stream, which count only what no other alias has counted.

    FROM orders a JOIN users u ON u.id = a.user AND u.country = 'FR' JOIN orders b ON ... JOIN users v ON v.id = b.user

A late order counts under b if it has a partner in v, and under a, which comes first, none in u: b's rows have to know what u says. Spark asks by EXISTS, which
multiplies nothing. Tables that no condition relates to each other are asked one by one: no product of theirs is made.

Invariant: it is asked only where several aliases of one stream have tables, and decides about counts and nothing else. A left joined table whose ON names
another table counts as one that may have no partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from pyspark.sql import DataFrame

from watersmeet.plan.model import InputPlan
from watersmeet.plan.source_sql import enters
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.stream import TAKEN
from watersmeet.query.table import Lookup
from watersmeet.runtime.spark.tables import name_columns, quote
from watersmeet.runtime.spark.types import SPARK

_ROW = "_of_stream"
"""What the stream's rows are called: Spark would take a bare `user` inside EXISTS for its function of that name."""


def mark_taken(rows: DataFrame, other: InputPlan, tables: Mapping[str, DataFrame], usable: str) -> DataFrame:
    """A stream's rows with a column that says whether an alias of it takes them; those that are not usable are looked up nowhere."""
    views = {lookup.alias: f"t{n}" for n, lookup in enumerate(other.lookups)}
    groups = [g for g in group_tables(other) if any(_tables(e) & g for e in _conditions(other))]
    taken = " AND ".join(f"({_takes(_within(other, g), views)})" for g in groups)
    nowhere = enters(other, SPARK, _namer(frozenset(views), found="true"))
    text = f"CASE WHEN {_escape(usable)} THEN {taken or _escape(enters(other, SPARK, _namer()))} ELSE {_escape(nowhere)} END"
    named = {views[lookup.alias]: name_columns(lookup, tables[lookup.table]) for lookup in other.lookups}
    column = _escape(quote(TAKEN + other.alias))
    return rows.sparkSession.sql(f"SELECT {_ROW}.*, {text} AS {column} FROM {{rows}} AS {_ROW}", rows=rows, **named)


def group_tables(other: InputPlan) -> list[frozenset[str]]:
    """The tables of an alias, those together that some condition names together."""
    groups = [frozenset({lookup.alias}) for lookup in other.lookups]
    for expr in (*_conditions(other), *(e for lookup in other.lookups for e in lookup.on)):
        met = [g for g in groups if g & _tables(expr)]
        groups = [*(g for g in groups if g not in met), *([frozenset().union(*met)] if met else [])]
    return groups


def _conditions(other: InputPlan) -> Iterator[Expr]:
    """What decides whether an alias takes a row."""
    yield from other.filters
    yield from (c.expr for c in other.columns if c.name in other.required)


def _within(other: InputPlan, group: frozenset[str]) -> InputPlan:
    """An alias with some of its tables, and the conditions that name no others."""
    return replace(
        other,
        lookups=tuple(i for i in other.lookups if i.alias in group),
        filters=tuple(f for f in other.filters if _tables(f) <= group),
        columns=tuple(c for c in other.columns if _tables(c.expr) <= group),
    )


def _takes(other: InputPlan, views: Mapping[str, str]) -> str:
    """Whether some rows of the alias' tables let a row enter, or their want where a table is left joined."""
    lefts, ways = [i for i in other.lookups if i.kind == "left"], list[str]()
    for count in range(len(lefts) + 1):
        for missing in combinations(lefts, count):
            name = _namer(frozenset(i.alias for i in missing))
            there = [i for i in other.lookups if i not in missing]
            lonely = [f"NOT {_exists([i], 'true', views, name=_namer())}" for i in missing if not i.chained]
            ways.append(" AND ".join([*lonely, _exists(there, enters(other, SPARK, name), views, name)]))
    return " OR ".join(f"({way})" for way in ways)


def _exists(
    lookups: Sequence[Lookup], condition: str, views: Mapping[str, str], name: Callable[[ColumnRef], str]
) -> str:
    """Whether tables have rows that are partners of the row, and for which a condition holds."""
    conditions = _escape(" AND ".join([condition, *(f"({e.spark(name)})" for i in lookups for e in i.on)]))
    if not lookups:
        return conditions
    return f"EXISTS (SELECT 1 FROM {', '.join(f'{{{views[i.alias]}}}' for i in lookups)} WHERE {conditions})"


def _namer(missing: frozenset[str] = frozenset(), found: str = "false") -> Callable[[ColumnRef], str]:
    """How columns are written where some tables have no partner; `found` is what the flags of these say."""

    def name(ref: ColumnRef) -> str:
        if not ref.table:
            return f"{_ROW}.{quote(ref.column)}"
        if ref.table not in missing:
            return quote(ref.column)
        return found if ref.column == f"{ref.table}?" else "NULL"

    return name


def _tables(expr: Expr) -> frozenset[str]:
    return frozenset(ref.table for ref in expr.columns if ref.table)


def _escape(text: str) -> str:
    """A text that is formatted, as it was."""
    return text.replace("{", "{{").replace("}", "}}")
