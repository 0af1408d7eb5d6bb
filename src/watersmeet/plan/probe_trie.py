"""Many join templates as one trie of probes for every driver stream.

    driver r:   r.k -> s.j          templates 1, 4, 7
                        s.m -> t.a  templates 1, 4           a path from the root binds one alias after another
                        s.m -> u.b  template 7
                r.l -> t.a          template 2

A node is one probe: look a stream's column up by the code of a column that is bound already, inside the period that the
windows leave. Templates that begin with the same probes share their nodes, whatever their windows: a node's period is
the hull of those of all templates below it, and a template whose own windows are tighter tests them where its path ends.

Every alias of a template drives once. A combination is made by its newest member only; where one tuple stands under
several aliases, by the last of them: a node of an alias before the driver's may take the driver's own tuple (`tie`).

Invariant: for every template and every driver alias there is exactly one path, and it binds every alias once.
Implements: the shared evaluation that Idreos, Liarou, Koubarakis (2008) get by grouping rewritten queries (section 8,
effect of the number of queries), without rewriting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from watersmeet.plan.encoding import Kind
from watersmeet.plan.gates import Gate
from watersmeet.plan.subscription import Template

CodedColumn = tuple[str, str, Kind, "Gate | None"]
"""Stream, column, how it is coded, and what its tuples must satisfy to have a place in the index."""


NODE_FIELDS = 11
"""Of a row of `Trie.nodes`: stream, column looked up, slot and column it is looked up by, tie, children (begin, end),
leaves (begin, end), further equalities (begin, end); then for every slot the lowest difference of times, then the highest."""


class Trie(NamedTuple):
    """All drivers' nodes as arrays. The children of a node lie together, so a walk reads them in one go."""

    roots: np.ndarray
    """By stream, two numbers: where the nodes of depth 1 begin and end."""
    nodes: np.ndarray
    """A row of `NODE_FIELDS` and the period for every node."""
    more: np.ndarray
    """Further equalities: slot, its column, own column."""
    leaf_template: np.ndarray
    leaf_alias: np.ndarray
    """By leaf and slot the alias that is bound there."""
    leaf_high: np.ndarray
    """By leaf and pair of slots the largest difference of times; tested if `leaf_tests`."""
    leaf_tests: np.ndarray


@dataclass
class _Node:
    key: tuple[int, int, int, int, bool, tuple[tuple[int, int, int], ...]]
    """Stream, column, slot, bound column, tie, further equalities."""
    low: list[int]
    high: list[int]
    children: dict[tuple, _Node] = field(default_factory=dict)  # type: ignore[type-arg]
    leaves: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """(template, alias by slot)."""


