"""The ways of heads through sites: for every one-way join where its rows are, which windows hold there, and what its two sites say to each other.

    head a: b SM-S1, c SP-D        a@paris --0--> b@tokyo,  results at paris;  --1--> c@rome, results at rome

The *head* of a result is its youngest tuple; of two of one time it is that of the alias that stands later in FROM. So every result has one head, and is
made on its way. A head's windows are the query's, and it is the youngest: where that cannot be, the head has no way.

A tree (`sites.tree_paths`) has streams besides those that arrive: the results of its levels. Their rows are heads, too, each with one leg.

    channel        from           to             carries
    rows  h n      source         destination    rows that are joined there
    ask   h n      source         destination    keys: send me tuples (S), or say which of them you have (D2)
    ready h n      destination    source         nothing: what was asked is answered
    want  h n      destination    source         keys that have tuples
    at    d        home of d      sites with     nothing: how far the stream is; in trees only, linear plans go by what letters say of streams
                                  legs of d

Invariant: paths follow from the plan alone, so all sites agree on them. Every channel is in the order of heads' times.
Implements: Tran and Lee (2010), sections 2.2 (limited-interval match) and 3.1, definition 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from watersmeet.errors import WindowError
from watersmeet.plan.model import SEQUENCE, TIME, Plan, Side
from watersmeet.plan.residual import Compare, Residual
from watersmeet.plan.rules.lay_out import show_reach
from watersmeet.plan.rules.place_units import columns_carried, put_keys
from watersmeet.query.join import Input
from watersmeet.query.window import Edge, WindowGraph
from watersmeet.sites.planning.model import Algorithm, LinearPlan

BLOOM = frozenset({Algorithm.SMB_S1, Algorithm.SMB_S2, Algorithm.SMB_D1, Algorithm.SMB_D2})
EXACT = {
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
    """The number of the stream whose rows set out: an alias' position, or that of a tree's level."""
    number: int
    to: int
    """The number of the stream that the rows are joined with."""
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
    """What will be bound then; None: results."""
    into: int | None
    """The stream that its results are; None: they go on to the next leg, or are the query's."""
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
    """The legs of all heads, and the streams that they join."""

    legs: tuple[tuple[Leg, ...], ...]
    """By head; none of a head that can be no result's youngest tuple."""
    homes: tuple[int, ...]
    """The site of every stream."""
    sides: tuple[Side, ...] = field(compare=False)
    """By stream its aliases and keys."""
    order: tuple[int, ...]
    """Streams, each after those that it is made of."""
    arriving: int
    """How many streams arrive; those after them are results of a tree's levels."""
    counted: frozenset[int] = frozenset()
    """Streams with a ROWS window: their tuples are numbered, and so they are all at the first unit of a site."""
    preserved: frozenset[int] = frozenset()
    """Streams whose tuples' partners are noted at their homes: those of outer, semi and anti joins."""
    waits: tuple[tuple[tuple[int, int], ...], ...] = ()
    """By arriving stream (head, reach) of heads that no leg brings to it: another plan may."""
    keyed: tuple[int | None, ...] = field(init=False)
    """By stream the class of keys that its tuples are dealt to the units of a site by; None: all are at the first unit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keyed", tuple(self._class_to_deal_by(n) for n in range(len(self.homes))))

    def _class_to_deal_by(self, stream: int) -> int | None:
        """The class of keys that a stream shares with most others that arrive; of several the first. It is the same under every plan: windows stay where they are."""
        if stream in self.counted:
            return None
        others = [s.keys for n, s in enumerate(self.sides[: self.arriving]) if n != stream]
        if stream >= self.arriving:
            others = [leg.flow.keys for leg in self.all if leg.to == stream]
        counts = Counter(c for keys in others for c in keys if c in self.sides[stream].keys)
        return min(counts, key=lambda c: (-counts[c], c), default=None)

    @property
    def is_tree(self) -> bool:
        return len(self.homes) > self.arriving

    @cached_property
    def all(self) -> tuple[Leg, ...]:
        """Every leg, first legs first: a leg's rows come from those before it."""
        numbers = range(max(map(len, self.legs), default=0))
        return tuple(self.legs[n][number] for number in numbers for n in self.order if number < len(self.legs[n]))

    def keepers(self, stream: int, how: frozenset[Algorithm]) -> list[Leg]:
        """The legs to a stream of some algorithms: their sources keep something of it."""
        return [leg for leg in self.all if leg.to == stream and leg.how in how]

    def name(self, stream: int) -> str:
        """The alias of a stream that arrives, or a name of its own."""
        return self.sides[stream].name if stream < self.arriving else f"@{stream}"

    def starts(self, stream: int) -> int | None:
        """The site where a stream's rows set out: its home, or one that has a copy of it; None: nowhere."""
        return self.legs[stream][0].at if self.legs[stream] else None

    def complete(self, stream: int, units: int) -> int:
        """The round of a batch in which all rows of a stream that arise in the batch are at their units."""
        return 0 if units == 1 or stream < self.arriving else 2 * (stream - self.arriving + 1)

    def last_round(self, units: int) -> int:
        """The round in which the last results arise: rows of every leg may come from another unit, and so may those of a level."""
        if units == 1:
            return 0
        return 2 * (len(self.homes) - self.arriving) + 1 if self.is_tree else self.arriving - 1


