"""What leaves the units becomes the query's rows: conditions that are Spark's, and the SELECT.

Invariant: every expression that Spark will evaluate here has passed its analyser when the query was bound (`spark_check`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.plan.catalogue import Catalogue
from watersmeet.plan.model import Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.select import Grouping
from watersmeet.units.leave import Fields, final_fields, result_fields


def selected(plan: Plan, rows: DataFrame) -> DataFrame:
    """Results as rows of the join's SELECT: conditions that are Spark's, and the projection."""
    select = list(plan.join.select)
    if not plan.after and all(o.expr.spark_template == "{0}" for o in select):
        typed = dict(zip(plan.output, as_typed(result_fields(plan)), strict=False))
        return rows.select(*(F.expr(typed[o.expr.columns[0]]).alias(o.name) for o in select))
    named, at = _named(plan, rows)
    for expr in plan.after:
        named = named.where(expr.spark(lambda ref: at[ref]))
    return named.select(*(F.expr(o.expr.spark(lambda ref: at[ref])).alias(o.name) for o in select))


def final(plan: Plan, rows: DataFrame) -> DataFrame:
    """What leaves the last units as the query's rows: results, distinct rows or groups."""
    if plan.finish is None and not isinstance(plan, Catalogue):
        return selected(plan, rows)
    fields = final_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    if isinstance(plan, Catalogue):
        return rows.select(*typed)
    if plan.join.grouping is not None:
        return of_groups(plan.join.grouping, rows.select(*typed))
    return rows.select(*(c.alias(o.name) for c, o in zip(typed, plan.join.select, strict=True)))


def aggregated(grouping: Grouping, rows: DataFrame) -> DataFrame:
    """Rows of a grouped join's SELECT, aggregated by Spark alone."""
    names = rows.columns
    aggregates = [
        F.expr(f"{a.function}({'*' if a.argument is None else names[a.argument]})").alias(f"a{n}")
        for n, a in enumerate(grouping.aggregates)
    ]
    return of_groups(grouping, rows.groupBy(*names[: grouping.keys]).agg(*aggregates))


def of_groups(grouping: Grouping, groups: DataFrame) -> DataFrame:
    """The SELECT of a grouping over its groups: g0, ..., a0, ..."""
    return groups.select(*(F.expr(o.expr.spark(lambda ref: ref.column)).alias(o.name) for o in grouping.select))


def as_typed(fields: Fields) -> list[str]:
    """Columns that have left Python, in the types that they had."""
    return [f"timestamp_micros({name})" if kind == "timestamp" else name for name, kind in fields]


def _named(plan: Plan, rows: DataFrame) -> tuple[DataFrame, dict[ColumnRef, str]]:
    fields = result_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    return rows.select(*typed), {ref: f"`o{n}`" for n, ref in enumerate(plan.output)}
