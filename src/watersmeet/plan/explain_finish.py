"""The sections of explain about DISTINCT and GROUP BY: both phases, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.finish import FinishPlan, bucket_us, how_often
from watersmeet.plan.model import Plan
from watersmeet.query.duration import show_us
from watersmeet.query.select import Grouping


def finish_sections(plan: Plan) -> list[tuple[str, list[str]]]:
    """None, or one titled section."""
    if plan.finish is None:
        return []
    if plan.join.grouping is not None:
        return [("aggregate", list(_aggregate(plan, plan.finish, plan.join.grouping)))]
    return [("distinct", list(_distinct(plan, plan.finish)))]


def _distinct(plan: Plan, finish: FinishPlan) -> Iterator[str]:
    width = bucket_us(plan.join)
    lateness = max(s.lateness_us for s in plan.join.streams.values())
    yield f"a row leaves {how_often(width)}"
    yield _first_phase(finish, f"repeats dropped inside {plan.stages[-1].routing.units} units, per micro-batch")
    yield f"second phase: {finish.units} deduplicators, by hash of the row"
    if width is None:
        yield "state: WARNING every row that has left is kept, so state grows without end; add WINDOW or a condition on event time"
    else:
        late = f" plus {show_us(lateness)} of lateness" if lateness else ""
        yield f"state: rows of {show_us(width)} of event time{late}, until every stream's watermark has passed them"


def _aggregate(plan: Plan, finish: FinishPlan, grouping: Grouping) -> Iterator[str]:
    keys = ", ".join(str(o.expr) for o in plan.join.select[: grouping.keys])
    yield f"{', '.join(map(str, grouping.aggregates))} {f'by {keys}' if keys else 'of all results'}"
    yield _first_phase(
        finish, f"local views in {plan.stages[-1].routing.units} units, one row per group and micro-batch"
    )
    merger = f"Spark's groupBy() with dataframe(), {finish.units} mergers by hash of the group elsewhere"
    yield f"second phase: merged by {merger if finish.inside else 'Spark: groupBy() over the rows'}"
    yield "state: one row per group" + ("; groups never expire, so it grows with their number" if keys else "")


def _first_phase(finish: FinishPlan, inside: str) -> str:
    return f"first phase: {inside if finish.inside else f'none, whole results are shipped: {finish.why_outside}'}"
