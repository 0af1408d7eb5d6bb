"""Whether rows that break an expression can be set aside, and are.

    a condition, key or operand of one stream      the row is set aside where it enters: by Spark, whatever the expression
    a condition or column across streams           the combination is set aside at the unit that finds it: what units evaluate

Invariant: what is asked for and cannot be done is an error when the query is bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Given

_ASKED = "on_error='set aside'"


def set_aside(plan: Plan, given: Given) -> Plan:
    """Set broken rows aside, if that is asked for."""
    if given.options.on_error == "raise":
        return plan
    why = next(_find_reasons(plan, given), None)
    if why is not None:
        raise OptionError(f"{_ASKED}: {why}")
    return replace(plan, sets_aside=True)


def _find_reasons(plan: Plan, given: Given) -> Iterator[str]:
    """Why broken rows cannot be set aside, with the remedy."""
    if given.inside == "nothing":
        yield "only in ANSI mode does a value break an expression; set spark.sql.ansi.enabled to true, or leave it out"
    if plan.sites is not None:
        yield "sites send letters about rows before they are known to be whole; leave it out, or join without sites"
    if plan.join.tables:
        yield "not with wm.Table: what Spark looks up is out of its reach; look it up before the join, or leave it out"
    sparks = [*plan.after, *(o.expr for o in plan.join.select if not (o.expr.is_column or given.keeps_inside(o.expr)))]
    for expr in sparks:
        yield f"only Spark evaluates {expr}, after the join; make it a column of its stream, or write it with try_ functions before the join"
    if plan.finish is not None and not plan.finish.inside:
        yield f"Spark projects the rows of DISTINCT or GROUP BY ({plan.finish.why_outside}); leave it out"
