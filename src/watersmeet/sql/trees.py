"""Binds join trees: FROM with outer, semi, anti and as-of joins, as SQL's join tree says.

    FROM --Joined--> simplify: an outer join becomes the join that it equals
                     flatten:  inner joins next to each other become one
                     place:    every condition to the join, or the alias, that it decides about

    condition of WHERE               through inner joins and preserved inputs down to its join or alias; what cannot go down filters results
    condition of ON, one input       preserved: decides whether a tuple can have a partner; other inputs: a filter
    condition of ON, both inputs     a predicate of the join; on event times it is also a bound, and the aliases must be present
    window item                      a bound of the join that brings its two aliases together; it holds if one of them is NULL-extended

Invariant: the tree means what the text means. A tree of inner joins alone is no tree: all conditions are those of one join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp

from watersmeet.errors import QueryError, UnsupportedError, WindowError
from watersmeet.query.tree import Kind, Leaf, Nearest, Node, Tree
from watersmeet.query.window import UNBOUNDED, Edge
from watersmeet.sql.expressions import show, to_expr
from watersmeet.sql.names import Scope, alias_of, aliases_of, ref_of
from watersmeet.sql.predicates import COMPARATORS, Bound, sort_conjuncts

_CALLED = {"left": "outer join", "full": "outer join", "anti": "anti join", "asof left": "as-of join"}
_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


@dataclass
class Joined:
    """Two or more inputs of FROM, each an alias or again a join, and the conditions between them; `written` is how the text spells the join."""

    kind: str
    inputs: list[Joined | str]
    conditions: list[Any] = field(default_factory=list)
    written: str = "JOIN"
    nearest: Nearest | None = None
    own: list[Any] = field(default_factory=list)

    @property
    def aliases(self) -> list[str]:
        return [alias for item in self.inputs for alias in aliases_in(item)]

    @property
    def visible(self) -> list[str]:
        shown = self.inputs[:1] if self.kind in ("semi", "anti") else self.inputs
        return [alias for item in shown for alias in visible_in(item)]


Item = Joined | str


def aliases_in(item: Item) -> list[str]:
    return [item] if isinstance(item, str) else item.aliases


def visible_in(item: Item) -> list[str]:
    return [item] if isinstance(item, str) else item.visible


def conditions_in(item: Item) -> Iterator[Any]:
    """The conditions of all joins."""
    if isinstance(item, Joined):
        yield from item.conditions
        for part in item.inputs:
            yield from conditions_in(part)


def has_outer(item: Item) -> bool:
    """Whether anything but inner joins is left."""
    return not isinstance(item, str) and (item.kind != "inner" or any(map(has_outer, item.inputs)))


def simplify(item: Joined, conditions: Sequence[Any], notes: list[str]) -> Joined:
    """The same joins under conditions that all results satisfy: NULL-extended rows that these reject need not be made."""
    kind, (first, *others) = item.kind, item.inputs
    if kind in ("left", "right", "full", "asof left"):
        gone = [rejects(conditions, visible_in(side)) for side in (first, others[0])]
        keeps_left = kind in ("left", "full", "asof left") and not gone[1]
        keeps_right = kind in ("right", "full") and not gone[0]
        kind = "full" if keeps_left and keeps_right else "left" if keeps_left else "right" if keeps_right else "inner"
        if item.kind == "asof left":
            kind = "asof left" if keeps_left else "asof"
        if kind != item.kind:
            now = {"inner": "an inner join", "asof": "an ASOF JOIN"}.get(kind, f"a {kind.upper()} JOIN")
            notes.append(f"{item.written} is {now}: WHERE or a later ON rejects its NULLs")
    if kind == "right":
        kind, first, others = "left", others[0], [first]
    above, here = list(conditions), item.conditions
    left_sees = [*above, *here] if kind in ("inner", "semi", "asof") else [] if kind == "full" else above
    right_sees = [*above, *here] if kind in ("inner", "asof") else [] if kind == "full" else here
    seen = [(first, left_sees), *((other, right_sees) for other in others)]
    inputs: list[Item] = [part if isinstance(part, str) else simplify(part, sees, notes) for part, sees in seen]
    return flatten(Joined(kind, inputs, list(here), item.written, item.nearest))


def flatten(join: Joined) -> Joined:
    """Inner joins next to each other as one."""
    if join.kind != "inner":
        return join
    inputs: list[Item] = []
    conditions: list[Any] = []
    for item in join.inputs:
        if isinstance(item, Joined) and item.kind == "inner":
            inputs += item.inputs
            conditions += item.conditions
        else:
            inputs.append(item)
    return Joined("inner", inputs, [*conditions, *join.conditions], join.written)


def rejects(conditions: Sequence[Any], gone: Sequence[str]) -> bool:
    """Whether conditions cannot all be true where all columns of some aliases are NULL."""
    return any(True not in truth(condition, frozenset(gone)) for condition in conditions)


Truths = frozenset[bool | None]
_ANY: Truths = frozenset((True, False, None))
_STRICT = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.ILike, exp.RegexpLike)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Abs, exp.Paren, exp.Cast, exp.Upper, exp.Lower)


def truth(node: Any, gone: frozenset[str]) -> Truths:
    """What a condition can be where all columns of some aliases are NULL.

    >>> from sqlglot import parse_one
    >>> gone = frozenset("b")
    >>> truth(parse_one("b.v > 3 AND a.v > 1"), gone) == {False, None}, truth(parse_one("b.v IS NULL OR b.v > a.v"), gone)
    (True, frozenset({True}))
    """
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        pairs = [(x, y) for x in truth(node.this, gone) for y in truth(node.expression, gone)]
        decisive = isinstance(node, exp.Or)
        return frozenset(_combine(x, y, decisive) for x, y in pairs)
    if isinstance(node, exp.Not):
        return frozenset(None if x is None else not x for x in truth(node.this, gone))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return frozenset((True,)) if is_null(node.this, gone) else frozenset((True, False))
    if isinstance(node, exp.Boolean):
        return frozenset((bool(node.this),))
    if isinstance(node, (exp.Between, exp.In, *_STRICT)) and is_null(node.this, gone):
        return frozenset((None,))
    if isinstance(node, _STRICT) and is_null(node.expression, gone):
        return frozenset((None,))
    if isinstance(node, exp.Between) and any(is_null(node.args[end], gone) for end in ("low", "high")):
        return frozenset((False, None))
    return frozenset((None,)) if is_null(node, gone) else _ANY


def _combine(x: bool | None, y: bool | None, decisive: bool) -> bool | None:
    """OR if True is decisive, AND if False is."""
    if decisive in (x, y):
        return decisive
    return None if None in (x, y) else not decisive


def is_null(node: Any, gone: frozenset[str]) -> bool:
    """Whether an expression is surely NULL where all columns of some aliases are."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return alias_of(node) in gone
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Dot):
        return is_null(node.this, gone)
    if isinstance(node, _ARITHMETIC):
        return any(
            is_null(part, gone)
            for part in (node.args.get("this"), node.args.get("expression"))
            if isinstance(part, exp.Expression)
        )
    return False


