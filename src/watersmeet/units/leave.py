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

from watersmeet.plan.model import Plan
from watersmeet.units.deduplicator import first_of_each
from watersmeet.units.project import bucketed, projected
from watersmeet.units.views import merged, view


def leaving(plan: Plan, results: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables that leave a unit after a batch, from its tables of results."""
    if plan.finish is None:
        yield from results
    elif not plan.finish.inside:
        yield from (bucketed(plan, table, table) if plan.join.distinct else table for table in results)
    elif plan.join.distinct:
        rows = [first_of_each(bucketed(plan, projected(plan, t), t)) for t in results if t.num_rows]
        if rows:
            yield first_of_each(pa.concat_tables(rows).combine_chunks())
    else:
        views = [view(plan, projected(plan, t)) for t in results if t.num_rows]
        if views:
            yield views[0] if len(views) == 1 else merged(plan, views)
