"""Who projects the rows that DISTINCT and GROUP BY see, and what local views hold.

    all conditions decided in the units, every expression portable, types that DuckDB groups as Spark does
        -> inside: units ship distinct rows or views, a fraction of their results
    else
        -> Spark projects whole results after the join; the rest is the same

Invariant: the choice changes what is shipped, never the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from watersmeet.errors import QueryError
from watersmeet.plan.finish import FinishPlan, Partial, PartialFunction, Value
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Given, Inside
from watersmeet.plan.types import is_plain
from watersmeet.query.select import Aggregate, Output, result_type


def finish(plan: Plan, given: Given) -> Plan:
    """Plan the second stage, if the query has one."""
    types, allowed = given.types, given.inside
    if plan.join.finish is None:
        return plan
    columns = tuple(types.type_of(o.expr) for o in plan.join.select)
    if plan.join.grouping is not None and allowed == "everything":
        _check_plain(plan, columns)
    partials: list[Partial] = []
    aggregates = plan.join.grouping.aggregates if plan.join.grouping is not None else ()
    values = [_value(a, columns, partials, allowed) for a in aggregates]
    why = _why_outside(plan, columns, allowed)
    made = FinishPlan(columns, not why, plan.units_wanted, why, tuple(partials), tuple(values))
    return replace(plan, finish=made)


def _check_plain(plan: Plan, columns: tuple[str, ...]) -> None:
    """Without Spark only plain types are grouped and aggregated."""
    for output, kind in zip(plan.join.select, columns, strict=True):
        if not is_plain(kind):
            raise QueryError(
                f"{output.expr} is {kind}: groups and aggregates in process take plain types only; cast it"
            )


def _why_outside(plan: Plan, columns: tuple[str, ...], allowed: Inside) -> str:
    """Why units cannot project; '' if they can."""
    if allowed == "everything":
        return ""
    if plan.after:
        return _reason_of_after(plan)
    for output, kind in zip(plan.join.select, columns, strict=True):
        if _is_sparks(output, allowed):
            return f"only Spark evaluates {output.expr}"
        if not is_plain(kind):
            return f"{output.expr} is {kind}"
    grouping = plan.join.grouping
    if grouping is not None and allowed == "nothing":
        return "ANSI mode is off, and sums overflow silently"
    if grouping is not None:
        for a in grouping.aggregates:
            if a.argument is not None and result_type(a.function, columns[a.argument]) is None:
                return f"only Spark evaluates {a}"
    return ""


def why_spark_selects(plan: Plan, columns: Sequence[str], allowed: Inside) -> str:
    """Why only Spark can make the query's rows, which have these types, of what leaves the last units; '' if units can, with the same values."""
    if plan.after:
        return _reason_of_after(plan)
    if plan.join.last_lookups:
        return "results are joined with tables"
    if plan.join.distinct:
        return ""
    grouping = plan.join.grouping
    if grouping is not None:
        computed = next((e for e in grouping.expressions if not e.is_column), grouping.having)
        return "" if computed is None else f"Spark evaluates {computed} over groups"
    for output, kind in zip(plan.join.select, columns, strict=True):
        if _is_sparks(output, allowed) or not (output.expr.is_column or is_plain(kind)):
            return f"only Spark evaluates {output.expr}"
    return ""


def _reason_of_after(plan: Plan) -> str:
    return f"{plan.after[0]} is decided by Spark after the join"


def _is_sparks(output: Output, allowed: Inside) -> bool:
    """Whether Spark alone may evaluate a column of SELECT."""
    return not output.expr.is_column and (allowed == "nothing" or not output.expr.portable)


def _value(aggregate: Aggregate, columns: tuple[str, ...], partials: list[Partial], allowed: Inside) -> Value:
    """An aggregate over partials, which are added to those that are there already; Spark knows more types than we do."""
    argument = aggregate.argument
    kind = None if argument is None else columns[argument]
    made = result_type(aggregate.function, kind)
    if made is None and allowed == "everything":
        raise QueryError(f"{aggregate}: its argument is {kind}, which {aggregate.function} does not take; cast it")
    if made is None:
        return Value(aggregate, "", ())
    name = None if argument is None else f"p{argument}"
    names: list[str] = []
    for wanted in _partials(aggregate, name, kind or "", made, columns):
        if wanted not in partials:
            partials.append(wanted)
        names.append(f"v{partials.index(wanted)}")
    return Value(aggregate, made, tuple(names))


_LISTED: dict[str, PartialFunction] = {"count_distinct": "set", "collect_set": "set", "collect_list": "list"}
_EXTREMES: dict[str, PartialFunction] = {"first": "first", "min_by": "first", "last": "last", "max_by": "last"}


def _partials(aggregate: Aggregate, name: str | None, kind: str, made: str, columns: tuple[str, ...]) -> list[Partial]:
    """What an aggregate is made of."""
    function, by = aggregate.function, aggregate.by
    order, order_type = (None, "") if by is None else (f"p{by}", columns[by])
    if function in ("count", "sum", "min", "max"):
        return [Partial(function, name, made)]
    if function == "avg":
        summed = result_type("sum", kind) if kind.startswith("decimal") else "double"
        assert summed is not None
        return [Partial("sum", name, summed), Partial("count", name, "bigint")]
    if function in _LISTED:
        return [Partial(_LISTED[function], name, kind, order, order_type)]
    if function in _EXTREMES:
        needs: Literal["", "value", "by"] = (
            "by" if function.endswith("_by") else "value" if aggregate.skips_nulls else ""
        )
        return [Partial(_EXTREMES[function], name, kind, order, order_type, needs)]
    return [Partial("m2", name, "double"), Partial("count", name, "bigint"), Partial("sum", name, "double")]
