"""What leaves a unit that joins, if the query has a second stage.

    DISTINCT, inside     projected rows with their buckets, each once          p0 ... _ts
    DISTINCT, outside    results with their buckets, for Spark to project      o0 ... _ts
    GROUP BY, inside     the local view of the batch                           g0 ... v0 ...
    GROUP BY, outside    results, for Spark to project and aggregate           o0 ...

Invariant: one view per unit and batch, however many chunks the results come in.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.plan.catalogue import ANSWER_FIELDS, Catalogue
from watersmeet.plan.model import TIME, Plan
from watersmeet.units.blocks import fold
from watersmeet.units.deduplicator import first_of_each
from watersmeet.units.join_unit import ROWS_ONLY
from watersmeet.units.project import bucketed, projected
from watersmeet.units.views import merged, view


def leaving(plan: Plan, results: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables that leave a unit after a batch, from its tables of results."""
    if plan.finish is None:
        yield from results
    elif not plan.finish.inside:
        yield from (bucketed(plan, table, table) if plan.join.distinct else table for table in results)
    elif plan.join.distinct:
        rows = (first_of_each(bucketed(plan, projected(plan, t), t)) for t in results if t.num_rows)
        yield from fold(rows, lambda held: first_of_each(pa.concat_tables(held).combine_chunks()))
    else:
        views = (view(plan, projected(plan, t)) for t in results if t.num_rows)
        yield from fold(views, lambda held: merged(plan, held))


Fields = list[tuple[str, str]]
"""(name, Spark type) of columns."""


def result_fields(plan: Plan) -> Fields:
    """The columns of results, inside the units."""
    kinds = {i.alias: {c.name: c.type for c in i.columns} for i in plan.inputs}
    found = [(f"o{n}", kinds[r.alias][plan.input(r.alias).column(r)]) for n, r in enumerate(plan.output)]
    return found or [(ROWS_ONLY, "boolean")]


def leaving_fields(plan: Plan) -> Fields:
    """The columns of what leaves a unit that joins."""
    if plan.finish is None or not plan.finish.inside:
        return result_fields(plan) + ([(TIME, "bigint")] if plan.join.distinct else [])
    if plan.join.distinct:
        return [*projected_fields(plan), (TIME, "bigint")]
    partials = [(f"v{n}", p.type) for n, p in enumerate(plan.finish.partials)]
    return [*_key_fields(plan), *partials]


def final_fields(plan: Plan) -> Fields:
    """The columns of what leaves the last unit: a deduplicator or a merger, if the plan has them."""
    if isinstance(plan, Catalogue):
        return ANSWER_FIELDS
    if plan.finish is None:
        return result_fields(plan)
    if plan.join.distinct:
        return projected_fields(plan)
    return [*_key_fields(plan), *((f"a{n}", v.type) for n, v in enumerate(plan.finish.values))]


def projected_fields(plan: Plan) -> Fields:
    """The columns of projected rows."""
    assert plan.finish is not None
    return [(f"p{n}", kind) for n, kind in enumerate(plan.finish.columns)]


def _key_fields(plan: Plan) -> Fields:
    assert plan.finish is not None
    return [(f"g{n}", kind) for n, kind in enumerate(plan.finish.keys(plan.join))]
