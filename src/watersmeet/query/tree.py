"""Join trees: which inputs a join brings together, which of their tuples it keeps without a partner, and how long those wait.

    a LEFT JOIN b ON ... JOIN c ON ...          Node(inner, (Node(left, (a, b)), c))

An input of a join is an alias or another join. A **variant** of an input is a set of aliases that are present in a row of it; the others are NULL. Windows
hold between present aliases; a window of an alias that is NULL-extended holds.

    delay[y, z]   a row of a variant can leave its join later only while for some alias z of it, for all present y,   watermark(z) <= y.ts + delay[y, z]
    wait[y, z]    a partner of a row can still come only while the same holds for some alias z of the opposite inputs

Invariant: waits never end before the last partner can have come, and in a join of two aliases they end with it: for x and z `wait` is hi(x, z).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import chain, permutations, product
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Predicate
from watersmeet.query.window import UNBOUNDED, Edge, WindowGraph

Kind = Literal["inner", "left", "full", "semi", "anti", "asof", "asof left"]
Variant = frozenset[str]
Waits = Mapping[tuple[str, str], int]
"""By (present alias of the row, alias that it waits for) how much later that may be, in microseconds; UNBOUNDED: for ever."""


P = ParamSpec("P")
V = TypeVar("V")


def _remember(ask: Callable[Concatenate[Node, P], V]) -> Callable[Concatenate[Node, P], V]:
    """A method of a join that is answered once for the same arguments, which are positional: units ask in every turn."""

    @wraps(ask)
    def look_up(node: Node, /, *args: P.args, **_: P.kwargs) -> V:
        known: dict[Any, V] = node.__dict__.setdefault("_answers", {})
        key = (ask.__name__, *args)
        if key not in known:
            known[key] = ask(node, *args)  # type: ignore[call-arg]
        return known[key]

    return look_up


@dataclass(frozen=True)
class Leaf:
    """An alias as an input of a join."""

    alias: str

    @property
    def aliases(self) -> tuple[str, ...]:
        return (self.alias,)

    visible = aliases

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (frozenset(self.aliases),)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return ()

    def description(self) -> str:
        return self.alias

    def delays(self, _: Variant) -> Waits:
        return {(self.alias, self.alias): 0}


@dataclass(frozen=True)
class Nearest:
    """What an as-of join compares: `left op right`, two event times; it takes the nearest."""

    left: str
    op: Literal[">=", ">", "<=", "<"]
    right: str

    @property
    def is_backward(self) -> bool:
        """Whether it looks for what lies before the left tuple."""
        return self.op in (">=", ">")

    @property
    def edge(self) -> Edge:
        """The order of the two, as an edge of the window graph."""
        later, earlier = (self.left, self.right) if self.is_backward else (self.right, self.left)
        return Edge(later, earlier, -1 if self.op in (">", "<") else 0, f"{self.left}.ts {self.op} {self.right}.ts")


@dataclass(frozen=True)
class Node:
    """A join of two inputs, or of more if it is inner. RIGHT is LEFT with its inputs exchanged."""

    kind: Kind
    inputs: tuple[Tree, ...]
    predicates: tuple[Predicate, ...] = ()
    """Conditions of ON across inputs."""
    own: tuple[Expr, ...] = ()
    """Conditions of ON on a preserved input alone: who fails them has no partner."""
    choices: tuple[tuple[Edge, ...], ...] = ((),)
    """The windows of this join; a PATH leaves a choice."""
    nearest: Nearest | None = None
    required: frozenset[str] = frozenset()
    """Aliases that a condition of ON needs: a row that lacks one of them has no partner."""

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for tree in self.inputs for alias in tree.aliases)

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The aliases of its rows: semi and anti joins show their left input only."""
        shown = self.inputs[:1] if self.kind in ("semi", "anti") else self.inputs
        return tuple(alias for tree in shown for alias in tree.visible)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All joins of the tree, inputs first."""
        return (*(node for tree in self.inputs for node in tree.nodes), self)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        left, right = self.inputs[0].variants, self.inputs[-1].variants
        if self.kind in ("semi", "anti"):
            return left
        possible = [[v for v in tree.variants if not self.is_hopeless(n, v)] for n, tree in enumerate(self.inputs)]
        out = [frozenset().union(*parts) for parts in product(*possible)]
        out += left if self.kind in ("left", "full", "asof left") else ()
        out += right if self.kind == "full" else ()
        return tuple(dict.fromkeys(out))

    @property
    def preserved(self) -> tuple[int, ...]:
        """The inputs whose tuples leave without a partner, too, or are known to have one."""
        return {"inner": (), "asof": (), "full": (0, 1)}.get(self.kind, (0,))

    def description(self) -> list[Any]:
        """What stored state depends on, as JSON."""
        windows = [[[e.old, e.young, e.hi_us] for e in choice] for choice in self.choices]
        conditions = sorted(str(c) for c in (*self.predicates, *self.own))
        nearest = None if self.nearest is None else [self.nearest.left, self.nearest.op, self.nearest.right]
        return [self.kind, [tree.description() for tree in self.inputs], conditions, windows, nearest]

    @_remember
    def bounds(self, present: Variant) -> WindowGraph:
        """The closed graph of the windows between present aliases."""
        aliases = tuple(a for a in self.aliases if a in present)
        orders = [node.nearest.edge for node in self.nodes if node.nearest is not None]
        ways = [[*orders, *chain(*picked)] for picked in product(*(node.choices for node in self.nodes))]
        return WindowGraph.either(aliases, [[e for e in way if {e.old, e.young} <= present] for way in ways])

    @_remember
    def delays(self, present: Variant) -> Waits:
        """How late a row of a variant may leave."""
        out: dict[tuple[str, str], int] = {}
        for way in self._ways(present):
            out = {pair: max(late, out.get(pair, late)) for pair, late in way.items()}
        return out

    def delays_of(self, alias: str) -> dict[str, int]:
        """By alias z how much later than its tuple of one alias a row may leave, whichever others are present; without those that nothing waits for."""
        out: dict[str, int] = {}
        for present in (v for v in self.variants if alias in v):
            graph, late = self.bounds(present), self.delays(present)
            for z in self.aliases:
                d = min(_sum(graph.hi(alias, y), late[y, z]) for y in present)
                out[z] = max(out.get(z, d), d)
        return {z: d for z, d in out.items() if d > -UNBOUNDED}

    def _ways(self, present: Variant) -> Iterator[Waits]:
        """The delays of each way in which a row of a variant can come about."""
        if self.kind not in ("semi", "anti"):
            for parts in product(*(tree.variants for tree in self.inputs)):
                hopeless = any(self.is_hopeless(n, part) for n, part in enumerate(parts))
                if frozenset().union(*parts) == present and not hopeless:
                    yield self._delays_of_match(parts)
        for side in self.preserved:
            if present in self.inputs[side].variants:
                waits = self.waits(side, present)
                worst = {pair: max(w[pair] for w in waits) for pair in waits[0]}
                yield {**self.inputs[side].delays(present), **worst}

    def _delays_of_match(self, parts: Sequence[Variant]) -> Waits:
        out: dict[tuple[str, str], int] = {}
        for side, (tree, part) in enumerate(zip(self.inputs, parts, strict=True)):
            out |= self._towards(side, parts)
            out |= tree.delays(part)
        graph = self.bounds(frozenset().union(*parts))
        if self.nearest is None:
            return {
                (y, z): min(d, graph.hi(y, z)) if z in self._punctual(graph.aliases) else d for (y, z), d in out.items()
            }
        last = self.nearest.left if self.nearest.is_backward else self.nearest.right
        return out | {(y, self.nearest.right): graph.hi(y, last) for y in graph.aliases}

    @_remember
    def waits(self, side: int, present: Variant) -> list[Waits]:
        """For every variant of the other inputs, how long a row of an input waits for a partner."""
        parts = [
            [v for v in ((present,) if n == side else tree.variants) if not self.is_hopeless(n, v)]
            for n, tree in enumerate(self.inputs)
        ]
        others = [tree for n, tree in enumerate(self.inputs) if n != side]
        nobody = {(y, z): -UNBOUNDED for y in present for tree in others for z in tree.aliases}
        return [self._towards(side, picked) for picked in product(*parts)] or [nobody]

    @_remember
    def longest(self, side: int, order: Sequence[str]) -> dict[str, int]:
        """By alias that a row of an input waits for, how much later than the first present of these aliases it may come, whichever aliases are present."""
        out: dict[str, int] = {}
        for present in self.inputs[side].variants:
            y = next(a for a in order if a in present)
            for wait in self.waits(side, present):
                for (x, z), d in wait.items():
                    if x == y:
                        out[z] = max(out.get(z, d), d)
        return out

    def first_present(self, side: int) -> tuple[str, tuple[str, ...]]:
        """A name for the time of an input's rows, and the aliases of which the first that is present has it: one that always is, if there is one."""
        tree = self.inputs[side]
        certain = [a for a in tree.visible if all(a in v for v in tree.variants)]
        if not certain:
            return "|".join(tree.visible), tree.visible

        def reach(alias: str) -> int:
            return max(self.longest(side, (alias,)).values(), default=0)

        best = min(certain, key=reach) if self.nearest is None else (self.nearest.left, self.nearest.right)[side]
        return best, (best,)

    @cached_property
    def certain(self) -> frozenset[str]:
        """The aliases that are present in every row of their input."""
        return frozenset(a for tree in self.inputs for a in tree.visible if all(a in v for v in tree.variants))

    def certain_bounds(self, aliases: tuple[str, ...]) -> WindowGraph:
        """The closed graph of the windows between aliases that are always present, over these aliases."""
        graph = self.bounds(self.certain)
        choices = graph.alternatives or (graph,)
        edges = [
            [Edge(x, y, g.hi(x, y), "") for x, y in product(g.aliases, repeat=2) if x != y and g.hi(x, y) < UNBOUNDED]
            for g in choices
        ]
        between = list(self._between())
        return WindowGraph.either(aliases, [[*way, *between] for way in edges])

    def _between(self) -> Iterator[Edge]:
        """The windows between inputs' times, where one is that of whichever alias is present."""
        orders = [self.first_present(n) for n in range(len(self.inputs))]
        for (n, (x, xs)), (m, (y, ys)) in permutations(enumerate(orders), 2):
            if len(xs) == len(ys) == 1:
                continue
            pairs = product(self.inputs[n].variants, self.inputs[m].variants)
            his = [
                self.bounds(v | w).hi(next(a for a in xs if a in v), next(a for a in ys if a in w))
                for v, w in pairs
                if not self.is_hopeless(n, v) and not self.is_hopeless(m, w)
            ]
            if his and max(his) < UNBOUNDED:
                yield Edge(x, y, max(his), "")

    @cached_property
    def is_loose(self) -> bool:
        """Whether a window of this join names an alias that may be NULL: then it must be tested row by row."""
        return any(not {e.old, e.young} <= self.certain for choice in self.choices for e in choice)

    def is_hopeless(self, side: int, present: Variant) -> bool:
        """Whether rows of a variant lack an alias without which nothing matches."""
        return bool(self.required & {*self.inputs[side].aliases} - present)

    def _towards(self, side: int, parts: Sequence[Variant]) -> dict[tuple[str, str], int]:
        graph, out = self.bounds(frozenset().union(*parts)), {}
        for n, (tree, part) in enumerate(zip(self.inputs, parts, strict=True)):
            if n == side:
                continue
            late = tree.delays(part)
            for y, z in product(parts[side], tree.aliases):
                d = min(_sum(graph.hi(y, x), late[x, z]) for x in part)
                out[y, z] = min(d, graph.hi(y, z)) if z in self._punctual(part) else d
                if self.nearest is not None and self.nearest.is_backward and side == 0:
                    out[y, z] = self.bounds(parts[0]).hi(y, self.nearest.left)
        return out

    def _punctual(self, present: Iterable[str]) -> set[str]:
        """The aliases whose tuples delay a row by arriving, and no longer: a row of an as-of join waits for what may be nearer."""
        nodes = (node for tree in self.inputs for node in tree.nodes)
        return {*present} - {node.nearest.right for node in nodes if node.nearest is not None}


Tree = Leaf | Node


def _sum(x: int, y: int) -> int:
    return UNBOUNDED if UNBOUNDED in (x, y) else x + y
