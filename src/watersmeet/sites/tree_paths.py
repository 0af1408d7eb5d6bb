"""The ways of heads through a tree: each level joins a stream with the results of the level below, which are a stream like any other.

    a, b SP-S/SM-D1, c SM-D2/SM-S1

    level 1    a  <->  b       results: stream 3, at home where they arise
    level 2    3  <->  c       results of the query

    downward   from what is below to the stream: the youngest tuple is one of those below
    upward     from the stream to what is below: the youngest tuple is the stream's

The time of a joined row is that of its youngest tuple (`YOUNGEST` stands for it among windows). So a result of a level is found once, by the younger of its two parts, when the other part's
frontier has passed it, and the frontier of a level's results is the lesser of those up to which its two legs have joined.

Invariant: both legs of a level end at one site, the home of its results.
Implements: Tran and Lee (2010), section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from watersmeet.plan.model import Plan, Side
from watersmeet.query.window import Edge
from watersmeet.sites.one_way.preserved import flatten, list_preserved
from watersmeet.sites.paths import (
    BLOOM,
    EXACT,
    Leg,
    Paths,
    bind,
    linear_paths,
    older_edges,
    share_copies,
    under_choices,
    youngest,
)
from watersmeet.sites.planning.model import Algorithm, LinearPlan
from watersmeet.sites.planning.trees import TreePlan

YOUNGEST = "*"
"""The reference of joined rows: their time is that of their youngest tuple."""


def paths_of(plan: Plan) -> Paths:
    """The paths of a plan across sites."""
    assert plan.sites is not None
    asked = repr((plan.output, plan.kernel, plan.gca, plan.order, plan.join.session))
    return _paths(_Known((plan.fingerprint(), str(plan.sites.plan), asked), plan))


@dataclass(frozen=True)
class _Known:
    """Plans hold mappings, which cannot be hashed; what paths depend on is their text. Two queries that keep the same state may let out other columns of it."""

    key: tuple[str, ...]
    plan: Plan = field(compare=False)


@lru_cache(maxsize=64)
def _paths(known: _Known) -> Paths:
    preserved, plan = frozenset(list_preserved(known.plan)), flatten(known.plan)
    assert plan.sites is not None
    sites = plan.site_names
    homes = tuple(sites.index(plan.sites.query.stream(alias).site) for alias in plan.aliases)
    is_linear = isinstance(plan.sites.plan, LinearPlan)
    return replace(linear_paths(plan, homes) if is_linear else _Tree(plan, homes).paths(), preserved=preserved)


class _Tree:
    """Builds the paths of a tree."""

    def __init__(self, plan: Plan, homes: tuple[int, ...]) -> None:
        assert plan.sites is not None
        assert isinstance(plan.sites.plan, TreePlan)
        self.plan, self.tree = plan, plan.sites.plan
        self.homes = list(homes)
        self.sides = [Side((i.alias,), i.alias, i.keys) for i in plan.inputs]
        self.legs: dict[int, tuple[Leg, ...]] = {}

    def paths(self) -> Paths:
        names, levels = self.plan.aliases, self.tree.levels
        below, order = names.index(self.tree.first), list[int]()
        for n, level in enumerate(levels):
            stream, done = names.index(level.stream), (*self.sides[below].aliases, level.stream)
            later = tuple(one.stream for one in levels[n + 1 :])
            into = len(self.homes) if later else None
            bound = bind(self.plan, done, later, YOUNGEST) if later else None
            for head, to, how in ((below, stream, level.downward), (stream, below, level.upward)):
                self.legs[head] = tuple(self._leg(head, to, how, bound, into))
            order += [below, stream]
            if bound is not None:
                self.homes.append(self.homes[stream if level.at_stream else below])
                self.sides.append(bound)
                below = len(self.sides) - 1
        legs = share_copies([self.legs[n] for n in range(len(self.homes))])
        waits = tuple(tuple(self._waits(n)) for n in range(len(names)))
        return Paths(legs, tuple(self.homes), tuple(self.sides), tuple(order), len(names), waits=waits)

    def _leg(self, head: int, to: int, algorithm: Algorithm, bound: Side | None, into: int | None) -> Iterator[Leg]:
        flow, stream = self.sides[head], self.sides[to]
        own = self._windows(flow, stream)
        if own is None:
            return
        at, there = self.homes[head], self.homes[to]
        how = None if at == there else EXACT.get(algorithm, algorithm)
        classes = tuple(sorted(set(flow.keys) & set(stream.keys)))
        reach = own.join.windows.hi(stream.reference, flow.reference)
        is_bloom = how is not None and algorithm in BLOOM
        yield Leg(head, 0, to, how, is_bloom, at, there, own, flow, stream, bound, into, classes, reach)

    def _windows(self, flow: Side, stream: Side) -> Plan | None:
        """The query of results whose youngest tuple, among the aliases of two sides, is one of the flow's."""
        plan, among = self.plan, (*flow.aliases, *stream.aliases)
        more = (YOUNGEST,) if len(among) > 2 else ()
        choices = []
        for y in flow.aliases:
            edges = older_edges(plan, y, among)
            if len(flow.aliases) > 1:
                edges += [Edge(y, YOUNGEST, 0, ""), Edge(YOUNGEST, y, 0, "")]
            elif len(stream.aliases) > 1:
                edges += [Edge(y, YOUNGEST, 0, ""), *(Edge(YOUNGEST, x, 0, "") for x in stream.aliases)]
            choices.append(edges)
        own = under_choices(plan, more, choices)
        if own is None or own.join.windows.alternatives or not plan.join.windows.alternatives:
            return own
        # One way of a PATH is left. Rows from below may have gone another: windows between their own tuples are tested again.
        windows = own.join.windows
        return replace(own, join=replace(own.join, windows=replace(windows, alternatives=(windows,))))

    def _waits(self, n: int) -> Iterator[tuple[int, int]]:
        """Heads that a tuple could meet under another plan."""
        names = self.plan.aliases
        for head, alias in enumerate(names):
            own = youngest(self.plan, alias, names) if head != n else None
            if own is not None:
                yield head, own.join.windows.hi(names[n], alias)
