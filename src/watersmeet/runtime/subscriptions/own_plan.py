"""Plans of registered queries that share nothing, and what their answers look like.

Adding a query and running it are apart: where it is added, in the driver, it is planned and every type is asked for, so that what is wrong with it is refused; the run itself is made where it is answered.

Invariant: `check_query` refuses what making the run would refuse, in the same words, and the columns that it finds are those of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from watersmeet.columns.spark_types import arrow_type, spark_name
from watersmeet.errors import UnsupportedError, WatersmeetError
from watersmeet.plan.build import build
from watersmeet.plan.finish import FinishPlan
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.plan.types import is_plain
from watersmeet.query.expr import Expr, column
from watersmeet.query.join import Join
from watersmeet.query.select import END, GROUP, Grouping, Output
from watersmeet.query.session import Session
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.bind import as_null, find_form, learn_types, name_apart
from watersmeet.runtime.arrow_types import DuckDBTypes
from watersmeet.runtime.in_process import LocalRun
from watersmeet.sql.parse import parse

TIME_NAME = "_wm_ts"
"""How the hidden columns of results are called by which their answers get a time."""
_OPTIONS = Options(units=1)
Columns = list[tuple[str, str]]
"""Names and Spark types."""


def parse_query(sql: str, specs: Mapping[str, StreamSpec], session: Session) -> Join:
    """A registered query, bound; one stream by itself is allowed."""
    return name_apart(parse(sql, specs, session, lone=True))


def plan_run(join: Join) -> LocalRun:
    """A run of a query, whose expressions are on the list; what cannot be planned is refused."""
    streams = {name: replace(spec, max_ahead_us=None) for name, spec in join.streams.items()}
    shown = show_times(_forgive(replace(join, streams=streams)))
    run = LocalRun(shown, {i.stream: empty_rows(join.streams[i.stream]) for i in join.inputs}, _OPTIONS)
    run.balance = run.sides = None
    return run


def find_columns(run: LocalRun) -> list[tuple[str, str]]:
    """Names and Spark types of a run's answers."""
    out = [(f.name, spark_name(f.type)) for f in run.rows_of([]).schema if not f.name.startswith(TIME_NAME)]
    for name, kind in out:
        if not is_plain(kind):
            raise UnsupportedError(
                f"SELECT {name}: a subscription answers in plain types, and this is {kind}; select its fields in the stream's source"
            )
    return out


def show_times(join: Join) -> Join:
    """The query with the event times of its rows' members among the columns, or with the ends of its groups, where these do not change it."""
    if join.group_window is not None and join.grouping is not None:
        hidden = Output(TIME_NAME, column(GROUP, END))
        return replace(join, finish=replace(join.grouping, select=(*join.grouping.select, hidden)))
    if join.finish is not None:
        return join
    seen = join.aliases if join.tree is None else join.tree.visible
    times = [Output(f"{TIME_NAME}{n}", column(alias, join.spec(alias).time)) for n, alias in enumerate(seen)]
    return replace(join, select=(*join.select, *times))


def check_query(join: Join, schemas: Mapping[str, pa.Schema]) -> Columns:
    """The columns of a query's answers; what cannot be planned or evaluated is refused. `schemas`: of the streams' columns of plain types."""
    try:
        found = _infer_columns(join, schemas)
    except WatersmeetError:
        found = None
    return find_columns(plan_run(join)) if found is None else found


class _RunTypes(DuckDBTypes):
    """Types of expressions as a run evaluates them: NULL where they fail."""

    def type_of(self, expr: Expr) -> str:
        if expr.is_column:
            return super().type_of(expr)
        if expr.settled:
            return expr.settled
        form, parameters = find_form(expr)
        return self.type_of_form(expr, form, len(parameters))


def _infer_columns(join: Join, schemas: Mapping[str, pa.Schema]) -> Columns | None:
    """The same columns from a plan and types alone, for a small part of the cost; None where only a run can tell."""
    types = _RunTypes({i.alias: schemas[i.stream] for i in join.inputs})
    learn_types((*join.filters, *(p.condition for p in join.predicates), *(o.expr for o in join.select)), types)
    streams = {name: replace(spec, max_ahead_us=None) for name, spec in join.streams.items()}
    plan = build(replace(join, streams=streams), types, _OPTIONS, "everything")
    kinds = {types.type_of(e) for e in (*join.filters, *plan.inside, *join.after)}
    if join.grouping is not None and plan.finish is not None:
        found = _infer_groups(plan, join.grouping, plan.finish)
    else:
        found = [(o.name, types.type_of(o.expr)) for o in join.select]
    return found if kinds <= {"boolean"} and found and all(is_plain(kind) for _, kind in found) else None


def _infer_groups(plan: Plan, grouping: Grouping, finish: FinishPlan) -> Columns:
    """The columns that are computed of groups; none if one of them cannot be computed of plain types."""
    kinds = {f"g{n}": kind for n, kind in enumerate(finish.columns[: grouping.keys])}
    if plan.join.group_window is not None:
        kinds[END] = kinds[f"g{plan.join.group_window.key}"]
    kinds |= {f"a{n}": value.type for n, value in enumerate(finish.values)}
    schema = [(name, arrow_type(kind)) for name, kind in kinds.items()]
    if any(kind is None for _, kind in schema):
        return []
    types = _RunTypes({GROUP: pa.schema(schema)})
    learn_types((*(o.expr for o in grouping.select), *([] if grouping.having is None else [grouping.having])), types)
    if grouping.having is not None and types.type_of(grouping.having) != "boolean":
        return []
    return [(o.name, types.type_of(o.expr)) for o in grouping.select]


def empty_rows(spec: StreamSpec) -> pa.Table:
    return pa.schema([(n, kind) for n, t in spec.schema.items() if (kind := arrow_type(t)) is not None]).empty_table()


def _forgive(part: Any) -> Any:
    """A query whose expressions are NULL where they fail."""
    if isinstance(part, Expr):
        return part if part.is_column else replace(part, duckdb_template=as_null(part.duckdb_template))
    if isinstance(part, tuple) and not hasattr(part, "_fields"):
        return tuple(_forgive(item) for item in part)
    if is_dataclass(part) and not isinstance(part, type) and type(part).__module__.startswith("watersmeet.query"):
        changed = {
            f.name: new for f in fields(part) if f.init and (new := _forgive(old := getattr(part, f.name))) is not old
        }
        return replace(part, **changed) if changed else part
    return part
