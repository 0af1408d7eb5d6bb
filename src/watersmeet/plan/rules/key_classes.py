"""Equalities become equality classes.

    a.k = b.k AND b.k = c.k      ->   one class {a.k, b.k, c.k}
    a.k = b.k AND b.j = c.j      ->   two classes
    a.i = b.i AND b.i = c.x      ->   two, if a.i and b.i are compared as bigint but b.i and c.x as double

Invariant: an equality is transitive only within one type, so a class has one type, in which Spark compares all of it.
An alias that stands in a class with two expressions gets a filter that equates them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from watersmeet.plan.encoding import kind_of
from watersmeet.plan.model import KeyClass, Plan, Types
from watersmeet.query.expr import Expr, binary, cast
from watersmeet.query.predicate import Condition, Equality, Predicate

_NUMBER = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(.*)$")
Node = tuple[str, str, str]
"""Alias, expression text, type of the comparison."""


def key_classes(plan: Plan, types: Types) -> Plan:
    """Find the classes; equalities that no code can decide become plain conditions."""
    exprs: dict[Node, Expr] = {}
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parent[node] != node:
            node = parent[node]
        return node

    predicates: list[Predicate] = []
    for predicate in plan.join.predicates:
        if not isinstance(predicate, Equality):
            predicates.append(predicate)
            continue
        common = types.common(types.type_of(predicate.left), types.type_of(predicate.right))
        if common is None or kind_of(common) is None:
            predicates.append(Condition(predicate.condition))
            continue
        predicates.append(predicate)
        pair = [(side.alias, side.text, common) for side in (predicate.left, predicate.right)]
        for node, side in zip(pair, (predicate.left, predicate.right), strict=True):
            exprs[node] = side
            parent.setdefault(node, node)
        left, right = root(pair[0]), root(pair[1])
        parent[max(left, right)] = min(left, right)
    groups: dict[Node, list[Node]] = {}
    for node in exprs:
        groups.setdefault(root(node), []).append(node)
    classes, filters = [], list(plan.join.filters)
    for nodes in groups.values():
        members: dict[str, Expr] = {}
        for alias, _, _ in nodes:
            same = [exprs[n] for n in nodes if n[0] == alias]
            if alias not in members:
                filters += [_equated(same[0], other, nodes[0][2]) for other in same[1:]]
            members[alias] = same[0]
        kind = kind_of(nodes[0][2])
        assert kind is not None
        classes.append(KeyClass(nodes[0][2], kind, members))
    join = replace(plan.join, predicates=tuple(predicates), filters=tuple(filters))
    return replace(plan, join=join, classes=tuple(classes))


def _equated(left: Expr, right: Expr, kind: str) -> Expr:
    """Two expressions of one alias that have one value, compared in the class' type; numbers have the same names everywhere."""
    x, y = (cast(side, kind) if _NUMBER.match(kind) else side for side in (left, right))
    return binary(x, "=", y)