def place(root: Joined, where: Sequence[Any], scope: Scope, choices: Sequence[Sequence[Edge]]) -> Bound:
    """Every condition, and every window, to its place."""
    if not has_outer(root):
        return sort_conjuncts([*conditions_in(root), *where], scope)
    bound = Bound()
    for condition in where:
        if not push(root, condition):
            bound.after.append(to_expr(condition))
    tree = _Placer(scope, [list(choice) for choice in choices], bound).tree(root)
    assert isinstance(tree, Node)
    bound.root = tree
    return bound


def push(item: Joined, condition: Any) -> bool:
    """Hand a condition on results down to the join that it can be part of; whether that was possible."""
    mine = aliases_of(condition)
    at = next((n for n, part in enumerate(item.inputs) if mine and mine <= set(aliases_in(part))), None)
    if item.kind != "inner":
        if at != 0 or item.kind == "full":
            return False
        return _push_below(item, 0, condition)
    if at is None or not _push_below(item, at, condition):
        item.conditions.append(condition)
    return True


def _push_below(item: Joined, at: int, condition: Any) -> bool:
    below = item.inputs[at]
    if isinstance(below, str):
        item.inputs[at] = Joined("inner", [below], [condition])
        return True
    return push(below, condition)


class _Placer:
    def __init__(self, scope: Scope, choices: list[list[Edge]], bound: Bound) -> None:
        self.scope, self.choices, self.bound = scope, choices, bound

    def tree(self, item: Item) -> Tree:
        """The bound tree of an item of FROM."""
        if isinstance(item, str):
            return Leaf(item)
        if len(item.inputs) == 1:  # an alias and its filters
            self.bound.filters += [to_expr(condition) for condition in item.conditions]
            return self.tree(item.inputs[0])
        across, own = self._split(item)
        inputs = tuple(self.tree(part) for part in item.inputs)
        found = sort_conjuncts(across, self.scope)
        self.bound.edges += found.edges
        self.bound.predicates += found.predicates
        self.bound.widened += found.widened
        node = Node(
            cast(Kind, item.kind),
            inputs,
            tuple(found.predicates),
            tuple(to_expr(condition) for condition in own),
            tuple(tuple(choice) for choice in self._windows(item, found.edges)),
            item.nearest,
            frozenset(a for a in item.aliases if rejects([*across, *own], [a])),
        )
        _refuse_endless(node, item)
        if node.nearest is not None and len(node.choices) > 1:
            raise UnsupportedError(
                f"{item.written}: a PATH over the stream of an as-of join is not supported; give it a direction with DWINDOW"
            )
        if node.nearest is not None and node.nearest.left not in node.certain:
            raise UnsupportedError(
                f"{item.written} looks from the time of {node.nearest.left!r}, which may be NULL there: look from an alias that is always present"
            )
        return node

    def _split(self, item: Joined) -> tuple[list[Any], list[Any]]:
        """Conditions across inputs, and those on one input that stay here; the others go down."""
        across, own = [], []
        kept = {"full": {0, 1}, "left": {0}, "anti": {0}, "asof left": {0}}.get(item.kind, set())
        for condition in item.conditions:
            mine = aliases_of(condition)
            at = next((n for n, part in enumerate(item.inputs) if mine and mine <= set(aliases_in(part))), None)
            if at is None and mine:
                across.append(condition)
            elif at is None or at in kept or not _push_below(item, at, condition):
                own.append(condition)
        return across, own

    def _windows(self, item: Joined, edges: Sequence[Edge]) -> Iterator[list[Edge]]:
        """The windows of a join, by choice: those whose aliases meet here, and of a PATH what lies below, too."""
        parts = [set(visible_in(part)) for part in item.inputs]
        everything = set().union(*parts)
        seen: list[list[Edge]] = []
        for choice in self.choices:
            here = [
                e for e in choice if {e.old, e.young} <= everything and not any({e.old, e.young} <= p for p in parts)
            ]
            texts = {e.text for e in here if e.text.upper().startswith("PATH")}
            below = [e for e in choice if e.text in texts and {e.old, e.young} <= everything and e not in here]
            if (found := [*here, *below, *edges]) not in seen:
                seen.append(found)
        yield from seen


