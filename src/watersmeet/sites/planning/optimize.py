"""Find a cheap linear plan: greedy, exhaustive, or whichever the number of streams allows.

    exhaustive     states (streams joined, site of the results), from the head to all streams; the cheapest ways into a state
                   are kept, all others are pruned: what comes after a state costs the same however it was reached

Sites share what they have been sent:

    a: b SP-D    b: a SP-S      a's tuples go to b's site once: as a copy for b, from which a's own rows set out

Appendix B prices every one-way join by itself. A copy belongs to a site (`sites.paths`): every further join with it
is free of transmission, and so is a head's first step to a site that has a copy of its stream. So the plans that look cheapest one
by one are priced again, and with them those that bring all streams to one site.

Invariant: exhaustive search finds the cheapest of all linear plans under the formulas; greedy's cost is never below it. Ties go to
the stream and the algorithm that come first. What is shared is counted once, in the first join that needs it; joins inside a site ship nothing.
Implements: Tran and Lee (2010), section 4.1, algorithm 10, and the exhaustive search of section 5.2.
Departs from the paper: greedy keeps the three cheapest beginnings of a sequence instead of one: on random queries of four streams
that takes most of its distance to the optimum away. Lines differ from pair to pair, so a step's cost depends on where the results so far are. Exhaustive search
prunes by state, which loses nothing and makes it m^2 2^m instead of m! 6^m.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple

from watersmeet.errors import OptionError
from watersmeet.sites.planning.cost import PRICES, Cost, PricedJoin, Setting
from watersmeet.sites.planning.flow import StreamFlows, any_of
from watersmeet.sites.planning.model import AT_SOURCE, PAPER, Algorithm, LinearPlan, OneWayStep, Sequence, SiteQuery
from watersmeet.sites.planning.statistics import Statistics

Search = Literal["auto", "greedy", "exhaustive"]
SearchKind = Search | Literal["tree"]
"""How plans are found: linear ones, the cheapest tree, or, while a query runs under `auto`, the cheapest of both."""
WIDTH = 3
"""Beginnings that greedy search keeps."""
CHEAP = 6
"""`auto` searches exhaustively up to so many streams: a tenth of a second."""


@dataclass(frozen=True)
class PricedStep:
    """A step of a plan with what it is expected to cost."""

    step: OneWayStep
    source: str
    """The site where the rows that are joined are."""
    rows_per_s: float
    """That go into the step."""
    cost: Cost
    seconds: float


class Delivery(NamedTuple):
    """What results cost that are shipped to one site, per second."""

    shipments: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: tuple[float, ...]) -> Delivery:  # type: ignore[override]
        return Delivery(*(x + y for x, y in zip(self, other, strict=True)))


NOTHING_SHIPPED = Delivery()


@dataclass(frozen=True)
class Found:
    """A plan, its cost in seconds per second, and how it was found."""

    plan: LinearPlan
    seconds: float
    search: Literal["greedy", "exhaustive", "random", "given"]
    estimates: Mapping[str, tuple[PricedStep, ...]] = field(hash=False)
    """By head."""
    delivery: Delivery = NOTHING_SHIPPED

    @property
    def bytes(self) -> float:
        """Expected, per second."""
        return self.delivery.bytes + sum(e.cost.bytes for steps in self.estimates.values() for e in steps)

    @property
    def shipments(self) -> float:
        return self.delivery.shipments + sum(e.cost.shipments for steps in self.estimates.values() for e in steps)


Way = tuple[float, tuple[tuple[int, Algorithm], ...]]
"""Seconds, and steps."""


class Optimizer:
    """Prices and searches linear plans of one query."""

    def __init__(
        self,
        query: SiteQuery,
        statistics: Statistics,
        setting: Setting,
        algorithms: tuple[Algorithm, ...] = PAPER,
        results_at: str | None = None,
    ) -> None:
        self.query, self.setting, self.algorithms = query, setting, algorithms
        self.results_at = results_at
        """The site that results are shipped to; None: they stay where they arise."""
        self.flows = StreamFlows(query, statistics, setting.interval_us)
        self.sites = [s.site for s in query.streams]
        line = setting.line
        self._lines = {(x, y): (line(x, y), line(y, x)) for x in self.sites for y in self.sites}
        self._costs: dict[tuple[int, int, int], list[tuple[Algorithm, Cost]]] = {}

    def find(self, search: Search = "auto") -> Found:
        """The plan of choice."""
        if search not in ("auto", "greedy", "exhaustive"):
            raise OptionError(f"search={search!r}: there are 'auto', 'greedy' and 'exhaustive'")
        return self.greedy() if self.kind(search) == "greedy" else self.exhaustive()[0]

    def kind(self, search: Search) -> Literal["greedy", "exhaustive"]:
        """What a search is for this query."""
        if search == "auto":
            return "exhaustive" if len(self.sites) <= CHEAP else "greedy"
        return search

    def greedy(self, width: int = WIDTH) -> Found:
        """Algorithm 10, with the `width` cheapest beginnings kept in every step; with 1 it is the paper's."""
        ways = [self._ways(head, 1, width)[0] for head in range(len(self.sites))]
        return self.price(LinearPlan(self.query, self._rename(ways)), "greedy")

    def exhaustive(self, best: int = 1) -> list[Found]:
        """The so many cheapest plans, the cheapest first."""
        ways = [self._ways(head, best) for head in range(len(self.sites))]
        plans = (self._rename(combination) for combination in _cheapest(ways))
        return [self.price(LinearPlan(self.query, plan), "exhaustive") for plan in islice(plans, best)]

    def random(self, seed: random.Random) -> Found:
        """Any plan."""
        sequences = {}
        for head, alias in enumerate(self.query.aliases):
            done, steps = 1 << head, list[OneWayStep]()
            while len(steps) < len(self.sites) - 1:
                to = seed.choice(list(self.flows.reachable(done)))
                steps.append(OneWayStep(self.query.aliases[to], seed.choice(self.algorithms)))
                done |= 1 << to
            sequences[alias] = tuple(steps)
        return self.price(LinearPlan(self.query, sequences), "random")

    def price(self, plan: LinearPlan, search: Literal["greedy", "exhaustive", "random", "given"] = "given") -> Found:
        """Equation 1: the sum over all one-way joins."""
        estimates: dict[str, tuple[PricedStep, ...]] = {}
        for alias, steps in plan.sequences.items():
            head = self.query.position[alias]
            done, out = 1 << head, []
            for step, at in zip(steps, plan.places(alias), strict=False):
                to = self.query.position[step.to]
                cost = dict(self._price_step(head, done, to))[step.algorithm]
                rows = self.flows.flow(head, done).rows / self.flows.interval_s
                out.append(PricedStep(step, at, rows, cost, self._seconds(cost, at, to)))
                done |= 1 << to
            estimates[alias] = tuple(out)
        ends = [(head, plan.places(alias)[-1]) for head, alias in enumerate(self.query.aliases)]
        delivery, joins = self.deliver(ends), sum(e.seconds for steps in estimates.values() for e in steps)
        return Found(plan, joins + delivery.seconds, search, estimates, delivery)

    def deliver(self, ends: Iterable[tuple[int, str]]) -> Delivery:
        """What it costs to ship the results of heads, each from the site where they arise."""
        out = NOTHING_SHIPPED
        for head, at in ends:
            if self.results_at not in (None, at):
                flow, line = (
                    self.flows.flow(head, (1 << len(self.sites)) - 1),
                    self.setting.line(at, str(self.results_at)),
                )
                often = any_of(flow.heads, flow.alive) / self.flows.interval_s
                size = flow.rows * flow.full_bytes / self.flows.interval_s
                out += (often, size, often * line.latency_s + size / line.bytes_per_s)
        return out

    def one_way(self, head: str, done: frozenset[str], to: str, algorithm: Algorithm) -> Cost:
        """One formula's answer: from a head joined with streams to another stream."""
        mask = sum(1 << self.query.position[a] for a in done | {head})
        return dict(self._price_step(self.query.position[head], mask, self.query.position[to]))[algorithm]

    def _price_step(self, head: int, done: int, to: int) -> list[tuple[Algorithm, Cost]]:
        key = head, done, to
        if key not in self._costs:
            flows = self.flows
            counted = self.query.streams[to].window_rows is not None
            join = PricedJoin.of(
                flows.flow(head, done),
                flows.meet(*key),
                flows.streams[to],
                flows.window_rows[to],
                counted,
                self.setting,
            )
            self._costs[key] = [(algorithm, PRICES[algorithm](join)) for algorithm in self.algorithms]
        return self._costs[key]

    def _seconds(self, cost: Cost, at: str, to: int) -> float:
        return cost.seconds(*self._lines[at, self.sites[to]])

    def _ways(self, head: int, best: int, width: int | None = None) -> list[Way]:
        """The cheapest sequences of a head: breadth first, by number of streams joined; `width` states go on."""
        states: dict[tuple[int, str], list[Way]] = {(1 << head, self.sites[head]): [(0.0, ())]}
        for _ in range(len(self.sites) - 1):
            wider: dict[tuple[int, str], list[Way]] = {}
            for (done, at), ways in states.items():
                for to in self.flows.reachable(done):
                    out, back = self._lines[at, self.sites[to]]
                    for algorithm, cost in self._price_step(head, done, to):
                        more = cost.seconds(out, back)
                        state = done | 1 << to, at if algorithm in AT_SOURCE else self.sites[to]
                        found = wider.setdefault(state, [])
                        for seconds, steps in ways:
                            if len(found) < best or seconds + more < found[-1][0]:
                                found.append((seconds + more, (*steps, (to, algorithm))))
                                found.sort(key=_first)
                                del found[best:]
            states = wider
            if width is not None:
                cheapest = heapq.nsmallest(width, states.items(), key=lambda state: state[1][0][0])
                states = dict(cheapest)
        whole = (
            (seconds + self.deliver([(head, at)]).seconds, steps)
            for (_, at), ways in states.items()
            for seconds, steps in ways
        )
        return heapq.nsmallest(best, whole, key=_first)

    def _rename(self, ways: list[Way]) -> dict[str, Sequence]:
        names = self.query.aliases
        return {names[h]: tuple(OneWayStep(names[to], a) for to, a in steps) for h, (_, steps) in enumerate(ways)}


