"""A left-deep pipeline: in which order aliases are joined, and what the results of a stage bring along.

    a, b  ->  a+b, c  ->  a+b+c, d          every stage is a join of two sides with units of its own

Invariant: a stage's results carry every wire column of their members that a later stage's keys, conditions or windows, or
the SELECT ask for, and nothing else; the event time of every member is always among them.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.4 (a query over more than two streams as a tree of binary joins).
"""

from __future__ import annotations

from watersmeet.plan.model import TIME, Plan


def join_order(plan: Plan) -> tuple[str, ...]:
    """The first alias of FROM, then always one that a key relates to those before, else a condition; ties: FROM."""
    order, left = [plan.aliases[0]], list(plan.aliases[1:])
    while left:
        best = min(left, key=lambda y: (_rank(plan, set(order), y), plan.aliases.index(y)))
        order.append(best)
        left.remove(best)
    return tuple(order)


def _rank(plan: Plan, bound: set[str], y: str) -> int:
    if any(y in c.members and bound & set(c.members) for c in plan.classes):
        return 0
    if any({r.left[0], r.right[0]} <= bound | {y} and y in (r.left[0], r.right[0]) for r in plan.residuals):
        return 1
    return 2 if any(y in p.aliases and p.aliases <= bound | {y} for p in plan.join.predicates) else 3


def reference(plan: Plan, aliases: tuple[str, ...], partners: tuple[str, ...]) -> str:
    """The member on whose time the partners' windows are tightest; ties: the first."""
    windows = plan.join.windows
    return min(aliases, key=lambda a: max((windows.hi(a, y) for y in partners), default=0))


def carried(plan: Plan, aliases: tuple[str, ...], later: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(alias, wire column) of what stages after this one need."""
    needed = {(a, TIME) for a in aliases}
    for number, members in enumerate(plan.classes):
        if set(members.members) & set(later):
            needed |= {(i.alias, i.keys[number]) for i in plan.inputs if i.alias in aliases and number in i.keys}
    for residual in plan.residuals:
        if {residual.left[0], residual.right[0]} & set(later):
            needed |= {residual.left, residual.right}
    refs = [ref for e in plan.inside if e.aliases & set(later) for ref in e.columns]
    for ref in (*refs, *plan.output):
        needed.add((ref.alias, plan.input(ref.alias).column(ref)))
    return tuple(
        (i.alias, c.name) for i in plan.inputs if i.alias in aliases for c in i.columns if (i.alias, c.name) in needed
    )
