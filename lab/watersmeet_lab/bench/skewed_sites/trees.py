"""The tree that ships least between sites: what each join of a level ships is counted, and the cheapest combinations are executed.

    ((x, y), z)    for each pair below and each place of its results, and each place of the results of all: so many trees are executed that every algorithm of every join has been counted once

A level ships the same however the streams below it were joined, so the cheapest tree is that of the cheapest levels.

Invariant: the plans that are returned were executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from watersmeet.sites.planning.model import AT_SOURCE, Algorithm
from watersmeet.sites.planning.trees import Level, TreePlan
from watersmeet_lab.bench.skewed_sites.workload import BATCHES, COUNTED, WARM, Played, Workload, play

EXECUTED = 3
"""Trees of counted levels that are executed."""
_HERE = tuple(a for a in Algorithm if a in AT_SOURCE and a is not Algorithm.SP_S)
_THERE = tuple(a for a in Algorithm if a not in AT_SOURCE)

Join = tuple[str, str, str, Algorithm, bool]
"""The streams below, their place, the stream, the algorithm, and whether the join leads upward, from the stream to what is below."""


def find_trees(workload: Workload) -> tuple[list[Played], int]:
    """The cheapest trees of three streams, executed; and how many were to find them."""
    begin = BATCHES - COUNTED - WARM
    counted: dict[Join, int] = {}
    runs = 0
    for tree in _list_covering(workload):
        kinds = play(workload, tree, begin).shipped.kinds
        runs += 1
        for join, size in _count_joins(workload, tree, kinds):
            counted.setdefault(join, size)
    sized = sorted(_combine(workload, counted), key=lambda one: one[0])
    return [play(workload, tree, begin) for _, tree in sized[:EXECUTED]], runs + EXECUTED


def _list_covering(workload: Workload) -> Iterator[TreePlan]:
    """Trees in which every join of every level comes with every algorithm."""
    for first, below, above in _orders(workload):
        for at_stream in (True, False):
            lower = _list_levels(workload, workload.where[first], below, at_stream)
            place = workload.where[below if at_stream else first]
            upper = [level for side in (True, False) for level in _list_levels(workload, place, above, side)]
            for n in range(max(len(lower), len(upper))):
                yield _tree(workload, first, lower[n % len(lower)], upper[n % len(upper)])


def _orders(workload: Workload) -> Iterator[tuple[str, str, str]]:
    for first, below in combinations(workload.where, 2):
        (above,) = set(workload.where) - {first, below}
        yield first, below, above


def _list_levels(workload: Workload, place: str, to: str, at_stream: bool) -> list[Level]:
    """Levels with results at the stream or at what is below it, so that each algorithm ships in one of them."""
    if workload.where[to] == place:
        return [Level(to, Algorithm.SP_S, Algorithm.SP_D)]
    pairs = [(Algorithm.SP_S, Algorithm.SP_D), *((_HERE[n % len(_HERE)], how) for n, how in enumerate(_THERE))]
    return [Level(to, here, there) if at_stream else Level(to, there, here) for here, there in pairs]


def _tree(workload: Workload, first: str, *levels: Level) -> TreePlan:
    placed = workload.run.plan.sites
    assert placed is not None
    return TreePlan(placed.query, first, levels)


def _count_joins(
    workload: Workload, tree: TreePlan, kinds: Mapping[tuple[str, str, str], int]
) -> Iterator[tuple[Join, int]]:
    """The bytes of every join of a tree, by the numbers of the streams that items are named by."""
    names, done = list(workload.where), [tree.first]
    for level, place in zip(tree.levels, tree.places(), strict=False):
        number, under = (
            names.index(level.stream),
            names.index(done[0]) if len(done) == 1 else len(names) + len(done) - 2,
        )
        for how, opposite, upward in ((level.upward, level.downward, True), (level.downward, level.upward, False)):
            head, other = (number, under) if upward else (under, number)
            if opposite is not Algorithm.SP_S:
                key = "".join(sorted(done)), place, level.stream, how, upward
                yield key, sum(size for (_, _, kind), size in kinds.items() if _is_of(kind, head, other))
        done.append(level.stream)


def _is_of(kind: str, head: int, other: int) -> bool:
    """Whether an item is of the join from one stream to another.

    >>> [_is_of(kind, 0, 3) for kind in ("rows 0 0", "@3 copy", "@0 copy", "ask 3 0")]
    [True, True, False, False]
    """
    verb, *numbers = kind.split()
    return verb == f"@{other}" or (verb in ("rows", "ask", "want") and numbers[0] == str(head))


def _combine(workload: Workload, counted: Mapping[Join, int]) -> Iterator[tuple[int, TreePlan]]:
    """For every pair of streams and every place the cheapest tree, and its bytes."""
    for first, below, above in _orders(workload):
        for side in (True, False):
            size, lower = _cheapest(workload, counted, first, workload.where[first], below, side)
            place = workload.where[below if side else first]
            for top in (True, False):
                more, upper = _cheapest(workload, counted, first + below, place, above, top)
                yield size + more, _tree(workload, first, lower, upper)


def _cheapest(
    workload: Workload, counted: Mapping[Join, int], done: str, place: str, to: str, at_stream: bool
) -> tuple[int, Level]:
    """The cheapest level with results at the stream, or at what is below it. A copy of all serves both joins."""
    if workload.where[to] == place:
        return 0, Level(to, Algorithm.SP_S, Algorithm.SP_D)
    below = "".join(sorted(done))
    at_source, elsewhere = (
        {how: counted[below, place, to, how, upward] for how in hows}
        for hows, upward in (((Algorithm.SP_S, *_HERE), at_stream), (_THERE, not at_stream))
    )
    sizes = {
        (here, there): size + (0 if here is Algorithm.SP_S else more)
        for here, size in at_source.items()
        for there, more in elsewhere.items()
    }
    here, there = min(sizes, key=lambda pair: sizes[pair])
    return sizes[here, there], Level(to, here, there) if at_stream else Level(to, there, here)
