"""The oracle of join trees: outer, semi, anti and as-of joins over complete inputs, a transcription of the semantics in docs/sql.md.

A node joins two inputs, leaves being aliases. Its rows are environments: alias to tuple, NULLS where the alias is NULL-extended. A row has the batch
in which it leaves the node: that of its last member, or, for a row that waits (unmatched, as-of), the first after which its wait is over.

    waits   A partner of a row can still come after batch n, if some leaf z of the opposite input may still bring or release one:

            for every present y of the row   watermark_n(z) <= y.ts + wait[y, z]

`variant` names the aliases of a row that are present; bounds of time hold between present aliases only, so waits are computed by variant.

A table is there from the beginning and has no time: nobody waits for it, and it is no part of variants. A row that it is joined to leaves as it would without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from typing import Any, Literal

Env = Mapping[str, Mapping[str, Any]]
Window = tuple[str, str, int | None, int | None]
Kind = Literal["inner", "left", "right", "full", "semi", "anti", "asof", "asof left"]
Variant = frozenset[str]
Marks = Callable[[str, int], float]
"""The watermark of an alias' stream after a batch."""
ORDERS = {">=": (None, 0), ">": (None, -1), "<=": (0, None), "<": (1, None)}
"""By operator of an as-of join `x.ts op b.ts` the least and the largest b.ts - x.ts, in microseconds: `<` is at least one."""


class Nulls(dict[str, Any]):
    """The tuple of an alias that is NULL-extended."""

    def __missing__(self, _: str) -> None:
        return None


NULLS = Nulls()


class TableRow(dict[str, Any]):
    """A row of a table."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One alias."""

    alias: str


@dataclass(frozen=True, eq=False)
class TableLeaf:
    """A table under an alias, on the right of an inner or a left join."""

    alias: str
    rows: Sequence[TableRow]


@dataclass(frozen=True, eq=False)
class Node:
    """A join of two inputs. `on` has conditions, `keys` the values that its equalities compare; `windows` are (x, y, lo, hi), both ends inclusive, and hold
    if one of the two is NULL-extended; `paths` likewise, hop by hop. `asof` is (left alias, operator, right alias)."""

    kind: Kind
    left: Tree
    right: Tree
    on: Sequence[Any] = ()
    keys: Sequence[tuple[frozenset[str], Callable[[Env], Any]]] = ()
    windows: Sequence[Window] = ()
    paths: Sequence[tuple[Sequence[str], Sequence[int]]] = ()
    asof: tuple[str, str, str] | None = None


Tree = Leaf | TableLeaf | Node
Row = tuple[dict[str, Mapping[str, Any]], float]
"""An environment, and the batch in which it leaves."""


def leaves(tree: Tree) -> tuple[str, ...]:
    """The aliases of streams."""
    if isinstance(tree, TableLeaf):
        return ()
    return (tree.alias,) if isinstance(tree, Leaf) else (*leaves(tree.left), *leaves(tree.right))


def visible(tree: Tree) -> tuple[str, ...]:
    """The aliases of a tree's rows: semi and anti joins show their left input only."""
    if isinstance(tree, Leaf | TableLeaf):
        return (tree.alias,)
    return visible(tree.left) if tree.kind in ("semi", "anti") else (*visible(tree.left), *visible(tree.right))


@cache
def variants(tree: Tree) -> tuple[Variant, ...]:
    """The sets of aliases that can be present in a row."""
    if isinstance(tree, Leaf | TableLeaf):
        return (frozenset(leaves(tree)),)
    left, right = variants(tree.left), variants(tree.right)
    if tree.kind in ("semi", "anti"):
        return left
    out = [x | y for x, y in product(left, right) if not lacks(tree, x | y)]
    out += left if tree.kind in ("left", "full", "asof left") else ()
    out += right if tree.kind in ("right", "full") else ()
    return tuple(dict.fromkeys(out))


