"""A plan in four lines: windows, state, where it runs, fingerprint; and one line for every warning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.plan.finish import bucket_us
from watersmeet.plan.model import Plan
from watersmeet.query.duration import show_us
from watersmeet.query.join import Join
from watersmeet.query.tree import Node
from watersmeet.query.window import UNBOUNDED, WindowGraph

MORE = 'explain("full") has the rest'


def explain_short(plan: Plan, runtime: str, routing: str) -> str:
    """The lines; `runtime` and `routing` are texts of the full form."""
    lines = [
        ("windows", show_windows(plan.join.windows)),
        *(("", text) for text in show_widened(plan.join)),
        *(("joins" if n == 0 else "", text) for n, text in enumerate(show_joins(plan))),
        *(("tables" if n == 0 else "", text) for n, text in enumerate(show_tables(plan))),
        *(("groups", text) for text in show_groups(plan.join)),
        ("state", show_state(plan)),
        *(("warning", text) for text in (*warnings(plan), *unproven(plan, runtime))),
        ("runs on", f"{runtime.split(' (')[0]}: {routing.split(';')[0]}; kernel {plan.kernel}"),
        ("placement", f"fingerprint {plan.fingerprint()}; {MORE}"),
    ]
    return "\n".join(f"{title:<11}{text}" for title, text in lines)


def unproven(plan: Plan, runtime: str) -> list[str]:
    """Expressions of a run without Spark that nobody has compared with Spark's answers."""
    join = plan.join
    exprs = (*join.filters, *(p.condition for p in join.predicates), *(o.expr for o in join.select))
    found = dict.fromkeys(str(e) for e in exprs if not (e.portable or e.is_column))
    if not found or not runtime.startswith("local"):
        return []
    return [f"not compared with Spark: {', '.join(found)}; DuckDB's answers may differ at the edges"]


def show_windows(graph: WindowGraph) -> str:
    """The windows that were written, in one line."""
    if not graph.written:
        return "none: unbounded"
    ways = graph.alternatives or (graph,)
    return ", or ".join(", ".join(way.show(x, y) for x, y in graph.written) for way in ways)


def show_widened(join: Join) -> list[str]:
    """What is counted on the clock of the session's time zone, or in numbers of seconds."""
    clocks = f"clocks change in {join.session.timezone}"
    return [
        f"wider by {show_us(us)} than {text}: {'numbers are not exact' if 'CAST(' in text else clocks}; the condition decides"
        for text, us in join.widened
    ]


def show_tables(plan: Plan) -> Iterator[str]:
    """Where each table is joined."""
    for source in plan.inputs:
        for lookup in source.lookups:
            yield f"{lookup}: joined to {source.alias} before its units, anew in every micro-batch; {lookup.alias}'s columns travel with {source.alias}"
    for lookup in plan.join.last_lookups:
        yield f"{lookup}: joined to results, with the table as it is in the micro-batch in which they leave"


_LEAVES = {"semi": "with its first partner", "anti": "without a partner"}


def show_joins(plan: Plan) -> Iterator[str]:
    """When tuples of outer, semi and anti joins leave, and what that costs."""
    for stage, part in ((stage, stage.part) for stage in plan.stages if stage.part is not None):
        node = part.node
        if node.nearest is not None:
            yield show_nearest(node)
            continue
        for number in node.preserved:
            side, other = stage.sides[number], stage.sides[1 - number]
            how = _LEAVES.get(node.kind, "without a partner, with NULLs,")
            waits = node.longest(number, side.either or (side.reference,))
            until = ", ".join(f"{z} is {show_us(max(us, 0))} past it" for z, us in waits.items())
            when = f"once {until}" if node.kind != "semi" else "at once"
            twice = "; kept twice, since its partners are found at several units" if stage.is_spread else ""
            yield f"{node.kind} {'+'.join(side.real_aliases)}, {'+'.join(other.real_aliases)}: {side.reference} leaves {how} {when}{twice}"
    yield from plan.join.notes


