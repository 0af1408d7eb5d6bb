"""The ways of heads through sites: for every one-way join where its rows are, which windows hold there, and what its two sites say to each other.

    head a: b SM-S1, c SP-D        a@paris --0--> b@tokyo,  results at paris;  --1--> c@rome, results at rome

The *head* of a result is its youngest tuple; of two of one time it is that of the alias that stands later in FROM. So every result has one head, and is
made on its way. A head's windows are the query's, and it is the youngest: where that cannot be, the head has no way.

    channel        from           to             carries
    rows  h n      source         destination    rows that are joined there
    ask   h n      source         destination    keys: send me tuples (S), or say which of them you have (D2)
    ready h n      destination    source         nothing: what was asked is answered
    want  h n      destination    source         keys that have tuples

Invariant: paths follow from the plan alone, so all sites agree on them. Every channel is in the order of heads' times.
Implements: Tran and Lee (2010), sections 2.2 (limited-interval match) and 3.1, definition 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from watersmeet.errors import WindowError
from watersmeet.plan.model import Plan, Side
from watersmeet.plan.rules.place_units import columns_carried, put_keys
from watersmeet.query.window import Edge, WindowGraph
from watersmeet.sites.planning.model import Algorithm

BLOOM = frozenset({Algorithm.SMB_S1, Algorithm.SMB_S2, Algorithm.SMB_D1, Algorithm.SMB_D2})
_EXACT = {
    Algorithm.SMB_S1: Algorithm.SM_S1,
    Algorithm.SMB_S2: Algorithm.SM_S2,
    Algorithm.SMB_D1: Algorithm.SM_D1,
    Algorithm.SMB_D2: Algorithm.SM_D2,
}
KNOWING = frozenset({Algorithm.SM_S2, Algorithm.SM_D1})
"""The source keeps V, the values of the destination's stream."""
ASKING = frozenset({Algorithm.SM_S1, Algorithm.SM_S2, Algorithm.SM_D2})
COPYING = frozenset({Algorithm.SP_S, Algorithm.SM_S1, Algorithm.SM_S2})
"""Results arise at the source, from a copy of the stream or of a part of it."""


@dataclass(frozen=True)
class Leg:
    """One one-way join of a head's sequence."""

    head: int
    """Position of the head's alias."""
    number: int
    to: int
    """Position of the alias that the rows are joined with."""
    how: Algorithm | None
    """The algorithm, of a Bloom variant the exact one; None: the stream is here."""
    is_bloom: bool
    at: int
    """The site where the rows are that are joined: the source."""
    there: int
    """The home of the stream that they are joined with: the destination."""
    plan: Plan = field(repr=False, compare=False)
    """The query, of which the head's tuple is the youngest."""
    flow: Side = field(repr=False, compare=False)
    """What has been bound so far; its time is the head's."""
    stream: Side = field(repr=False, compare=False)
    bound: Side | None = field(repr=False, compare=False)
    """What will be bound then; None after the last leg."""
    classes: tuple[int, ...]
    """Of the keys on both sides."""
    reach_us: int
    """How much younger than a tuple of the stream the head may be."""

    @property
    def ends(self) -> int:
        """The site where the results arise."""
        return self.at if self.how is None or self.how.at_source else self.there

    def channel(self, verb: str) -> str:
        return f"{verb} {self.head} {self.number}"


@dataclass(frozen=True)
class Paths:
    """The legs of all heads."""

    legs: tuple[tuple[Leg, ...], ...]
    """By head; none of a head that can be no result's youngest tuple."""
    homes: tuple[int, ...]
    """The site of every alias."""
    keyed: tuple[int | None, ...]
    """By alias the class of keys that its tuples are dealt to the units of a site by; None: all are at the first unit."""

    @property
    def all(self) -> Iterator[Leg]:
        """Every leg, first legs first: a leg's rows come from the one before it."""
        for number in range(max(map(len, self.legs), default=0)):
            yield from (legs[number] for legs in self.legs if number < len(legs))

    def keepers(self, stream: int, how: frozenset[Algorithm]) -> list[Leg]:
        """The legs to a stream of some algorithms: their sources keep something of it."""
        return [leg for leg in self.all if leg.to == stream and leg.how in how]


