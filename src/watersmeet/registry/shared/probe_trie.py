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

Paths say in which order each driver of each template binds the other aliases:

    template   r.k = s.j AND s.m = t.a        driver r:   s by j = r.k      then   t by a = s.m
                                              driver t:   s by m = t.a      then   r by k = s.j

The next alias is the one that most equalities join to what is bound; of these the first by (stream, column, slot, column it
is looked up by), so that templates which have probes in common begin with them. All paths take a step together: a loop over
templates would take seconds for tens of thousands of queries.

Invariant: for every template and every driver alias there is exactly one path, and it binds every alias once, each by an equality with
an alias that is bound before.
Implements: the shared evaluation that Idreos, Liarou, Koubarakis (2008) get by grouping rewritten queries (section 8,
effect of the number of queries), without rewriting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from watersmeet.plan.types import Kind
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.shared.gates import Gate
from watersmeet.registry.template import Template

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

    def find_widest(self, tried: np.ndarray, most: int) -> np.ndarray:
        """The templates for which nodes try more than so many tuples: of those below such a node that are alive, the ones with the widest period there.

        Nodes below another such node are left out: they may have so many because of templates that do not lead to them.
        """
        out = [np.empty(0, np.int64)]
        parents = self._find_parents()
        over = tried[: len(self.nodes)] > most
        for node in np.flatnonzero(over).tolist():
            path = [node]
            while path[-1] >= 0:
                path.append(int(parents[path[-1]]))
            if not over[path[1:-1]].any():
                out.append(self._find_widest_below(node, len(path) - 1))
        return np.unique(np.concatenate(out))

    def _find_parents(self) -> np.ndarray:
        """By node its parent; -1 at depth 1. The nodes of a level lie in the order of their parents."""
        children = np.repeat(np.arange(len(self.nodes)), self.nodes[:, 6] - self.nodes[:, 5])
        return np.concatenate([np.full(len(self.nodes) - len(children), -1), children])

    def _find_widest_below(self, node: int, depth: int) -> np.ndarray:
        below, leaves = [node], list[int]()
        for one in below:
            below += range(*self.nodes[one, 5:7].tolist())
            leaves += range(*self.nodes[one, 7:9].tolist())
        high = np.minimum(self.leaf_high[leaves], UNBOUNDED).astype(np.float64)
        widths = (high[:, depth, :depth] + high[:, :depth, depth]).min(axis=1)
        widths[high[:, 0, 0] < 0] = -np.inf  # silenced
        return self.leaf_template[leaves][widths == widths.max(initial=0)]


class TrieBuilder:
    """Collects templates; streams and columns get numbers as they come."""

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self.streams: dict[str, int] = {}
        self.columns: dict[CodedColumn, int] = {}
        self._sides: list[int] = []
        """The numbers of all sides, one after the other, see `Direction`."""

    def add(self, template: Template, gates: Sequence[Gate | None] = ()) -> int:
        """Add a template; its number. Gates are those of its aliases."""
        number = len(self.templates)
        self.templates.append(template)
        streams, gated = template.streams, tuple(gates) or (None,) * len(template.streams)
        for stream in streams:
            self.streams.setdefault(stream, len(self.streams))
        for x, a, y, b, kind in () if template.is_lone else template.edges:
            left, right = self.column(streams[x], a, kind, gated[x]), self.column(streams[y], b, kind, gated[y])
            self._sides += (*Direction(number, x, left, y, right), *Direction(number, y, right, x, left))
        return number

    def column(self, stream: str, column: str, kind: Kind, gate: Gate | None = None) -> int:
        return self.columns.setdefault((stream, column, kind, gate), len(self.columns))

    @property
    def width(self) -> int:
        return max((len(t.streams) for t in self.templates), default=1)

    def build(self) -> Trie:
        """The arrays: siblings beside each other, a level before the next."""
        stream_of = [self.streams.get(stream, -1) for stream, *_ in self.columns]
        return _Building(
            Paths(self.templates, self._sides, stream_of), self.numbers(), self.bounds(), len(self.streams)
        ).build()

    def numbers(self) -> np.ndarray:
        """By template and alias the number of the stream; -1 beyond the last alias."""
        width = self.width
        rows = [(*map(self.streams.__getitem__, t.streams), *[-1] * (width - len(t.streams))) for t in self.templates]
        return np.array(rows, np.int64).reshape(-1, width)

    def bounds(self) -> np.ndarray:
        """By template and pair of aliases the largest difference of times."""
        out = np.zeros((len(self.templates), self.width, self.width), np.int64)
        by_width: dict[int, list[int]] = {}
        for n, template in enumerate(self.templates):
            by_width.setdefault(len(template.streams), []).append(n)
        for size, numbers in by_width.items():
            out[numbers, :size, :size] = [self.templates[n].bounds for n in numbers]
        for n, template in enumerate(self.templates):
            if (
                template.outer is not None
            ):  # how long partners are kept beside each other; between a tuple and itself it holds always
                out[n, template.partner, template.partner] = template.partner_kept_us
        return out