def mirrored(node: Node) -> Node:
    """The same join with its inputs exchanged."""
    kind: Kind = {"left": "right", "right": "left"}.get(node.kind, node.kind)  # type: ignore[assignment]
    return Node(kind, node.right, node.left, node.on, node.keys, node.windows, node.paths)


# ---------------------------------------------------------------- bounds


@cache
def closure(tree: Tree, present: Variant) -> dict[tuple[str, str], float]:
    """The largest y.ts - x.ts for present x and y, by paths over present aliases; directions of paths are enumerated."""
    found = []
    for windows in _directions(tree):
        hi = {(x, y): 0.0 if x == y else math.inf for x in present for y in present}
        for x, y, low, high in windows:
            if x in present and y in present:
                hi[x, y] = min(hi[x, y], math.inf if high is None else high)
                hi[y, x] = min(hi[y, x], math.inf if low is None else -low)
        for k, i, j in product(present, repeat=3):
            hi[i, j] = min(hi[i, j], hi[i, k] + hi[k, j])
        if all(hi[x, x] >= 0 for x in present):
            found.append(hi)
    if not found:
        return {(x, y): -math.inf for x in present for y in present}
    return {pair: max(hi[pair] for hi in found) for pair in found[0]}


def _directions(tree: Tree) -> Iterator[list[Window]]:
    """The windows of a tree, once for every choice of its paths' directions."""
    paths = [path for node in _nodes(tree) for path in node.paths]
    plain = [w for node in _nodes(tree) for w in node.windows] + [
        (x, b, *ORDERS[op]) for x, op, b in (node.asof for node in _nodes(tree) if node.asof is not None)
    ]
    for signs in product((False, True), repeat=len(paths)):
        hops: list[Window] = []
        for forth, (stops, waits) in zip(signs, paths, strict=True):
            for (x, y), wait in zip(pairwise(stops), waits, strict=True):
                hops.append((x, y, 0, wait) if forth else (y, x, 0, wait))
        yield [*plain, *hops]


def _nodes(tree: Tree) -> list[Node]:
    return [] if isinstance(tree, Leaf | TableLeaf) else [*_nodes(tree.left), *_nodes(tree.right), tree]


@cache
def delays(tree: Tree, present: Variant) -> dict[tuple[str, str], float]:
    """d[y, z]: a row of this variant can leave after batch n only if for some leaf z, for all present y, watermark_n(z) <= y.ts + d[y, z]."""
    if isinstance(tree, Leaf | TableLeaf):
        return {(alias, alias): 0.0 for alias in leaves(tree)}
    best = {(y, z): -math.inf for y in present for z in leaves(tree)}
    for way in _ways(tree, present):
        for pair, d in way.items():
            best[pair] = max(best[pair], d)
    return best


def _ways(node: Node, present: Variant) -> Iterator[dict[tuple[str, str], float]]:
    """The delays of every way in which a row of this variant can come about."""
    for left, right in product(variants(node.left), variants(node.right)):
        hopeless = lacks(node, left | right)
        if node.kind not in ("semi", "anti") and left | right == present and not hopeless:
            yield _matched(node, left, right)
    if node.kind in ("left", "full", "anti", "semi", "asof left") and present in variants(node.left):
        yield _waiting(node, present)
    if node.kind in ("right", "full") and present in variants(node.right):
        yield _waiting(mirrored(node), present)


def _matched(node: Node, left: Variant, right: Variant) -> dict[tuple[str, str], float]:
    hi, out = closure(node, left | right), {}
    inputs = ((node.left, left), (node.right, right))
    for mine, its in (inputs, inputs[::-1]):
        own, other = delays(*mine), delays(*its)
        for y in mine[1]:
            out |= {(y, z): own[y, z] for z in leaves(mine[0])}
            out |= {(y, z): min(hi[y, x] + other[x, z] for x in its[1]) for z in leaves(its[0])}
    if node.asof is not None:  # a matched row waits, too, until nothing can be nearer
        x, op, b = node.asof
        for y in left | right:
            out[y, b] = hi[y, x] if op in (">=", ">") else hi[y, b]
    if node.asof is not None:
        return out
    return {(y, z): min(d, hi[y, z]) if z in (left | right) - sought(node) else d for (y, z), d in out.items()}


