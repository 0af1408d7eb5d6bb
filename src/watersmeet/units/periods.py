"""Windows over many combinations at once: the period that is left for the next member, and the test of all members.

    period of y     max over bound x of (x.ts + lo(x, y))  <=  y.ts  <=  min over bound x of (x.ts + hi(x, y))

Where the window graph has alternatives (PATH), a combination leaves some of them open: those whose windows all its members
satisfy. Its period is the hull of the periods of the open ones, so as soon as two members differ in time a path has one
direction and its period is that direction's. What satisfies several alternatives is still one combination.

Invariant: a member outside the period satisfies no open alternative; one inside satisfies an alternative if and only if
`satisfied` says so. Without alternatives the period alone decides.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1 (the period) and section 5.2.1 (the directed period of a path).
Departs from the paper: the union of the two directions is taken in one pass, whose period follows the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from watersmeet.kernels.instants import FIRST, LAST, shift
from watersmeet.query.window import UNBOUNDED, WindowGraph

Times = Mapping[str, np.ndarray]
"""For every bound alias the times of its members, one per combination."""


def period(graph: WindowGraph, times: Times, y: str) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time at which a member of y can stand, by combination.

    >>> there = WindowGraph(("a", "b"), ((0, 5), (0, 0)), ())
    >>> [bound.tolist() for bound in period(there, {"a": np.array([10, 20])}, "b")]
    [[10, 20], [15, 25]]
    """
    if not graph.alternatives:
        return _period(graph, times, y)
    rows = len(next(iter(times.values())))
    first, last = np.full(rows, LAST, np.int64), np.full(rows, FIRST, np.int64)
    for alternative in graph.alternatives:
        lo, hi = _period(alternative, times, y)
        is_open = (lo <= hi) & _satisfied(alternative, times)
        np.minimum(first, lo, out=first, where=is_open)
        np.maximum(last, hi, out=last, where=is_open)
    return first, last


def satisfied(graph: WindowGraph, times: Times) -> np.ndarray:
    """Which combinations satisfy the graph, or one of its alternatives, as far as they are bound.

    >>> from watersmeet.query.window import directed
    >>> there, back = [[*directed(x, "b", 9, ""), *directed("b", z, 9, "")] for x, z in (("a", "c"), ("c", "a"))]
    >>> path = WindowGraph.either(("a", "b", "c"), [there, back])
    >>> satisfied(path, {"a": np.array([0, 9, 0]), "b": np.array([5, 5, 5]), "c": np.array([9, 0, 0])}).tolist()
    [True, True, False]
    """
    ways = [_satisfied(alternative, times) for alternative in graph.alternatives or (graph,)]
    return np.asarray(np.logical_or.reduce(ways))


def _period(graph: WindowGraph, times: Times, y: str) -> tuple[np.ndarray, np.ndarray]:
    rows = len(next(iter(times.values())))
    lo, hi = np.full(rows, FIRST, np.int64), np.full(rows, LAST, np.int64)
    for x, ts in times.items():
        low, high = graph.lo(x, y), graph.hi(x, y)
        if low > -UNBOUNDED:
            np.maximum(lo, shift(ts, low), out=lo)
        if high < UNBOUNDED:
            np.minimum(hi, shift(ts, high), out=hi)
    return lo, hi


def _satisfied(graph: WindowGraph, times: Times) -> np.ndarray:
    out = np.ones(len(next(iter(times.values()))), np.bool_)
    for x, y in combinations(times, 2):
        out &= times[y] >= shift(times[x], graph.lo(x, y))
        out &= times[y] <= shift(times[x], graph.hi(x, y))
    return out
