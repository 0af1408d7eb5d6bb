"""Equalities become equality classes.

    a.k = b.k AND b.k = c.k      ->   one class {a.k, b.k, c.k}
    a.k = b.k AND b.j = c.j      ->   two classes
    a.i = b.i AND b.i = c.x      ->   two, if a.i and b.i are compared as bigint but b.i and c.x as double

Invariant: an equality is transitive only within one type, so a class has one type, in which Spark compares all of it.
An alias that stands in a class with two expressions gets a filter that equates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from watersmeet.plan.model import KeyClass, Plan
from watersmeet.plan.options import Given
from watersmeet.plan.types import Types, kind_of
from watersmeet.query.expr import Expr, binary, cast
from watersmeet.query.predicate import Condition, Equality, Predicate

_NUMBER = re.compile(r"(tinyint|smallint|int|bigint|float|double|decimal\(.*)$")
Node = tuple[str, str, str]
"""Alias, expression text, type of the comparison."""


def key_classes(plan: Plan, given: Given) -> Plan:
    """Find the classes, in a tree those of every join; equalities that no code can decide become plain conditions."""
    if not plan.parts:
        predicates, classes, filters = classify(plan.join.predicates, given.types)
        join = replace(plan.join, predicates=tuple(predicates), filters=(*plan.join.filters, *filters))
        return replace(plan, join=join, classes=tuple(classes))
    found: list[KeyClass] = []
    parts = []
    for part in plan.parts:
        input_of = {alias: n for n, tree in enumerate(part.node.inputs) for alias in tree.aliases}
        predicates, classes, _ = classify(part.node.predicates, given.types, input_of)
        numbers = (len(found), len(found) + len(classes))
        parts.append(replace(part, predicates=tuple(predicates), classes=numbers))
        found += classes
    join = replace(plan.join, predicates=tuple(p for part in parts for p in part.predicates))
    return replace(plan, join=join, classes=tuple(found), parts=tuple(parts))


def classify(
    given: Iterable[Predicate], types: Types, input_of: Mapping[str, int] | None = None
) -> tuple[list[Predicate], list[KeyClass], list[Expr]]:
    """The predicates as they are decided, their classes, and what equates two expressions of one alias.

    In a tree a class has one expression of each input of the join: what would equate two of one input stays a condition, since it
    decides about pairs, not about tuples of that input.
    """
    exprs: dict[Node, Expr] = {}
    equals: dict[Node, frozenset[Node]] = {}
    predicates: list[Predicate] = []
    for predicate in given:
        if not isinstance(predicate, Equality):
            predicates.append(predicate)
            continue
        common = types.common(types.type_of(predicate.left), types.type_of(predicate.right))
        if common is None or kind_of(common) is None:
            predicates.append(Condition(predicate.condition))
            continue
        pair = {(side.alias, side.text, common): side for side in (predicate.left, predicate.right)}
        left, right = (equals.get(node, frozenset((node,))) for node in pair)
        if input_of is not None and left != right and _inputs(left, input_of) & _inputs(right, input_of):
            predicates.append(Condition(predicate.condition))
            continue
        predicates.append(predicate)
        exprs |= pair
        equals |= dict.fromkeys(left | right, left | right)
    classes: list[KeyClass] = []
    filters: list[Expr] = []
    for nodes in dict.fromkeys(equals[node] for node in exprs):
        members: dict[str, Expr] = {}
        for node in (node for node in exprs if node in nodes):
            alias, _, type_ = node
            if members.setdefault(alias, exprs[node]) is not exprs[node]:
                filters.append(_equate(members[alias], exprs[node], type_))
        kind = kind_of(type_)
        assert kind is not None
        classes.append(KeyClass(type_, kind, members))
    return predicates, classes, filters


def _inputs(nodes: Iterable[Node], input_of: Mapping[str, int]) -> set[int]:
    """The inputs of a join that expressions are of."""
    return {input_of[alias] for alias, _, _ in nodes}


def _equate(left: Expr, right: Expr, kind: str) -> Expr:
    """Two expressions of one alias that have one value, compared in the class' type; numbers have the same names everywhere."""
    x, y = (cast(side, kind) if _NUMBER.match(kind) else side for side in (left, right))
    return binary(x, "=", y)