def sought(tree: Tree) -> set[str]:
    """The right aliases of as-of joins: their watermarks hold rows back that they are part of."""
    return {node.asof[2] for node in _nodes(tree) if node.asof is not None}


def _waiting(node: Node, left: Variant) -> dict[tuple[str, str], float]:
    out = {(y, z): d for (y, z), d in delays(node.left, left).items()}
    for y in left:
        for z in leaves(node.right):
            out[y, z] = max(wait[y, z] for wait in waits(node, left))
    return out


def waits(node: Node, left: Variant) -> list[dict[tuple[str, str], float]]:
    """For every variant of the right input: w[y, z], as in `delays`, of a partner that can still come to a left row."""
    found = []
    for right in variants(node.right):
        if lacks(node, left | right):
            continue
        hi, other = closure(node, left | right), delays(node.right, right)
        if node.asof is not None and node.asof[1] in (">=", ">"):
            x, _, b = node.asof
            found.append({(y, b): closure(node, left)[y, x] for y in left})
            continue
        wait = {(y, z): min(hi[y, x] + other[x, z] for x in right) for y in left for z in leaves(node.right)}
        found.append({(y, z): min(d, hi[y, z]) if z in right - sought(node.right) else d for (y, z), d in wait.items()})
    return found or [{(y, z): -math.inf for y in left for z in leaves(node.right)}]


def lacks(node: Node, present: Variant) -> bool:
    """Whether rows lack an alias that a condition of ON compares, so that it is not true."""
    nobody = dict.fromkeys({*visible(node.left), *visible(node.right)} - present, NULLS)
    missing = [p for p in node.on if not p.aliases & {*leaves(node)} <= present]
    return any(len(p.aliases) > 1 or p.holds(nobody) is not True for p in missing)


# ---------------------------------------------------------------- rows