def paths_of(plan: Plan) -> Paths:
    """The paths of a plan across sites."""
    assert plan.sites is not None
    return _paths(_Known((plan.fingerprint(), str(plan.sites.linear)), plan))


@dataclass(frozen=True)
class _Known:
    """Plans hold mappings, which cannot be hashed; what paths depend on is their text."""

    key: tuple[str, str]
    plan: Plan = field(compare=False)


@lru_cache(maxsize=64)
def _paths(known: _Known) -> Paths:
    plan = known.plan
    assert plan.sites is not None
    sites = plan.site_names
    homes = tuple(sites.index(plan.sites.query.stream(alias).site) for alias in plan.aliases)
    legs = [tuple(_legs(plan, homes, head)) for head in range(len(homes))]
    whole = {(leg.to, leg.at) for of_head in legs for leg in of_head if leg.how is Algorithm.SP_S}
    legs = [tuple(_with_copy(leg) if (leg.to, leg.at) in whole else leg for leg in of_head) for of_head in legs]
    return Paths(tuple(legs), homes, tuple(_class_to_deal_by(legs, n) for n in range(len(homes))))


def _with_copy(leg: Leg) -> Leg:
    """A leg whose source has a copy of the whole stream: it asks for nothing."""
    return replace(leg, how=Algorithm.SP_S, is_bloom=False) if leg.how in COPYING else leg


def _class_to_deal_by(legs: list[tuple[Leg, ...]], stream: int) -> int | None:
    """The class of keys that most legs to a stream have; of several the first."""
    counts = Counter(c for of_head in legs for leg in of_head if leg.to == stream for c in leg.classes)
    return min(counts, key=lambda c: (-counts[c], c), default=None)


def _legs(plan: Plan, homes: tuple[int, ...], head: int) -> Iterator[Leg]:
    own = _youngest(plan, head)
    if own is None:
        return
    assert plan.sites is not None
    names, steps = plan.aliases, plan.sites.linear.sequences[plan.aliases[head]]
    at, done = homes[head], tuple[str, ...]((names[head],))
    flow = _flow(own, done, tuple(s.to for s in steps))
    for number, step in enumerate(steps):
        to = names.index(step.to)
        done, later = (*done, step.to), tuple(s.to for s in steps[number + 1 :])
        bound = _flow(own, done, later) if later else None
        stream = Side((step.to,), step.to, plan.by_alias[step.to].keys)
        classes = tuple(sorted(set(flow.keys) & set(stream.keys)))
        how = None if at == homes[to] else _EXACT.get(step.algorithm, step.algorithm)
        reach = own.join.windows.hi(step.to, names[head])
        is_bloom = how is not None and step.algorithm in BLOOM
        leg = Leg(head, number, to, how, is_bloom, at, homes[to], own, flow, stream, bound, classes, reach)
        yield leg
        at, flow = leg.ends, bound or flow


def _youngest(plan: Plan, head: int) -> Plan | None:
    """The query of results whose youngest tuple is the head's; None: there can be none."""
    names, graph = plan.aliases, plan.join.windows
    older = [Edge(names[head], other, 0 if n < head else -1, "") for n, other in enumerate(names) if n != head]
    choices = [(*g.edges, *older) for g in graph.alternatives or (graph,)]
    try:
        windows = WindowGraph.either(names, choices)
    except WindowError:
        return None
    return replace(plan, join=replace(plan.join, windows=windows))


def _flow(plan: Plan, aliases: tuple[str, ...], later: tuple[str, ...]) -> Side:
    """Rows of these aliases, with what later joins and the results need of them; the head's time is theirs."""
    if len(aliases) == 1:
        return Side(aliases, aliases[0], plan.by_alias[aliases[0]].keys)
    classes = [n for n, c in enumerate(plan.classes) if set(c.members) & set(later)]
    residuals = [r for r in plan.residuals if {r.left[0], r.right[0]} & set(later)]
    conditions = [e for e in plan.inside if e.aliases & set(later)]
    side = Side(aliases, aliases[0], {}, columns_carried(plan, aliases, classes, residuals, conditions))
    return put_keys(plan, side, [a for a in plan.aliases if a in aliases], range(len(plan.classes)))
