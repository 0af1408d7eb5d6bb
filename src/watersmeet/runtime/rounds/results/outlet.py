"""What leaves a query's last units, and how it becomes rows of the SELECT: in a worker where that can be, else by Spark.

Invariant: both ways make the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame

from watersmeet.operators.finish.project import Fields, final_fields, select_final
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.finish import why_spark_selects
from watersmeet.runtime.rounds.results.leaving import Select
from watersmeet.runtime.spark.plan import inside_of
from watersmeet.runtime.stream.finish import final


@dataclass(frozen=True)
class Outlet:
    """What leaves the last units: its columns, and what Spark makes of them."""

    fields: Fields
    select: Callable[[DataFrame], DataFrame]
    reads_tables: bool = False
    """Whether Spark joins what leaves with tables: a frame that has run keeps what it has read of them."""
    select_inside: Callable[[Sequence[str]], Select | None] = lambda kinds: None
    """By the types of the rows that Spark makes: what makes the same of them in a worker; None if only Spark can."""


def outlet_of(plan: Plan, frames: Mapping[str, DataFrame]) -> Outlet:
    """What leaves the units of a plan becomes its rows."""
    tables = {name: frame for name, frame in frames.items() if name not in plan.streams}
    return Outlet(
        final_fields(plan), partial(final, plan, tables), bool(plan.join.last_lookups), partial(select_inside, plan)
    )


def select_inside(plan: Plan, kinds: Sequence[str]) -> Select | None:
    """What makes the query's rows, which have these types, of what leaves the units, in a worker; None if only Spark can."""
    return None if why_spark_selects(plan, kinds, inside_of(plan.join.session)) else partial(select_final, plan)