@dataclass
class Evaluation:
    """The rows of trees over tuples with their batches, by alias; `count` batches, and one more in which all watermarks are infinite if the input `ends`."""

    tuples: Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
    marks: Marks
    count: int
    ends: bool
    _known: dict[int, list[Row]] = field(default_factory=dict)

    def rows(self, tree: Tree) -> list[Row]:
        if id(tree) not in self._known:
            self._known[id(tree)] = list(self._rows(tree))
        return self._known[id(tree)]

    def _rows(self, tree: Tree) -> Iterator[Row]:
        if isinstance(tree, Leaf):
            yield from (({tree.alias: row}, batch) for batch, row in self.tuples[tree.alias])
        elif isinstance(tree, TableLeaf):
            yield from (({tree.alias: row}, 0) for row in tree.rows)
        elif tree.asof is not None:
            yield from self._nearest(tree)
        else:
            yield from self._joined(tree)

    def _joined(self, node: Node) -> Iterator[Row]:
        left, right = self.rows(node.left), self.rows(node.right)
        met_left: dict[int, float] = {}
        met_right: dict[int, float] = {}
        for (i, (l_env, l_batch)), (j, (r_env, r_batch)) in product(enumerate(left), enumerate(right)):
            if matches(node, {**l_env, **r_env}):
                at = max(l_batch, r_batch)
                met_left[i] = min(met_left.get(i, math.inf), at)
                met_right[j] = min(met_right.get(j, math.inf), at)
                if node.kind not in ("semi", "anti"):
                    yield {**l_env, **r_env}, at
        if node.kind == "semi":
            yield from ((left[i][0], at) for i, at in met_left.items())
        if node.kind in ("left", "full", "anti"):
            nulls = {} if node.kind == "anti" else dict.fromkeys(visible(node.right), NULLS)
            for i, row in enumerate(left):
                if i not in met_left:
                    yield {**row[0], **nulls}, self.over(node, row)
                else:
                    assert met_left[i] <= self.over(node, row), "a partner came after the wait was over"
        if node.kind in ("right", "full"):
            nulls, mirror = dict.fromkeys(visible(node.left), NULLS), mirrored(node)
            yield from (
                ({**nulls, **row[0]}, self.over(mirror, row)) for j, row in enumerate(right) if j not in met_right
            )

    def _nearest(self, node: Node) -> Iterator[Row]:
        assert node.asof is not None
        x, op, b = node.asof
        for l_env, l_batch in self.rows(node.left):
            partners = [
                r
                for r in self.rows(node.right)
                if matches(node, {**l_env, **r[0]}) and _ordered(l_env[x]["ts"], op, r[0][b]["ts"])
            ]
            if partners:
                near = min(partners, key=lambda r: abs(r[0][b]["ts"] - l_env[x]["ts"]))
                last = l_env[x]["ts"] if op in (">=", ">") else near[0][b]["ts"]
                passed = self.first(lambda n, last=last: self.mark(b, n) > last)
                yield {**l_env, **near[0]}, max(l_batch, near[1], passed)
            elif node.kind == "asof left":
                yield {**l_env, b: NULLS}, self.over(node, (l_env, l_batch))

    def over(self, node: Node, row: Row) -> float:
        """The first batch after which no partner of a left row can come; its own, if it can have none for reasons of its own."""
        env, batch = row
        if hopeless(node, env):
            return batch
        return max(batch, self.first(lambda n: not self.may_come(node, env, n)))

    def may_come(self, node: Node, env: Env, n: float) -> bool:
        """Whether a partner of a left row can come after batch n."""
        present = present_in(env)
        return any(
            all(self.mark(z, n) <= env[y]["ts"] + wait[y, z] for y in present)
            for wait in waits(node, present)
            for z in leaves(node.right)
        )

    def mark(self, alias: str, n: float) -> float:
        return math.inf if n >= self.count else self.marks(alias, int(n))

    def first(self, holds: Callable[[int], bool]) -> float:
        """The first batch for which this holds; after all of them nothing comes any more, if the input ends."""
        return next((n for n in range(self.count) if holds(n)), self.count if self.ends else math.inf)


def present_in(env: Env) -> Variant:
    """The streams that have a tuple in a row."""
    return frozenset(a for a, row in env.items() if row is not NULLS and not isinstance(row, TableRow))


def matches(node: Node, env: Env) -> bool:
    """Whether a pair satisfies the conditions, windows and paths of a join."""
    return (
        all(p.holds(env) is True for p in node.on)
        and all(_within(window, env) for window in node.windows)
        and all(_travels(path, env) for path in node.paths)
    )


def hopeless(node: Node, env: Env) -> bool:
    """Whether a left row can match nothing for reasons of its own: a NULL key, or a condition on itself alone that is not true."""
    mine = set(visible(node.left))
    present = present_in(env)
    if lacks(node, present | {*visible(node.right)}):
        return True
    return any(not p.aliases - mine and p.holds(env) is not True for p in node.on) or any(
        aliases and not aliases - mine and value(env) is None for aliases, value in node.keys
    )


def _within(window: Window, env: Env) -> bool:
    x, y, lo, hi = window
    if env[x] is NULLS or env[y] is NULLS:
        return True
    apart = env[y]["ts"] - env[x]["ts"]
    return (lo is None or apart >= lo) and (hi is None or apart <= hi)


def _travels(path: tuple[Sequence[str], Sequence[int]], env: Env) -> bool:
    stops, bounds = path
    hops = [
        (env[y]["ts"] - env[x]["ts"], w)
        for (x, y), w in zip(pairwise(stops), bounds, strict=True)
        if x in env and y in env and env[x] is not NULLS and env[y] is not NULLS
    ]
    return all(0 <= wait <= w for wait, w in hops) or all(-w <= wait <= 0 for wait, w in hops)


def _ordered(a: int, op: str, b: int) -> bool:
    return {">=": a >= b, ">": a > b, "<=": a <= b, "<": a < b}[op]
