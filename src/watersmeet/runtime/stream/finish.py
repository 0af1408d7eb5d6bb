"""What Spark does after the last stage: conditions that are its own, the SELECT, groups.

    GROUP BY                 joins --local views--> groupBy().agg() --> select         sink in update mode
    GROUP BY window()        units keep groups until they end --> where, select        sink in append mode
    static, of all kinds     Spark groups, and drops duplicates of (row, bucket)

Spark merges views as it aggregates rows: by the functions of `plan.finish`, cast to the types that its own aggregates have. Where units keep rows or groups, and only
Spark can project, `projected` has what lies between.

Invariant: what leaves depends on the rows and the state alone; Spark may run any task twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.operators.finish.project import Fields, final_fields, join_fields, result_fields
from watersmeet.plan.finish import FinishPlan, Value
from watersmeet.plan.model import Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.select import END, Grouping, GroupWindow
from watersmeet.runtime.spark.aggregates import aggregate_sql
from watersmeet.runtime.spark.tables import look_up_results
from watersmeet.runtime.spark.workers import METRICS
from watersmeet.runtime.stream.late import IS_LATE, mark, unless_late
from watersmeet.runtime.stream.projected import as_typed, keep_rows, project

Frames = Mapping[str, DataFrame]
"""DataFrames by the names of streams and tables."""


def keeps_inside(plan: Plan, *, streaming: bool) -> bool:
    """Whether units keep rows or groups themselves, as the last stage."""
    if not streaming or plan.finish is None or not plan.finish.inside:
        return False
    return plan.join.distinct or plan.join.group_window is not None


def ship_rows(plan: Plan, *, keeps: bool) -> Plan:
    """The plan whose units let whole results out, if it is Spark that aggregates, and it cannot do that over views."""
    if keeps or plan.join.grouping is None or plan.finish is None or plan.finish.is_mergeable:
        return plan
    return replace(plan, finish=replace(plan.finish, inside=False))


def last_fields(plan: Plan, *, keeps: bool) -> Fields:
    """The columns of what leaves the last stage."""
    return final_fields(plan) if keeps else join_fields(plan)


def finish_rows(
    plan: Plan, left: DataFrame, last: int, frames: Frames, *, keeps: bool, late: bool = False
) -> DataFrame:
    """The query's rows, from what has left the last stage, number `last`, metrics included; with `late` also what it drops. `frames` has the tables, by name."""
    wanted = f"{METRICS} IS NULL OR {IS_LATE}" if late else f"{METRICS} IS NULL"
    if plan.finish is None or keeps:
        return final(plan, frames, left.where(wanted), late=late)
    if left.isStreaming and (plan.join.distinct or plan.join.group_window is not None):
        return final(plan, frames, keep_rows(plan, left, last).where(wanted), late=late)
    rows = left.where(f"{METRICS} IS NULL")
    if plan.join.distinct:
        return final(plan, frames, project(plan, rows).drop(METRICS).dropDuplicates())
    assert plan.join.grouping is not None
    if plan.finish.inside:
        return _merge_views(plan, plan.finish, rows)
    return aggregate_rows(plan.join.grouping, select_rows(plan, frames, rows))


# ---------------------------------------------------------------- GROUP BY


def _merge_views(plan: Plan, finish: FinishPlan, views: DataFrame) -> DataFrame:
    """Local views, merged by Spark."""
    assert plan.join.grouping is not None
    fields = join_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    keys = [f"g{n}" for n in range(plan.join.grouping.keys)]
    merges = {f"v{n}": p.merge for n, p in enumerate(finish.partials)}
    aggregates = [F.expr(_value(value, merges)).alias(f"a{n}") for n, value in enumerate(finish.values)]
    groups = views.select(*typed).groupBy(*keys).agg(*aggregates)
    window = plan.join.group_window
    if window is not None:
        groups = groups.withColumn(END, F.expr(_end(window, dict(fields)[f"g{window.key}"])))
    return of_groups(plan.join.grouping, groups)


def _end(window: GroupWindow, kind: str) -> str:
    """The end of a window by its start: instants are shifted as such, whatever the clocks of the session's zone do."""
    start = f"g{window.key}"
    if kind == "timestamp":
        return f"timestamp_micros(unix_micros({start}) + {window.size_us}L)"
    return f"{start} + make_dt_interval(0, 0, 0, {window.size_us // 10**6}.{window.size_us % 10**6:06}BD)"