class _Building:
    """Paths become a trie, one level after the other."""

    def __init__(self, paths: Paths, numbers: np.ndarray, bounds: np.ndarray, streams: int) -> None:
        self.paths, self.numbers, self.width, count = paths, numbers, paths.width, len(paths.template)
        self.bounds = bounds[paths.template]
        self.parent = np.full(count, -1, np.int64)
        """By path the node that it has reached; roots are streams."""
        self.is_tested = np.zeros(count, np.bool_)
        self.roots = np.zeros((streams, 2), np.int64)
        self.levels: list[np.ndarray] = []
        self.more: list[np.ndarray] = []
        self.leaves: list[np.ndarray] = []
        """Paths, in the order of the nodes where they end."""

    def build(self) -> Trie:
        driving = self.numbers[self.paths.template, self.paths.aliases[:, 0]]
        self.parent = driving
        for depth, step in enumerate(self.paths.steps(), 1):
            self._level(depth, step)
        nodes = np.concatenate(self.levels) if self.levels else np.empty((0, NODE_FIELDS + 2 * self.width), np.int64)
        leaves = np.concatenate(self.leaves) if self.leaves else np.empty(0, np.int64)
        aliases = self.paths.aliases[leaves]
        bound = aliases >= 0
        held = np.where(bound, aliases, 0)
        high = self.bounds[leaves][np.arange(len(leaves))[:, None, None], held[:, :, None], held[:, None, :]]
        return Trie(
            self.roots,
            nodes,
            np.concatenate(self.more) if self.more else np.empty((0, 3), np.int64),
            self.paths.template[leaves],
            held,
            np.ascontiguousarray(np.where(bound[:, :, None] & bound[:, None, :], high, 0)),
            self.is_tested[leaves].astype(np.uint8),
        )

    def _level(self, depth: int, step: ProbeStep) -> None:
        """The nodes of a depth, one for every different step below a parent."""
        path, width = step.path, self.width
        of = self.paths.template[path]
        stream, driver = self.numbers[of, step.alias], self.paths.aliases[path, 0]
        tie = (stream == self.numbers[of, driver]) & (step.alias < driver)
        more, begin, end = self._further(step.more)
        key = np.stack((self.parent[path], stream, step.own, step.slot, step.other, tie, more), axis=1)
        order = np.lexsort(key.T[::-1])
        key, path = key[order], path[order]
        first = np.flatnonzero((np.diff(key, axis=0, prepend=-2) != 0).any(axis=1))
        rank = np.cumsum(np.bincount(first, minlength=len(path))) - 1
        # Periods: the hull of those of all paths through a node.
        bound, alias = self.paths.aliases[path][:, :depth], step.alias[order][:, None]
        rows = np.arange(len(path))[:, None]
        low, high = -self.bounds[path][rows, alias, bound], self.bounds[path][rows, bound, alias]
        nodes = np.zeros((len(first), NODE_FIELDS + 2 * width), np.int64)
        if len(first):
            nodes[:, NODE_FIELDS : NODE_FIELDS + depth] = np.minimum.reduceat(low, first)
            nodes[:, NODE_FIELDS + width : NODE_FIELDS + width + depth] = np.maximum.reduceat(high, first)
        hull = nodes[rank][:, NODE_FIELDS:]
        self.is_tested[path] |= ((hull[:, :depth] != low) | (hull[:, width : width + depth] != high)).any(axis=1)
        nodes[:, :5] = key[first, 1:6]
        nodes[:, 9], nodes[:, 10] = begin[order][first], end[order][first]
        # Leaves: paths that end here.
        ends = self.paths.length[path] == depth + 1
        there = np.cumsum(np.bincount(rank[ends], minlength=len(first)))
        before = sum(map(len, self.leaves))
        nodes[:, 7], nodes[:, 8] = before + np.append(0, there)[:-1], before + there
        self.leaves.append(path[ends])
        self._link_children(depth, key[first, 0], nodes)
        self.parent[path] = rank
        self.levels.append(nodes)

    def _further(self, more: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Further equalities by number, and where they stand; equal ones stand there once."""
        count, size, _ = more.shape
        if not size:
            none = np.zeros(count, np.int64)
            return none, none, none
        distinct, number = np.unique(more.reshape(count, -1), axis=0, return_inverse=True)
        parts = distinct.reshape(-1, size, 3)
        used = (parts[:, :, 0] >= 0).sum(axis=1)
        end = sum(map(len, self.more)) + np.cumsum(used)
        self.more.append(np.ascontiguousarray(parts[parts[:, :, 0] >= 0]))
        number = number.reshape(-1)
        return number, (end - used)[number], end[number]

    def _link_children(self, depth: int, parents: np.ndarray, nodes: np.ndarray) -> None:
        """Tell the parents of a level's nodes where their children are."""
        offset = sum(map(len, self.levels))
        before = self.roots if depth == 1 else self.levels[-1][:, 5:7]
        count = np.bincount(parents, minlength=len(before))
        end = offset + np.cumsum(count)
        before[:, 0], before[:, 1] = end - count, end


class Direction(NamedTuple):
    """One direction of an equality of a template: `there.own` is looked up by `here.other`."""

    template: int
    here: int
    other: int
    there: int
    own: int


class ProbeStep(NamedTuple):
    """One probe of each of some paths."""

    path: np.ndarray
    alias: np.ndarray
    """What is bound."""
    own: np.ndarray
    slot: np.ndarray
    other: np.ndarray
    """The column looked up; the slot and the column it is looked up by."""
    more: np.ndarray
    """By path and further equality: slot, its column, own column; -1 where there is none."""


class Paths:
    """All paths: one for every alias of every template, which drives it."""

    def __init__(self, templates: Sequence[Template], sides: Sequence[int], stream_of: Sequence[int]) -> None:
        widths = np.array([len(t.streams) for t in templates], np.int64)
        self.width = int(widths.max(initial=1))
        self.template = np.repeat(np.arange(len(templates)), widths)
        self.aliases = np.full((len(self.template), self.width), -1, np.int64)
        """By path and slot."""
        self.aliases[:, 0] = np.arange(len(self.template)) - np.repeat(np.cumsum(widths) - widths, widths)
        self.length = widths[self.template]
        self._slot_of = np.full((len(self.template), self.width), -1, np.int64)
        self._slot_of[np.arange(len(self.template)), self.aliases[:, 0]] = 0
        self._sides = np.array(sides, np.int64).reshape(-1, len(Direction._fields))
        of_column = np.array(stream_of, np.int64)
        self._rank = np.empty(len(of_column), np.int64)
        """Columns in the order of their streams."""
        self._rank[np.argsort(of_column, kind="stable")] = np.arange(len(of_column))

    def steps(self) -> Iterator[ProbeStep]:
        """The first probe of all paths, the second of all that have one, and so on."""
        path, side = self._all_sides()
        for depth in range(1, self.width):
            here, there = self._slot_of[path, side[:, 1]], self._slot_of[path, side[:, 3]]
            open_ = (here >= 0) & (there < 0)
            step = self._choose(path[open_], side[open_], here[open_])
            self.aliases[step.path, depth] = step.alias
            self._slot_of[step.path, step.alias] = depth
            left = there < 0
            path, side = path[left], side[left]
            yield step

    def _all_sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Paths with every side of their templates; sides come in the order of templates."""
        counts = np.bincount(self._sides[:, 0], minlength=int(self.template[-1]) + 1 if len(self.template) else 0)
        mine = counts[self.template]
        path = np.repeat(np.arange(len(self.template)), mine)
        first = (np.cumsum(counts) - counts)[self.template]
        return path, self._sides[np.arange(len(path)) + np.repeat(first - (np.cumsum(mine) - mine), mine)]

    def _choose(self, path: np.ndarray, side: np.ndarray, slot: np.ndarray) -> ProbeStep:
        """Of all probes that a path could make next, the best."""
        # 1. Equalities of one path with one alias lie together, the first of them is the probe.
        columns = len(self._rank)
        probe = (self._rank[side[:, 4]] * self.width + slot) * columns + self._rank[side[:, 2]]
        place = path * self.width + side[:, 3]
        order = np.lexsort((probe, place))
        path, side, slot, probe, place = path[order], side[order], slot[order], probe[order], place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        size = np.diff(first, append=len(place))
        # 2. Of every path the alias with most equalities, then the first probe.
        best = np.lexsort((probe[first], -size, path[first]))
        best = best[np.flatnonzero(np.diff(path[first[best]], prepend=-1))]
        first, size = first[best], size[best]
        more = np.full((len(first), int(size.max(initial=1)) - 1, 3), -1, np.int64)
        for n in range(more.shape[1]):
            has = size > n + 1
            at = first[has] + n + 1
            more[has, n] = np.stack((slot[at], side[at, 2], side[at, 4]), axis=1)
        return ProbeStep(path[first], side[first, 3], side[first, 4], slot[first], side[first, 2], more)