def _first(way: Way) -> float:
    return way[0]


def _cheapest(ways: list[list[Way]]):  # type: ignore[no-untyped-def]
    """One way of each head, the cheapest sums first."""
    first = (0,) * len(ways)
    heap, seen = [(sum(w[0][0] for w in ways), first)], {first}
    while heap:
        _, at = heapq.heappop(heap)
        yield [w[n] for w, n in zip(ways, at, strict=True)]
        for h, n in enumerate(at):
            following = (*at[:h], n + 1, *at[h + 1 :])
            if n + 1 < len(ways[h]) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (sum(w[i][0] for w, i in zip(ways, following, strict=True)), following))


CANDIDATES, FEW_STREAMS = 10, 4
"""Plans that are priced again, of an exhaustive search over so few streams; of more, the cheapest: ten would take most of a second."""


def cheapest(optimizer: Optimizer, search: Search) -> Found:
    """The plan of choice; ties go to the one that is found first."""
    kind = optimizer.kind(search)
    count = CANDIDATES if len(optimizer.query.aliases) <= FEW_STREAMS else 1
    plans = [optimizer.greedy().plan] if kind == "greedy" else [f.plan for f in optimizer.exhaustive(count)]
    plans += gather_at_sites(optimizer.query)
    priced = [together(replace(optimizer.price(plan), search=kind), optimizer) for plan in plans]
    return min(priced, key=lambda found: found.seconds)


