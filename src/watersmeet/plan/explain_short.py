"""A plan in four lines: windows, state, where it runs, fingerprint; and one line for every warning."""

from __future__ import annotations

from itertools import combinations

from watersmeet.plan.model import Plan
from watersmeet.plan.state_bound import bounds, warnings
from watersmeet.query.duration import show_us
from watersmeet.query.join import Join
from watersmeet.query.predicate import as_expr
from watersmeet.query.window import WindowGraph

MORE = 'explain("full") has the rest'


def explain_short(plan: Plan, runtime: str, routing: str) -> str:
    """The lines; `runtime` and `routing` are said by the full form, in its own words."""
    lines = [
        ("windows", show_windows(plan.join.windows)),
        *(("", text) for text in show_widened(plan.join)),
        ("state", show_state(plan)),
        *(("warning", text) for text in (*warnings(plan), *unproven(plan, runtime))),
        ("runs on", f"{runtime.split(' (')[0]}: {routing.split(';')[0]}; kernel {plan.kernel}"),
        ("placement", f"fingerprint {plan.fingerprint()}; {MORE}"),
    ]
    return "\n".join(f"{title:<11}{text}" for title, text in lines)


def unproven(plan: Plan, runtime: str) -> list[str]:
    """Expressions of a run without Spark that nobody has compared with Spark's answers."""
    join = plan.join
    exprs = (*join.filters, *map(as_expr, join.predicates), *(o.expr for o in join.select))
    found = dict.fromkeys(str(e) for e in exprs if not e.portable and e.spark_template != "{0}")
    if not found or not runtime.startswith("local"):
        return []
    return [f"not compared with Spark: {', '.join(found)}; DuckDB's answers may differ at the edges"]


def show_windows(graph: WindowGraph) -> str:
    """The windows that were written, in one line."""
    written = {frozenset((e.old, e.young)) for e in graph.edges}
    pairs = [(x, y) for x, y in combinations(graph.aliases, 2) if frozenset((x, y)) in written]
    if not pairs:
        return "none: unbounded"
    ways = graph.alternatives or (graph,)
    return ", or ".join(", ".join(way.show(x, y) for x, y in pairs) for way in ways)


def show_widened(join: Join) -> list[str]:
    """What is counted on the clock of the session's time zone."""
    zone = join.session.timezone
    return [
        f"wider by {show_us(us)} than {text}: clocks change in {zone}; the condition decides"
        for text, us in join.widened
    ]


def show_state(plan: Plan) -> str:
    """What is kept of every stream, in one line."""
    kept = list(bounds(plan))
    late = " and lateness" if any(b.kept_us is not None and b.late_us for b in kept) else ""
    span = f" of event time{late}" if any(b.kept_us is not None for b in kept) else ""
    groups = "; one row per group" if plan.join.grouping is not None else ""
    rows = "; rows that have left" if plan.join.distinct else ""
    return ", ".join(map(str, kept)) + span + groups + rows