class TrieBuilder:
    """Collects templates; streams and columns get numbers as they come."""

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self.streams: dict[str, int] = {}
        self.columns: dict[CodedColumn, int] = {}
        self._roots: dict[int, dict[tuple, _Node]] = {}  # type: ignore[type-arg]
        self._gates: tuple[Gate | None, ...] = ()

    def add(self, template: Template, gates: Sequence[Gate | None] = ()) -> int:
        """Add a template's paths; its number. Gates are those of its aliases."""
        number = len(self.templates)
        self.templates.append(template)
        self._gates = tuple(gates) or (None,) * len(template.streams)
        for driver in range(len(template.streams)):
            self._path(template, number, driver)
        return number

    def column(self, stream: str, column: str, kind: Kind, gate: Gate | None = None) -> int:
        return self.columns.setdefault((stream, column, kind, gate), len(self.columns))

    @property
    def width(self) -> int:
        return max((len(t.streams) for t in self.templates), default=1)

    def _path(self, template: Template, number: int, driver: int) -> None:
        bound = [driver]
        level = self._roots.setdefault(self._stream(template.streams[driver]), {})
        node: _Node | None = None
        while len(bound) < len(template.streams):
            alias, key = min(self._candidates(template, bound), key=lambda c: (-len(c[1][5]), c[1]))
            low = [-template.bounds[alias][x] for x in bound]
            high = [template.bounds[x][alias] for x in bound]
            node = level.get(key)
            if node is None:
                node = level[key] = _Node(key, low, high)
            else:
                node.low, node.high = list(map(min, node.low, low)), list(map(max, node.high, high))
            bound.append(alias)
            level = node.children
        assert node is not None
        node.leaves.append((number, tuple(bound)))

    def _candidates(self, template: Template, bound: list[int]):  # type: ignore[no-untyped-def]
        """(alias, key of its node) of all aliases that an edge joins to what is bound."""
        probes: dict[int, list[tuple[int, int, int]]] = {}
        for x, a, y, b, kind in template.edges:
            for here, mine, there, theirs in ((x, a, y, b), (y, b, x, a)):
                if here in bound and there not in bound:
                    own = self.column(template.streams[there], theirs, kind, self._gates[there])
                    other = self.column(template.streams[here], mine, kind, self._gates[here])
                    probes.setdefault(there, []).append((own, bound.index(here), other))
        driver = bound[0]
        for alias, found in probes.items():
            (own, slot, other), *rest = sorted(found)
            tie = template.streams[alias] == template.streams[driver] and alias < driver
            more = tuple((s, o, c) for c, s, o in rest)
            yield alias, (self._stream(template.streams[alias]), own, slot, other, tie, more)

    def _stream(self, name: str) -> int:
        return self.streams.setdefault(name, len(self.streams))

    def build(self) -> Trie:
        """The arrays: siblings beside each other, a level before the next."""
        width = self.width
        rows, more, leaves = list[list[int]](), list[tuple[int, int, int]](), list[tuple[int, tuple[int, ...]]]()
        tests: list[bool] = []
        roots, waiting = np.zeros((len(self.streams), 2), np.int64), list[tuple[int, _Node, tuple[_Node, ...]]]()

        def lay(level: dict[tuple, _Node], path: tuple[_Node, ...]) -> tuple[int, int]:  # type: ignore[type-arg]
            begin = len(rows)
            for key in sorted(level):
                node = level[key]
                here = (*path, node)
                tests.extend(_is_tighter(self.templates[t], aliases, here) for t, aliases in node.leaves)
                stream, column, slot, bound, tie, further = key
                row = [stream, column, slot, bound, int(tie), 0, 0]
                row += [len(leaves), len(leaves) + len(node.leaves), len(more), len(more) + len(further)]
                rest = [0] * (width - len(node.low))
                leaves.extend(node.leaves)
                more.extend(further)
                waiting.append((len(rows), node, here))
                rows.append([*row, *node.low, *rest, *node.high, *rest])
            return begin, len(rows)

        for stream, level in self._roots.items():
            roots[stream] = lay(level, ())
        at = 0
        while at < len(waiting):
            number, node, path = waiting[at]
            rows[number][5], rows[number][6] = lay(node.children, path)
            at += 1
        highs = [_leaf_high(self.templates[t], aliases, width) for t, aliases in leaves]
        return Trie(
            roots,
            np.array(rows, np.int64).reshape(-1, NODE_FIELDS + 2 * width),
            np.array(more, np.int64).reshape(-1, 3),
            np.array([t for t, _ in leaves], np.int64),
            np.array([[*aliases, *[0] * (width - len(aliases))] for _, aliases in leaves], np.int64).reshape(-1, width),
            np.array(highs, np.int64).reshape(-1, width, width),
            np.array(tests, np.uint8),
        )


def _leaf_high(template: Template, aliases: Sequence[int], width: int) -> list[list[int]]:
    """The template's bounds by slot."""
    out = [[0] * width for _ in range(width)]
    for i, x in enumerate(aliases):
        for j, y in enumerate(aliases):
            out[i][j] = template.bounds[x][y]
    return out


def _is_tighter(template: Template, aliases: Sequence[int], path: Sequence[_Node]) -> bool:
    """Whether a template's own windows are tighter than the periods along its path."""
    bounds = template.bounds
    for depth, node in enumerate(path):
        y = aliases[depth + 1]
        for slot, x in enumerate(aliases[: depth + 1]):
            if node.high[slot] != bounds[x][y] or node.low[slot] != -bounds[y][x]:
                return True
    return False