def show_nearest(node: Node) -> str:
    """What an as-of join takes, and when."""
    assert node.nearest is not None
    left, right = node.nearest.left, node.nearest.right
    which = f"the last {right} before it" if node.nearest.is_backward else f"the first {right} after it"
    when = f"{right} is past it" if node.nearest.is_backward else f"{right} is past that one"
    alone = "; without one, with NULLs" if node.preserved else ""
    return f"{node.kind} {left}, {right}: {left} leaves with {which}, once {when}{alone}"


def show_groups(join: Join) -> Iterator[str]:
    """When groups with a window leave."""
    window = join.group_window
    if window is not None:
        past = {z: f"{show_us(us)} " if us > 0 else "" for z, us in join.delays_of(window.alias).items()}
        until = ", ".join(f"{z} is {span}past its end" for z, span in past.items())
        having = "" if join.grouping is None or join.grouping.having is None else ", if HAVING holds"
        yield f"{window}: a group leaves{having} once {until}, and is forgotten"


def show_state(plan: Plan) -> str:
    """What is kept of every stream, in one line."""
    kept = list(bounds(plan))
    late = " and lateness" if any(b.kept_us is not None and b.late_us for b in kept) else ""
    span = f" of event time{late}" if any(b.kept_us is not None for b in kept) else ""
    groups = "; one row per group" if plan.join.grouping is not None else ""
    groups += " until it ends" if plan.join.group_window is not None else ""
    rows = "; rows that have left" if plan.join.distinct else ""
    return ", ".join(map(str, kept)) + span + groups + rows


ENDLESS = "state grows without end; add WINDOW or a condition on event time"


@dataclass(frozen=True)
class StateBound:
    """What is kept of one side of a stage."""

    name: str
    kept_us: int | None
    """Event time; None: full history."""
    late_us: int
    """Of the others' lateness, on top."""
    rows: int | None = None
    """Its last so many rows only."""

    @property
    def is_endless(self) -> bool:
        return self.kept_us is None and self.rows is None

    def __str__(self) -> str:
        """In one or two words.

        >>> str(StateBound("a", 1_000_000, 2_000_000)), str(StateBound("b", None, 0)), str(StateBound("c", 5_000_000, 0, rows=3))
        ('a 1 s + 2 s', 'b full history', 'c 3 rows, at most 5 s')
        """
        late = f" + {show_us(self.late_us)}" if self.late_us else ""
        span = "" if self.kept_us is None else show_us(self.kept_us) + late
        if self.rows is not None:
            return f"{self.name} {self.rows} rows" + (f", at most {span}" if span else "")
        return f"{self.name} {span or 'full history'}"


def bounds(plan: Plan) -> Iterator[StateBound]:
    """Every side of every stage."""
    for stage in plan.stages:
        for side in stage.sides:
            kept = plan.retention_us(stage, side)
            if kept >= UNBOUNDED and stage.part is not None and stage.part.node.nearest is not None:
                kept = 0  # of each key the last, and what is younger
            late = max((plan.join.spec(y).lateness_us for y in stage.partners(side)), default=0)
            rows = plan.by_alias[side.name].rows if not side.carried else None
            yield StateBound("+".join(side.real_aliases), None if kept >= UNBOUNDED else max(kept, 0), late, rows)


def warnings(plan: Plan) -> Iterator[str]:
    """What costs the user much, if it was not intended."""
    endless = ", ".join(bound.name for bound in bounds(plan) if bound.is_endless)
    if endless:
        yield f"no window bounds {endless}: {ENDLESS}"
    if plan.join.distinct and bucket_us(plan.join) is None:
        yield f"DISTINCT remembers every row that has left: {ENDLESS}"
    if plan.units > 1 and plan.sites is None and all(stage.routing.units == 1 for stage in plan.stages):
        yield "no key tells tuples apart: one unit does all the work"
