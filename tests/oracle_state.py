"""The oracle of state: how many tuples of every alias a join tree may keep after a batch, by the definition of who can still be part of a result.

    outer, semi, anti, inner    a tuple that some partner can still come to; of a semi or anti join's left input only one that met nobody in its own batch
    as-of, left                 a tuple that has not left, and can
    as-of, right                one that a left tuple which waits or may come can be nearest to:

        backward    after the first of those left tuples, or the last of its key before it
        forward     not before the first of them

A tuple that can match nothing, for reasons of its own, is never kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.oracle_tree import Evaluation, Leaf, Node, Row, Tree, closure, hopeless, matches, mirrored


def may_keep(found: Evaluation, tree: Tree, n: int, *, meets_all: bool = True) -> dict[str, int]:
    """The most tuples, by alias, that may be in state after batch n, besides the dead ones that a store may still have.

    `meets_all`: a tuple meets all its partners at the unit that stores it.
    """
    if isinstance(tree, Leaf):
        return {}
    out = {**may_keep(found, tree.left, n, meets_all=meets_all), **may_keep(found, tree.right, n, meets_all=meets_all)}
    if isinstance(tree.left, Leaf):
        rows = [row for row in found.rows(tree.left) if row[1] <= n]
        if tree.asof is not None:
            rows = [row for row in rows if _waits(found, tree, row, n)]
        elif meets_all and tree.kind in ("semi", "anti"):
            rows = [row for row in rows if not _met_at_once(found, tree, row)]
        out[tree.left.alias] = sum(tree.asof is not None or _is_needed(found, tree, row, n) for row in rows)
    if isinstance(tree.right, Leaf):
        rows = [row for row in found.rows(tree.right) if row[1] <= n]
        if tree.asof is None:
            rows = [row for row in rows if _is_needed(found, mirrored(tree), row, n)]
        elif isinstance(tree.left, Leaf):
            rows = list(_nearest(found, tree, rows, n))
        out[tree.right.alias] = len(rows)
    return out


def _is_needed(found: Evaluation, node: Node, row: Row, n: int) -> bool:
    """Whether a partner can still come to a tuple of the left input."""
    return not hopeless(node, row[0]) and found.may_come(node, row[0], n)


def _met_at_once(found: Evaluation, node: Node, row: Row) -> bool:
    """Whether a left tuple had a partner in its own batch."""
    return any(batch <= row[1] and matches(node, {**row[0], **env}) for env, batch in found.rows(node.right))


def _waits(found: Evaluation, node: Node, row: Row, n: float) -> bool:
    """Whether a left tuple of an as-of join has not left, and is not known to leave never."""
    if hopeless(node, row[0]):
        return False
    assert node.asof is not None
    x, op, b = node.asof
    at, mark = row[0][x]["ts"], found.mark(b, n)
    if op in (">=", ">"):
        return mark <= at
    seen = [env[b]["ts"] for env, batch in found.rows(node.right) if batch <= n and matches(node, {**row[0], **env})]
    later = [ts for ts in seen if (ts >= at if op == "<=" else ts > at)]
    last = min(later, default=at + closure(node, frozenset((x, b)))[x, b])
    return mark <= last


def _nearest(found: Evaluation, node: Node, rows: list[Row], n: int) -> Iterator[Row]:
    """Right tuples of an as-of join of two aliases."""
    assert node.asof is not None
    x, op, b = node.asof
    waiting = [env[x]["ts"] for env, batch in found.rows(node.left) if batch <= n and _waits(found, node, (env, batch), n)]  # fmt: skip
    floor = min([*waiting, found.mark(x, n)])
    window = closure(node, frozenset((x, b)))
    keys = [value for aliases, value in node.keys if aliases == {b}]
    able = [row for row in rows if not hopeless(mirrored(node), row[0])]
    for env, batch in able:
        ts, key = env[b]["ts"], [value(env) for value in keys]
        if floor == -math.inf:
            yield env, batch
        elif ts < floor - window[b, x]:  # too old for every left tuple
            continue
        elif op in ("<=", "<"):
            yield env, batch
        else:
            last = floor if op == ">=" else floor - 1
            others = [o[b]["ts"] for o, _ in able if [value(o) for value in keys] == key and o[b]["ts"] <= last]
            if ts > last or ts == max(others):
                yield env, batch