def _refuse_endless(node: Node, item: Joined) -> None:
    """A preserved tuple must be able to learn that no partner comes."""
    if node.kind not in ("left", "full", "anti", "asof left"):
        return
    for side in node.preserved:
        for present in node.inputs[side].variants:
            for wait in node.waits(side, present):
                for z in node.inputs[1 - side].aliases:
                    if all(wait[y, z] >= UNBOUNDED for y in present):
                        first = next(a for a in node.inputs[side].aliases if a in present)
                        condition = f" or a condition such as {z}.ts <= {first}.ts + INTERVAL 10 MINUTES"
                        raise WindowError(
                            f"{item.written}: in this {_CALLED[node.kind]} a tuple of {first!r} without a partner could never leave, since no window bounds how much later one of {z!r} may come;"
                            f" add WINDOW ({first}, {z}) = 10 MINUTES{condition if node.nearest is None else ''}"
                        )


def nearest_of(
    conditions: Sequence[Any], left: Sequence[str], right: Sequence[str], scope: Scope, written: str
) -> tuple[Nearest, list[Any]]:
    """The order that an as-of join is about, and its other conditions, which are equalities."""
    found: list[Nearest] = []
    rest: list[Any] = []
    for condition in conditions:
        order = _order_of(condition, left, right, scope)
        if order is not None:
            found.append(order)
        elif aliases_of(condition) & {*left} and aliases_of(condition) & {*right} and not isinstance(condition, exp.EQ):
            raise UnsupportedError(
                f"{written}: {show(condition)} is no equality; between the two streams an as-of join takes equalities and one order of event times."
                f" Write how far apart they may be as WINDOW ({left[0]}, {right[0]}) = 10 MINUTES, and what filters the pairs in WHERE"
            )
        else:
            rest.append(condition)
    if len(found) != 1:
        said = "none" if not found else " and ".join(f"{n.left}.ts {n.op} {n.right}.ts" for n in found)
        example = f"{left[0]}.{scope.specs[left[0]].time} >= {right[0]}.{scope.specs[right[0]].time}"
        remedy = "; leave one, and write how far apart they may be as a WINDOW" if found else ""
        raise QueryError(f"{written}: ON needs one order of event times, such as {example}; found {said}{remedy}")
    return found[0], rest


def _order_of(node: Any, left: Sequence[str], right: Sequence[str], scope: Scope) -> Nearest | None:
    op = COMPARATORS.get(type(node))
    sides = [part.unnest() for part in (node.this, node.expression)] if op is not None else []
    if (
        not all(isinstance(s, exp.Column) and ref_of(s).column == scope.specs[alias_of(s)].time for s in sides)
        or op is None
    ):
        return None
    x, y = (alias_of(s) for s in sides)
    if x in left and y in right:
        return Nearest(x, cast(Any, op), y)
    return Nearest(y, cast(Any, _FLIPPED[op]), x) if y in left and x in right else None
