"""The window graph: a simple temporal network over the aliases of a query.

An edge says how much younger one tuple may be than another:

    y.ts - x.ts <= hi[x][y]          (and so  y.ts - x.ts >= -hi[y][x])

All surface forms become such edges; both ends are inclusive, times are whole microseconds. `close` tightens every pair
by shortest paths, so that a missing pair gets the tightest bound that the others imply. Windows that no result can
satisfy are a negative cycle, and an error.

PATH leaves a choice: a result satisfies one of a few closed graphs, the alternatives. The graph of such a query is their
hull, pair by pair the widest bound. It is closed like them, since

    hull[x][z] + hull[z][y]  >=  g[x][z] + g[z][y]  >=  g[x][y]      for every alternative g,

and as far as one pair is concerned it is exact: expiry, retention and the horizon ask the hull and know no alternatives.
Who combines more than two aliases tests the alternatives too (`operators.probing.side`).

Implements: Hammad, Aref, Elmagarmid (2002), section 5.2, the partially constrained W-join (Form 3), for directed edges, and
section 5.2.1, the path W-join.
Departs from the paper: its graph is undirected (absolute differences); ours is directed, so DWINDOW is the same thing. The
two directions of a path are one query, not a union of two: what satisfies both comes once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from watersmeet.errors import WindowError
from watersmeet.query.duration import show_us

T = TypeVar("T")
UNBOUNDED = 2**62
"""No bound. Far above any difference of timestamps, and two of them still add up within 64 bits."""


@dataclass(frozen=True)
class Edge:
    """`young.ts - old.ts <= hi_us`, and the text that it was written as."""

    old: str
    young: str
    hi_us: int
    text: str


@dataclass(frozen=True)
class WindowGraph:
    """The closed graph; with `alternatives` the hull of them, of which a result satisfies one.

    >>> g = WindowGraph.close(("a", "b", "c"), [Edge("a", "b", 5, ""), Edge("b", "a", 0, ""), Edge("b", "c", 7, "")])
    >>> g.hi("a", "c"), g.hi("c", "a") == UNBOUNDED
    (12, True)
    """

    aliases: tuple[str, ...]
    bounds: tuple[tuple[int, ...], ...]
    edges: tuple[Edge, ...]
    alternatives: tuple[WindowGraph, ...] = ()
    spans: Mapping[tuple[str, str], tuple[int, int]] = field(init=False, compare=False, repr=False)
    """For every two aliases (x, y) the smallest and the largest y.ts - x.ts: what units ask in every batch."""

    def __post_init__(self) -> None:
        at = {alias: n for n, alias in enumerate(self.aliases)}
        spans = {(x, y): (-self.bounds[n][m], self.bounds[m][n]) for x, m in at.items() for y, n in at.items()}
        object.__setattr__(self, "spans", spans)

    @classmethod
    def close(cls, aliases: tuple[str, ...], edges: Iterable[Edge]) -> WindowGraph:
        """Shortest paths between all pairs (Floyd and Warshall); a negative cycle is an error."""
        edges = tuple(edges)
        at = {alias: i for i, alias in enumerate(aliases)}
        hi = [[0 if x == y else UNBOUNDED for y in aliases] for x in aliases]
        for edge in edges:
            x, y = at[edge.old], at[edge.young]
            hi[x][y] = min(hi[x][y], edge.hi_us)
        for k in range(len(aliases)):
            for i in range(len(aliases)):
                for j in range(len(aliases)):
                    if hi[i][k] < UNBOUNDED and hi[k][j] < UNBOUNDED:
                        hi[i][j] = min(hi[i][j], hi[i][k] + hi[k][j])
        _refuse_unsatisfiable([alias for alias, i in at.items() if hi[i][i] < 0], edges)
        return cls(aliases, tuple(map(tuple, hi)), edges)

    @classmethod
    def either(cls, aliases: tuple[str, ...], choices: Sequence[Iterable[Edge]]) -> WindowGraph:
        """The graph of results that satisfy one of the choices; unsatisfiable ones are left out, unless all are.

        >>> there, back = directed_edges("a", "b", 5, ""), directed_edges("b", "a", 5, "")
        >>> g = WindowGraph.either(("a", "b"), [there, back])
        >>> g.show("a", "b"), len(g.alternatives)
        ('|b - a| <= 5 us', 2)
        """
        found: list[WindowGraph] = []
        refused: list[WindowError] = []
        for edges in choices:
            try:
                found.append(cls.close(aliases, edges))
            except WindowError as error:
                refused.append(error)
        found = [
            g
            for n, g in enumerate(found)
            if not any(g.within(h) and (n > m or not h.within(g)) for m, h in enumerate(found) if m != n)
        ]
        if not found:
            raise refused[0]
        if len(found) == 1:
            return found[0]
        hull = tuple(tuple(map(max, *rows)) for rows in zip(*(g.bounds for g in found), strict=True))
        return cls(aliases, hull, tuple(dict.fromkeys(e for g in found for e in g.edges)), tuple(found))

    def within(self, other: WindowGraph) -> bool:
        """Whether all that satisfies this graph satisfies the other."""
        return all(
            a <= b for mine, its in zip(self.bounds, other.bounds, strict=True) for a, b in zip(mine, its, strict=True)
        )

    @property
    def written(self) -> list[tuple[str, str]]:
        """The pairs of aliases whose windows were written, in the order of aliases."""
        found = {frozenset((e.old, e.young)) for e in self.edges}
        return [pair for pair in combinations(self.aliases, 2) if frozenset(pair) in found]

    def hi(self, x: str, y: str) -> int:
        """The largest y.ts - x.ts."""
        return self.spans[x, y][1]

    def lo(self, x: str, y: str) -> int:
        """The smallest y.ts - x.ts."""
        return self.spans[x, y][0]

    def retention_us(self, x: str) -> int:
        """How long a tuple of x can still meet a future tuple: the largest bound towards the others."""
        return max((self.hi(x, y) for y in self.aliases if y != x), default=UNBOUNDED)

    @property
    def horizon_us(self) -> int:
        """The largest finite bound of the closed graph; UNBOUNDED if there is none."""
        return horizon(self.bounds)

    def show(self, x: str, y: str) -> str:
        """The pair's interval as text."""
        lo, hi = self.lo(x, y), self.hi(x, y)
        if lo <= -UNBOUNDED and hi >= UNBOUNDED:
            return "unbounded"
        if lo == -hi:
            return f"|{y} - {x}| <= {show_us(hi)}"
        low = "" if lo <= -UNBOUNDED else f"{_show_signed(lo)} <= "
        high = "" if hi >= UNBOUNDED else f" <= {_show_signed(hi)}"
        return f"{low}{y} - {x}{high}"


