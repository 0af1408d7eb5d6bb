"""A linear plan as rounds: for every one-way join the round in which it begins, and what sites must know of other sites' streams.

                 begins    source N                         destination M                       results
    here         r         join with the stream's window                                        r, N
    SP-S         r >= 1    join with the copy                                                   r, N
    SP-D         r         rows ->                          join (r+1)                          r+1, M
    SM-S1        r         keys ->, wait                    tuples -> (r+1)                     r+2, N: join with the copy
    SM-S2        r >= 1    keys in V, not yet asked ->      tuples -> (r+1)                     r+2, N
    SM-D1        r >= 1    rows with a key in V ->          join (r+1)                          r+1, M
    SM-D2        r         keys ->, wait                    keys wanted -> (r+1)                r+3, M: rows -> (r+2), join

Tuples for copies and news of V leave a stream's home in round 0, so they are there in round 1. A copy belongs to a site, not to a
join: what SP-S has brought there for one head, no other head asks for; and rows of a head that sets out for a site with a whole copy
of its stream are there already.

Invariant: the rounds follow from the plan alone; what arrives in a round was sent in the round before, or has waited for it.
Implements: Tran and Lee (2010), sections 3.1 and 4.1, one execution interval being a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from watersmeet.plan.model import Plan, Side
from watersmeet.plan.rules.place_units import compound
from watersmeet.routing.sites import BySite
from watersmeet.sites.planning.model import Algorithm

_BLOOM = {Algorithm.SMB_S1, Algorithm.SMB_S2, Algorithm.SMB_D1, Algorithm.SMB_D2}
_AFTER_NEWS = {Algorithm.SP_S, Algorithm.SM_S2, Algorithm.SM_D1, Algorithm.SMB_S2, Algorithm.SMB_D1}
_LASTS = {
    Algorithm.SP_S: 0, Algorithm.SP_D: 1, Algorithm.SM_S1: 2, Algorithm.SM_S2: 2, Algorithm.SM_D1: 1, Algorithm.SM_D2: 3,
    Algorithm.SMB_S1: 2, Algorithm.SMB_S2: 2, Algorithm.SMB_D1: 1, Algorithm.SMB_D2: 3,
}  # fmt: skip


@dataclass(frozen=True)
class Leg:
    """One one-way join of a head's sequence."""

    head: int
    """Position of the head's alias."""
    number: int
    to: int
    algorithm: Algorithm | None
    """None: the stream is here."""
    at: int
    """The unit where the rows are that are joined."""
    there: int
    """The home of the stream that they are joined with."""
    begins: int
    flow: Side
    """What has been bound so far."""
    stream: Side
    bound: Side | None
    """What will be bound then; None after the last leg."""
    classes: tuple[int, ...]
    """Of the keys on both sides."""

    @property
    def sees_new(self) -> bool:
        """Whether the head's tuples meet this batch's tuples of the stream: those of the aliases before the head."""
        return self.to < self.head

    @property
    def is_bloom(self) -> bool:
        return self.algorithm in _BLOOM

    @property
    def ends(self) -> int:
        return self.begins + (0 if self.algorithm is None else _LASTS[self.algorithm])


@dataclass(frozen=True)
class News:
    """What a home tells a site of a stream before the batch's joins."""

    stream: int
    to: int
    """The unit that is told."""
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """A batch's rounds."""

    legs: tuple[tuple[Leg, ...], ...]
    """By head."""
    whole: frozenset[News]
    """Copies that hold all tuples: of SP-S."""
    values: frozenset[News]
    """Copies of V: of SM-S2 and SM-D1."""
    filters: frozenset[News]
    """The same as filters."""
    asked: frozenset[News]
    """Values whose tuples follow without being asked for again: of SM-S2."""
    reduced: frozenset[News]
    """Copies that hold what was asked for."""

    def is_there(self, leg: Leg) -> bool:
        """Whether a head's rows come to the leg's destination as tuples of a copy."""
        return leg.number == 0 and leg.algorithm is Algorithm.SP_D and News(leg.head, leg.there) in self.whole

    @property
    def rounds(self) -> int:
        return 1 + max(legs[-1].ends for legs in self.legs)


