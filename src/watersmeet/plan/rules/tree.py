"""Join trees: one stage for every join, inputs first.

    a LEFT JOIN b ON .. LEFT JOIN c ON ..          stage 0: a, b        stage 1: a+b, c

A join has predicates, keys and windows of its own: an equality is no equality any more where one of its aliases may be NULL. So the plan's classes, residuals and
conditions lie in one list each, and a `Part` says which of them a stage has. What flows between stages brings along what later joins and the SELECT need.

Invariant: a side's time is that of an alias that is always present. A condition that an outer join decides about is evaluated where it joins, never after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import Part, Plan, Side, Stage
from watersmeet.plan.options import ForcedRouting, Given
from watersmeet.plan.rules.place_units import columns_carried, put_keys, route_two
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Band, Comparison, Equality
from watersmeet.query.tree import Leaf, Node, Tree
from watersmeet.routing.hypercube import Hypercube, grid


def cut_tree(plan: Plan, given: Given) -> Plan:
    """One part for every join of the tree; inner joins of more than two inputs are cut into joins of two."""
    tree = plan.join.tree
    if tree is None:
        return plan
    if given.options.shipping == "semijoin":
        raise OptionError("shipping='semijoin' goes with inner joins only: leave shipping='auto'")
    return replace(plan, parts=tuple(Part(node) for node in in_twos(tree).nodes))


def in_twos(tree: Tree) -> Tree:
    """The same tree, all of whose joins have two inputs."""
    if isinstance(tree, Leaf):
        return tree
    first, *others = (in_twos(part) for part in tree.inputs)
    if len(others) == 1:
        return replace(tree, inputs=(first, others[0]))
    left: Tree = first
    for right in others:
        mine = {*left.aliases, *right.aliases}
        news = tuple(p for p in tree.predicates if p.aliases <= mine and not _is_within(p.aliases, (left, right)))
        choices = tuple(tuple(e for e in choice if {e.old, e.young} <= mine) for choice in tree.choices)
        left = Node("inner", (left, right), news, choices=tuple(dict.fromkeys(choices)), required=tree.required & mine)
    return left


def _is_within(aliases: frozenset[str], inputs: Iterable[Tree]) -> bool:
    return any(aliases <= {*tree.aliases} for tree in inputs)


def own_conditions(node: Node, side: int) -> list[Expr]:
    """What a tuple of a preserved side must satisfy to have a partner: conditions on it alone, and values where it is compared."""
    mine = {*node.inputs[side].aliases}
    compared = [
        expr
        for predicate in node.predicates
        if isinstance(predicate, Equality | Comparison | Band)
        for expr in (predicate.left, predicate.right)
        if expr.aliases <= mine
    ]
    return [*(e for e in node.own if e.aliases <= mine), *map(is_not_null, dict.fromkeys(compared))]


def is_not_null(expr: Expr) -> Expr:
    """Where an expression has a value."""
    spark, duckdb = (f"({text}) IS NOT NULL" for text in (expr.spark_template, expr.duckdb_template))
    return replace(expr, text=f"{expr.text} IS NOT NULL", spark_template=spark, duckdb_template=duckdb, settled="")


def is_of_two_streams(plan: Plan) -> bool:
    """Whether a tree is one outer, semi or anti join of two streams: sites can do that."""
    kinds = ("left", "full", "semi", "anti")
    return len(plan.parts) == 1 and len(plan.inputs) == 2 and plan.parts[0].node.kind in kinds and not plan.join.tables


def place_tree(plan: Plan, given: Given) -> Plan:
    """A stage for every part, with the routing of its join."""
    if not plan.parts or (plan.sites is not None and is_of_two_streams(plan)):
        return plan
    wanted = ForcedRouting.of(given.options.routing)
    if len(plan.parts) > 1 and wanted.name not in ("auto", "pipeline", "random"):
        raise OptionError(
            f"routing={wanted.name!r} joins two streams, and this query is a tree of joins: use routing='auto' or 'random'"
        )
    stages: list[Stage] = []
    for number, part in enumerate(plan.parts):
        sides = tuple(_side(plan, number, tree) for tree in part.node.inputs)
        routing = route_nearest(plan, sides) if part.node.nearest else route_two(plan.scope(part), sides, wanted)
        stages.append(Stage(sides, routing, part, _target(plan, number)))
    return replace(plan, stages=tuple(stages))


def route_nearest(plan: Plan, sides: tuple[Side, ...]) -> Hypercube:
    """The routing of an as-of join: a left tuple is at one unit, with all right tuples that have its keys."""
    shared = frozenset(sides[0].keys) & frozenset(sides[1].keys)
    return grid((shared, shared), plan.units_wanted, () if shared else (0,))


def _target(plan: Plan, number: int) -> tuple[int, int] | None:
    """The part that has this one's join as an input, and which input it is."""
    node = plan.parts[number].node
    places = (
        (n, side) for n, part in enumerate(plan.parts) for side, tree in enumerate(part.node.inputs) if tree is node
    )
    return next(places, None)


def _side(plan: Plan, number: int, tree: Tree) -> Side:
    """The side of a join that an alias or another join is."""
    part = plan.parts[number]
    own = range(*part.classes)
    if isinstance(tree, Leaf):
        return Side((tree.alias,), tree.alias, {c: k for c, k in plan.by_alias[tree.alias].keys.items() if c in own})
    name, order = part.node.first_present(part.node.inputs.index(tree))
    either = order if len(order) > 1 else ()
    aliases = (name, *tree.visible) if either else tree.visible
    return put_keys(plan, Side(aliases, name, {}, _list_columns(plan, tree), f"@{number}", either), tree.visible, own)


def _list_columns(plan: Plan, tree: Node) -> tuple[tuple[str, str], ...]:
    """(alias, wire column) of what later joins, and the SELECT, need of an input that is a join."""
    below = {id(node) for node in tree.nodes}
    later = [part for part in plan.parts if id(part.node) not in below]
    return columns_carried(
        plan,
        tree.visible,
        [c for part in later for c in range(*part.classes)],
        [r for part in later for r in plan.residuals[slice(*part.residuals)]],
        [e for part in later for e in (*plan.inside[slice(*part.inside)], *part.node.own)],
    )