def linear_paths(plan: Plan, homes: tuple[int, ...]) -> Paths:
    """The paths of a linear plan."""
    legs = share_copies([tuple(_legs(plan, homes, head)) for head in range(len(homes))])
    sides = tuple(Side((i.alias,), i.alias, i.keys) for i in plan.inputs)
    counted = frozenset(i.position for i in plan.sequenced)
    return Paths(legs, homes, sides, tuple(range(len(homes))), len(homes), counted)


def share_copies(legs: Iterable[tuple[Leg, ...]]) -> tuple[tuple[Leg, ...], ...]:
    """Where a site has a copy of a whole stream, joins with the stream use it, and its heads set out from it instead of being sent again."""
    legs = tuple(legs)
    whole = {(leg.to, leg.at) for of_head in legs for leg in of_head if leg.how is Algorithm.SP_S}

    def share(leg: Leg) -> Leg:
        if (leg.to, leg.at) in whole and leg.how in COPYING:
            return replace(leg, how=Algorithm.SP_S, is_bloom=False)
        if (leg.head, leg.there) in whole and leg.number == 0 and leg.how is not None and not leg.how.at_source:
            return replace(leg, how=None, is_bloom=False, at=leg.there)
        return leg

    return tuple(tuple(map(share, of_head)) for of_head in legs)


def _legs(plan: Plan, homes: tuple[int, ...], head: int) -> Iterator[Leg]:
    names = plan.aliases
    own = youngest(plan, names[head], names)
    if own is None:
        return
    own = replace(own, residuals=tuple(_compare_ends(own, names[head])))
    assert plan.sites is not None
    assert isinstance(plan.sites.plan, LinearPlan)
    steps = plan.sites.plan.sequences[names[head]]
    at, done = homes[head], tuple[str, ...]((names[head],))
    flow = bind(own, done, tuple(s.to for s in steps), names[head])
    for number, step in enumerate(steps):
        to = names.index(step.to)
        done, later = (*done, step.to), tuple(s.to for s in steps[number + 1 :])
        bound = bind(own, done, later, names[head]) if later else None
        stream = Side((step.to,), step.to, plan.by_alias[step.to].keys)
        how = None if at == homes[to] else EXACT.get(step.algorithm, step.algorithm)
        is_counted = plan.inputs[to].rows is not None and how in KNOWING  # values would live for ever
        is_bloom = how is not None and (step.algorithm in BLOOM or is_counted)
        leg = Leg(
            head, number, to, how, is_bloom, at, homes[to], own, flow, stream, bound, None,
            tuple(sorted(set(flow.keys) & set(stream.keys))), own.join.windows.hi(step.to, names[head]),
        )  # fmt: skip
        yield leg
        at, flow = leg.ends, bound or flow


def _compare_ends(plan: Plan, head: str) -> Iterator[Residual]:
    """Conditions of joins, with those of ROWS windows as sites know them: a tuple has an end, and the head is before it."""
    yield from (r for r in plan.residuals if r.right[1] != SEQUENCE)
    for a in (i for i in plan.sequenced if i.alias != head):
        yield Compare((head, TIME), "<", (a.alias, SEQUENCE), "integer", show_reach(a, head))


def youngest(plan: Plan, head: str, among: Iterable[str]) -> Plan | None:
    """The query of results whose youngest tuple, among some aliases, is the head's; None: there can be none."""
    return under_choices(plan, (), [older_edges(plan, head, among)])


def older_edges(plan: Plan, head: str, among: Iterable[str]) -> list[Edge]:
    """No other tuple is younger than the head's; one of the same time only if its alias stands before the head's."""
    position = plan.aliases.index
    return [Edge(head, x, 0 if position(x) < position(head) else -1, "") for x in among if x != head]


def under_choices(plan: Plan, more: tuple[str, ...], choices: Iterable[list[Edge]]) -> Plan | None:
    """The query of results that satisfy one of these choices besides their windows, with more names that stand for times; None: there can be none."""
    graph, names = plan.join.windows, (*plan.aliases, *more)
    ways = [(*g.edges, *edges) for edges in choices for g in graph.alternatives or (graph,)]
    try:
        windows = WindowGraph.either(names, ways)
    except WindowError:
        return None
    inputs = (*plan.join.inputs, *(Input(name, plan.inputs[0].stream) for name in more))
    crossed = plan.join.crossed | set(more)
    return replace(plan, join=replace(plan.join, inputs=inputs, windows=windows, crossed=crossed))


def bind(plan: Plan, aliases: tuple[str, ...], later: tuple[str, ...], reference: str) -> Side:
    """Rows of these aliases, with what later joins and the results need of them; their time is that of the reference."""
    if len(aliases) == 1:
        return Side(aliases, aliases[0], plan.by_alias[aliases[0]].keys)
    classes = [n for n, c in enumerate(plan.classes) if set(c.members) & set(later)]
    residuals = [r for r in plan.residuals if {r.left[0], r.right[0]} & set(later)]
    conditions = [e for e in plan.inside if e.aliases & set(later)]
    side = Side(aliases, reference, {}, columns_carried(plan, aliases, classes, residuals, conditions))
    return put_keys(plan, side, [a for a in plan.aliases if a in aliases], range(len(plan.classes)))