@lru_cache(maxsize=64)
def _schedule(plan: _ByIdentity) -> Schedule:
    return _make(plan.plan)


@dataclass(frozen=True)
class _ByIdentity:
    """Plans hold mappings, which cannot be hashed; what a schedule depends on is their text."""

    key: tuple[str, str]
    plan: Plan = None  # type: ignore[assignment]

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.key == other.key


def schedule(plan: Plan) -> Schedule:
    """The rounds of a plan across sites."""
    assert plan.sites is not None
    return _schedule(_ByIdentity((plan.fingerprint(), str(plan.sites.linear)), plan))


def _make(plan: Plan) -> Schedule:
    routing = plan.stages[0].routing
    assert isinstance(routing, BySite)
    legs = [list(_legs(plan, routing, head)) for head in range(len(plan.inputs))]
    whole = {(leg.to, leg.at) for of_head in legs for leg in of_head if leg.algorithm is Algorithm.SP_S}
    return _with_copies([_time_legs(of_head, whole) for of_head in legs])


def _legs(plan: Plan, routing: BySite, head: int) -> Iterator[Leg]:
    """A head's one-way joins, without their rounds."""
    assert plan.sites is not None
    names, steps = plan.aliases, plan.sites.linear.sequences[plan.aliases[head]]
    at = routing.unit_of[head]
    done: tuple[str, ...] = (names[head],)
    flow = _flow(plan, done, tuple(s.to for s in steps))
    for number, step in enumerate(steps):
        to = names.index(step.to)
        there = routing.unit_of[to]
        done = (*done, step.to)
        later = tuple(s.to for s in steps[number + 1 :])
        bound = _flow(plan, done, later) if later else None
        stream = plan.stages[0].sides[to]
        classes = tuple(sorted(set(flow.keys) & set(stream.keys)))
        yield Leg(head, number, to, None if at == there else step.algorithm, at, there, 0, flow, stream, bound, classes)
        at = at if step.algorithm.at_source else there
        flow = bound or flow


def _time_legs(legs: list[Leg], whole: set[tuple[int, int]]) -> tuple[Leg, ...]:
    """The legs with their rounds; where a copy is whole, nothing is asked for."""
    out, now = [], 0
    for leg in legs:
        algorithm = leg.algorithm
        if algorithm is not None and algorithm.at_source and (leg.to, leg.at) in whole:
            algorithm = Algorithm.SP_S
        elif algorithm is not None and not algorithm.at_source and leg.number == 0 and (leg.head, leg.there) in whole:
            algorithm = Algorithm.SP_D
        begins = max(now, 1) if algorithm in _AFTER_NEWS else now
        out.append(replace(leg, algorithm=algorithm, begins=begins))
        now = out[-1].ends
    return tuple(out)


def _with_copies(legs: list[tuple[Leg, ...]]) -> Schedule:
    def list_news(*algorithms: Algorithm, keyed: bool) -> frozenset[News]:
        return frozenset(
            News(leg.to, leg.at, leg.classes if keyed else ())
            for of_head in legs
            for leg in of_head
            if leg.algorithm in algorithms
        )

    return Schedule(
        tuple(legs),
        whole=list_news(Algorithm.SP_S, keyed=False),
        values=list_news(Algorithm.SM_S2, Algorithm.SM_D1, keyed=True),
        filters=list_news(Algorithm.SMB_S2, Algorithm.SMB_D1, keyed=True),
        asked=list_news(Algorithm.SM_S2, keyed=True),
        reduced=list_news(Algorithm.SM_S1, Algorithm.SM_S2, Algorithm.SMB_S1, Algorithm.SMB_S2, keyed=False),
    )


def _flow(plan: Plan, aliases: tuple[str, ...], later: tuple[str, ...]) -> Side:
    """Rows of these aliases, with what later joins and the results need of them."""
    if len(aliases) == 1:
        return Side(aliases, aliases[0], plan.by_alias[aliases[0]].keys)
    return compound(plan, aliases, later)