def _refuse_unsatisfiable(aliases: Sequence[str], edges: Sequence[Edge]) -> None:
    """The one error for windows that no result can satisfy: those of aliases on a negative cycle."""
    if aliases:
        written = "; ".join(dict.fromkeys(e.text for e in edges if {e.old, e.young} & set(aliases)))
        raise WindowError(
            f"unsatisfiable window: no result can satisfy the windows of {', '.join(aliases)} together ({written}); widen or drop one of them"
        )


def horizon(bounds: Sequence[Sequence[int]]) -> int:
    """The largest finite bound between two different aliases; UNBOUNDED if there is none.

    >>> horizon(((0, 5), (UNBOUNDED, 0))), horizon(((0, UNBOUNDED), (UNBOUNDED, 0))) == UNBOUNDED
    (5, True)
    """
    apart = (hi for x, row in enumerate(bounds) for y, hi in enumerate(row) if x != y)
    return max((hi for hi in apart if hi < UNBOUNDED), default=UNBOUNDED)


def _show_signed(us: int) -> str:
    return show_us(us) if us >= 0 else f"-{show_us(-us)}"


def reach(start: Iterable[T], groups: Iterable[Collection[T]]) -> set[T]:
    """All that groups connect with the start, one by one.

    >>> sorted(reach([1], [(1, 2), (2, 3), (4, 5)]))
    [1, 2, 3]
    """
    reached, sets = set(start), [set(group) for group in groups]
    while more := {x for group in sets if group & reached for x in group} - reached:
        reached |= more
    return reached


def symmetric_edges(x: str, y: str, us: int, text: str) -> tuple[Edge, Edge]:
    """abs(x.ts - y.ts) <= us."""
    return Edge(x, y, us, text), Edge(y, x, us, text)


def directed_edges(x: str, y: str, us: int, text: str) -> tuple[Edge, Edge]:
    """0 <= y.ts - x.ts <= us."""
    return Edge(x, y, us, text), Edge(y, x, 0, text)


def widest(graph: WindowGraph) -> WindowGraph:
    """The same aliases with the largest window for all pairs: the filter of the global conservative approach.

    Implements: Hammad, Aref, Elmagarmid (2002), section 5.1.

    >>> g = WindowGraph.close(("a", "b", "c"), [*symmetric_edges("a", "b", 5, ""), *directed_edges("b", "c", 7, "")])
    >>> g.hi("b", "a"), g.hi("c", "b"), widest(g).hi("b", "a"), widest(g).hi("c", "b")
    (5, 0, 12, 12)
    """
    n = range(len(graph.aliases))
    largest = max(graph.bounds[x][y] for x in n for y in n if x != y)
    return WindowGraph(graph.aliases, tuple(tuple(0 if x == y else largest for y in n) for x in n), graph.edges)