def together(found: Found, optimizer: Optimizer) -> Found:
    """A plan's estimates with what is shared counted once."""
    query = found.plan.query
    whole = {
        (e.step.to, e.source)
        for steps in found.estimates.values()
        for e in steps
        if e.step.algorithm is Algorithm.SP_S and e.source != query.stream(e.step.to).site
    }
    seen: set[tuple[str, str]] = set()
    estimates = {}
    for head, steps in found.estimates.items():
        out, done = [], frozenset({head})
        for n, e in enumerate(steps):
            there, copy = query.stream(e.step.to).site, (e.step.to, e.source)
            at_source = e.step.algorithm.at_source
            if e.source == there or (n == 0 and not at_source and (head, there) in whole):
                e = free_of_shipping(e)
            elif at_source and copy in whole:
                simple = optimizer.one_way(head, done, e.step.to, Algorithm.SP_S)
                e = free_of_shipping(e) if copy in seen else _reprice(e, simple, optimizer)
                seen.add(copy)
            out.append(e)
            done |= {e.step.to}
        estimates[head] = tuple(out)
    joins = sum(e.seconds for steps in estimates.values() for e in steps)
    return replace(found, estimates=estimates, seconds=joins + found.delivery.seconds)


def gather_at_sites(query: SiteQuery) -> Iterator[LinearPlan]:
    """For every site the plan that brings all streams there, if a join leads every head to it at once."""
    for site in dict.fromkeys(s.site for s in query.streams):
        sequences = {head: _to(query, head, site) for head in query.aliases}
        if all(sequences.values()):
            yield LinearPlan(query, {head: steps for head, steps in sequences.items() if steps})


def _to(query: SiteQuery, head: str, site: str) -> tuple[OneWayStep, ...] | None:
    """A head's way to a site and on from there."""
    done, steps = [head], list[OneWayStep]()
    here = query.stream(head).site == site
    while len(done) < len(query.aliases):
        near = [a for a in query.aliases if a not in done and query.between(done, a)]
        if not here:
            near = [a for a in near if query.stream(a).site == site]
        if not near:
            return None
        steps.append(OneWayStep(near[0], Algorithm.SP_S if here else Algorithm.SP_D))
        done.append(near[0])
        here = True
    return tuple(steps)


def free_of_shipping(estimate: PricedStep) -> PricedStep:
    """A join whose two sides are at one site."""
    cost = Cost(0, 0, 0, 0, estimate.cost.processing_s)
    return replace(estimate, cost=cost, seconds=cost.processing_s)


def _reprice(estimate: PricedStep, cost: Cost, optimizer: Optimizer) -> PricedStep:
    there = optimizer.query.stream(estimate.step.to).site
    line = optimizer.setting.line
    return replace(
        estimate, cost=cost, seconds=cost.seconds(line(estimate.source, there), line(there, estimate.source))
    )