def _value(value: Value, merges: Mapping[str, str]) -> str:
    """An aggregate as a function of partials."""
    parts = [f"{merges[name]}({name})" for name in value.of]
    if value.aggregate.function == "count":
        return f"coalesce({parts[0]}, 0L)"
    if value.aggregate.function == "avg":
        return f"{parts[0]} / nullif({parts[1]}, 0L)"
    return f"CAST({parts[0]} AS {value.type})" if value.aggregate.function == "sum" else parts[0]


def select_rows(plan: Plan, frames: Frames, rows: DataFrame, *, late: bool = False) -> DataFrame:
    """Results as rows of the join's SELECT: conditions that are Spark's, tables that results are joined with, and the projection; with `late`, dropped rows are among them."""
    select = list(plan.join.select)
    if not plan.after and not plan.join.last_lookups and all(o.expr.spark_template == "{0}" for o in select):
        typed = dict(zip(plan.output, as_typed(result_fields(plan)), strict=False))
        return rows.select(*(F.expr(typed[o.expr.columns[0]]).alias(o.name) for o in select), *mark(late))
    named, at = _rename(plan, rows, late=late)
    for expr in plan.after:
        named = named.where(unless_late(expr.spark(lambda ref: at[ref]), late, "true"))
    if plan.join.last_lookups:
        named, at = look_up_results(named, plan.join, frames, at, f"{METRICS} IS NULL" if late else "true")
    texts = [(unless_late(o.expr.spark(lambda ref: at[ref]), late), o.name) for o in select]
    return named.select(*(F.expr(text).alias(name) for text, name in texts), *mark(late))


def final(plan: Plan, frames: Frames, rows: DataFrame, *, late: bool = False) -> DataFrame:
    """What leaves the last units as the query's rows: results, distinct rows or groups; with `late`, dropped rows are among them."""
    if plan.finish is None:
        return select_rows(plan, frames, rows, late=late)
    fields = final_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    if plan.join.grouping is not None:
        return of_groups(plan.join.grouping, rows.select(*typed, *([METRICS] if late else [])), late=late)
    return rows.select(*(c.alias(o.name) for c, o in zip(typed, plan.join.select, strict=True)), *mark(late))


def aggregate_rows(grouping: Grouping, rows: DataFrame) -> DataFrame:
    """Rows of a grouped join's SELECT, aggregated by Spark alone."""
    names = rows.columns
    aggregates = [F.expr(aggregate_sql(a, names.__getitem__)).alias(f"a{n}") for n, a in enumerate(grouping.aggregates)]
    keys, window = [F.col(name) for name in names[: grouping.keys]], grouping.window
    if window is None:
        return of_groups(grouping, rows.groupBy(*keys).agg(*aggregates))
    spans = [f"{us} microseconds" for us in (window.size_us, window.slide_us, window.start_us)]
    keys[window.key] = F.window(keys[window.key], *spans).alias("w")
    groups = (
        rows.groupBy(*keys)
        .agg(*aggregates)
        .select("*", F.expr("w.start").alias(names[window.key]), F.expr("w.end").alias(END))
    )
    return of_groups(grouping, groups)


def of_groups(grouping: Grouping, groups: DataFrame, *, late: bool = False) -> DataFrame:
    """The SELECT of a grouping over its groups, g0, ..., a0, ..., that satisfy its HAVING."""
    if grouping.having is not None:
        groups = groups.where(unless_late(grouping.having.spark(lambda ref: ref.column), late, "true"))
    texts = [(unless_late(o.expr.spark(lambda ref: ref.column), late), o.name) for o in grouping.select]
    return groups.select(*(F.expr(text).alias(name) for text, name in texts), *mark(late))


def _rename(plan: Plan, rows: DataFrame, *, late: bool) -> tuple[DataFrame, dict[ColumnRef, str]]:
    fields = result_fields(plan)
    typed = [F.expr(text).alias(name) for text, (name, _) in zip(as_typed(fields), fields, strict=True)]
    return rows.select(*typed, *([METRICS] if late else [])), {ref: f"`o{n}`" for n, ref in enumerate(plan.output)}
