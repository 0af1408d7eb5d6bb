"""Find the plan whose letters are the cheapest, with what the legs of all heads share counted once: a linear one, or a tree (`planning.tree_search`).

    ways of a head     the cheapest sequences as if it were alone, by (streams joined, site of the results); and all that ship whole tuples only
    descent            from the cheapest ways, the present plan and those that gather all streams at one site: for one head after another the best way, the others' given,
                       until no head finds a better one

A site that is sent something of a stream has it for all heads: a whole copy is shipped once, and serves every leg from there to the stream, and the stream's own heads; tuples that match,
and values, are shipped once, too.

Corrections come of what was counted: an item that has been shipped at another rate than expected is expected at that rate.

Invariant: the price of a plan is that of all its items together. Ties go to what comes first.
Implements: Tran and Lee (2010), section 4.1; in place of algorithm 10, which prices every one-way join by itself.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

from watersmeet.sites.planning.carriers import CarrierKind, bytes_on_wire
from watersmeet.sites.planning.cost import LineCost
from watersmeet.sites.planning.items import RESULTS, Item, list_own_items, list_shared_items
from watersmeet.sites.planning.letters import Letters, Placement, Step
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, LinearPlan, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import SearchKind
from watersmeet.sites.planning.tree_search import TreeSearch
from watersmeet.sites.planning.trees import TreePlan

WAYS, BEGINNINGS = 24, 6
"""Sequences that are kept of a head, and of one state on the way to them."""
NARROW = 5
"""Of so many streams a search keeps fewer ways of each head."""
MOST_SIMPLE = 4
"""Of so many streams all sequences of simple joins are tried."""
_SIMPLE = (Algorithm.SP_S, Algorithm.SP_D)

Way = tuple[OneWayStep, ...]
_Copy = tuple[str, str]
"""A whole stream, by alias, at a site."""
_Sent = tuple[str, str, str]
"""Sender, receiver and kind of an item."""


@dataclass(frozen=True)
class PricedPlan:
    """A plan with what its letters are expected to carry, per second of event time."""

    plan: LinearPlan | TreePlan
    items: tuple[Item, ...]
    seconds: float
    """Of line: what a change of plan can change."""

    @property
    def bytes(self) -> float:
        return sum(item.bytes for item in self.items)

    def on_wire(self, letters: float, carrier: CarrierKind) -> float:
        """Bytes per second that sites send, with what the carrier adds, if so many letters are sent per second."""
        return bytes_on_wire(self.bytes, letters, carrier)

    @property
    def by_line(self) -> dict[tuple[str, str], float]:
        """Bytes by sender and receiver."""
        out: dict[tuple[str, str], float] = {}
        for item in self.items:
            out[item.sender, item.receiver] = out.get((item.sender, item.receiver), 0.0) + item.bytes
        return out


@dataclass(frozen=True)
class Corrections:
    """What has been counted over what was expected, by item."""

    factors: Mapping[str, float] = field(default_factory=dict)

    def of(self, name: str) -> float:
        """Of an item; where it has never been counted, the mean of those of its algorithm and kind, half believed.

        >>> counted = Corrections({"SP-D rows: a to b": 4.0})
        >>> counted.of("SP-D rows: a to b"), counted.of("SP-D rows: a to c"), counted.of("SM-S1 ask: a to b")
        (4.0, 2.0, 1.0)
        """
        return self.factors.get(name) or self._alike.get(name.split(":")[0], 1.0)

    @cached_property
    def _alike(self) -> dict[str, float]:
        """By algorithm and kind."""
        logs: dict[str, list[float]] = {}
        for name, factor in self.factors.items():
            logs.setdefault(name.split(":")[0], []).append(math.log(factor))
        return {kind: min(max(math.exp(sum(of) / len(of) / 2), 0.5), 2.0) for kind, of in logs.items()}


class PlanSearch:
    """Prices and finds plans of one query."""

    def __init__(
        self,
        query: SiteQuery,
        letters: Letters,
        line: Callable[[str, str], LineCost],
        corrections: Corrections | None = None,
    ) -> None:
        self.query, self.letters, self.line = query, letters, line
        self.placement: Placement = letters.placement
        self.corrections = corrections or Corrections()
        self.trees = TreeSearch(query, letters, lambda items: sum(self._seconds(self._correct(i)) for i in items))
        self._known: dict[str, float] = {}
        self._widths: dict[tuple[str, str], float] = {}
        self._cargo: dict[_Leg, _Cargo] = {}
        self._routes: dict[tuple[str, Way], _Route] = {}
        self._loads: dict[tuple[int, frozenset[_Copy]], _Load] = {}
        self._prices: dict[tuple[int, ...], float] = {}

    def find(self, present: LinearPlan | TreePlan | None = None, kind: SearchKind = "auto") -> PricedPlan:
        """The cheapest plan that is found; `auto` looks at linear plans and at trees."""
        found = []
        if kind != "tree":
            found.append(self._find_linear(present if isinstance(present, LinearPlan) else None))
        if kind in ("auto", "tree") and self.trees.is_possible:
            found.append(self.price(self.trees.find()))
        if not found or isinstance(present, TreePlan):
            assert present is not None
            found.append(self.price(present))
        return min(found, key=lambda priced: priced.seconds)

    def _find_linear(self, present: LinearPlan | None) -> PricedPlan:
        most = WAYS // 4 if len(self.query.aliases) >= NARROW else WAYS
        ways = {head: list(self._ways(head, most)) for head in self.query.aliases}
        begins = [{head: of_head[0] for head, of_head in ways.items()}, *self._gather(ways)]
        if present is not None:
            begins.append(dict(present.sequences))
        routes = {head: [self._route(head, way) for way in of_head] for head, of_head in ways.items()}
        best = min((self._descend(begin, routes) for begin in begins), key=lambda found: found[0])
        return self.price(LinearPlan(self.query, best[1]))

    def price(self, plan: LinearPlan | TreePlan) -> PricedPlan:
        """A plan, priced."""
        if isinstance(plan, TreePlan):
            items = tuple(self._correct(item) for item in self.trees.list_items(plan))
        else:
            items = tuple(self._items(plan.sequences))
        return PricedPlan(plan, items, sum(self._seconds(item) for item in items))

    # ------------------------------------------------------------ what a plan ships

    def _items(self, sequences: Mapping[str, Sequence[OneWayStep]]) -> Iterator[Item]:
        """All items, what is shared once."""
        shared: dict[_Sent, Item] = {}
        routes = [self._route(head, tuple(steps)) for head, steps in sequences.items()]
        whole = frozenset[_Copy]().union(*[route.whole for route in routes])
        for cargo in self._list_cargo((leg for route in routes for leg in route.legs), whole):
            yield from cargo.own
            for key, _, item in cargo.shared:
                if key not in shared or item.bytes > shared[key].bytes:
                    shared[key] = item
        yield from shared.values()
        yield from self._results(sequences)

    def _price_routes(self, routes: Sequence[_Route]) -> float:
        """The same as seconds of line, without a list of the items."""
        key = tuple([route.number for route in routes])
        if key not in self._prices:
            whole = frozenset[_Copy]().union(*[route.whole for route in routes])
            total, shared = 0.0, dict[_Sent, float]()
            for route in routes:
                load = self._load_route(route, whole)
                total += load.seconds
                for sent, seconds in load.shared:
                    if seconds > shared.get(sent, 0.0):
                        shared[sent] = seconds
            results = self._results({route.head: route.way for route in routes})
            self._prices[key] = total + sum(shared.values()) + sum(self._seconds(item) for item in results)
        return self._prices[key]

    def _load_route(self, route: _Route, whole: frozenset[_Copy]) -> _Load:
        """What the legs of a route ship if these whole copies are there; the same in all plans in which they are."""
        key = route.number, whole & route.uses
        if key not in self._loads:
            cargo = list(self._list_cargo(route.legs, whole))
            self._loads[key] = _Load(
                sum(one.seconds for one in cargo),
                tuple((sent, seconds) for one in cargo for sent, seconds, _ in one.shared),
            )
        return self._loads[key]

    def _list_cargo(self, legs: Iterable[_Leg], whole: Collection[_Copy]) -> Iterator[_Cargo]:
        """What every leg ships. A whole copy serves all legs to its stream from there, and heads set out from it."""
        for leg in legs:
            if leg.number == 0 and leg.how not in AT_SOURCE and (leg.head, leg.there) in whole:
                continue  # the head sets out from the copy
            yield self._load(
                leg._replace(how=Algorithm.SP_S) if leg.how in AT_SOURCE and (leg.to, leg.at) in whole else leg
            )

    def _load(self, leg: _Leg) -> _Cargo:
        """What a leg ships; the same in all plans."""
        if leg not in self._cargo:
            step = self.letters.step(leg.head, leg.done, leg.to, leg.how)
            own = tuple(self._own_items(leg, step))
            shared = tuple(
                ((item.sender, item.receiver, item.kind), self._seconds(item), item)
                for item in self._shared_items(leg, step)
            )
            self._cargo[leg] = _Cargo(own, sum(map(self._seconds, own)), shared)
        return self._cargo[leg]

    def _results(self, sequences: Mapping[str, Sequence[OneWayStep]]) -> Iterator[Item]:
        """What sites ship of results, each in one item."""
        if self.placement.results_at is None:
            return
        found: dict[str, list[str]] = {}
        for head, steps in sequences.items():
            end = self._end(head, steps)
            if self.placement.results_at != end and head in self.placement.heads:
                found.setdefault(end, []).append(head)
        for end, heads in found.items():
            size = sum(map(self.letters.results, heads))
            name = f"results: of {' '.join(heads)} at {end}"
            yield self._correct(Item(end, str(self.placement.results_at), RESULTS, name, size))

    def _end(self, head: str, steps: Sequence[OneWayStep]) -> str:
        """The site where a head's results arise."""
        at = self.placement.sites[head]
        for step in steps:
            at = at if step.algorithm in AT_SOURCE else self.placement.sites[step.to]
        return at

    def _route(self, head: str, way: Way) -> _Route:
        if (head, way) not in self._routes:
            legs = tuple(self._list_legs(head, way))
            whole = frozenset((leg.to, leg.at) for leg in legs if leg.how is Algorithm.SP_S)
            uses = {(leg.to, leg.at) for leg in legs if leg.how in AT_SOURCE} | {
                (leg.head, leg.there) for leg in legs[:1]
            }
            self._routes[head, way] = _Route(len(self._routes), head, way, legs, whole, frozenset(uses))
        return self._routes[head, way]

    def _list_legs(self, head: str, steps: Way) -> Iterator[_Leg]:
        """Those that lead from one site to another."""
        at, done = self.placement.sites[head], frozenset({head})
        for number, step in enumerate(steps):
            there = self.placement.sites[step.to]
            if at != there and (head, step.to) in self.placement.spans:
                yield _Leg(head, number, done, step.to, step.algorithm, at, there)
            at = at if step.algorithm in AT_SOURCE or at == there else there
            done |= {step.to}

    def _own_items(self, leg: _Leg, step: Step) -> Iterator[Item]:
        path = f"{'+'.join(sorted(leg.done))} of {leg.head} at {leg.at} to {leg.to}"
        number = f"{self.placement.aliases.index(leg.head)} {leg.number}"
        yield from map(self._correct, list_own_items(step, leg.how, (leg.at, leg.there), number, path))

    def _shared_items(self, leg: _Leg, step: Step) -> Iterator[Item]:
        n, classes = self.placement.aliases.index(leg.to), self.letters.classes(leg.done, leg.to)
        ends, place = (leg.there, leg.at), f"{leg.to} at {leg.at}"
        yield from map(self._correct, list_shared_items(step, leg.how, ends, n, classes, place))

    def _correct(self, item: Item) -> Item:
        if item.name not in self._known:
            self._known[item.name] = self.corrections.of(item.name)
        return item._replace(bytes=item.bytes * self._known[item.name])

    def _seconds(self, item: Item) -> float:
        pair = item.sender, item.receiver
        if pair not in self._widths:
            self._widths[pair] = self.line(*pair).bytes_per_s
        return item.bytes / self._widths[pair]

    # ------------------------------------------------------------ the search

    def _ways(self, head: str, most: int) -> Iterator[Way]:
        """The cheapest sequences of a head by itself, then those of simple joins."""
        states: dict[tuple[frozenset[str], str], list[tuple[float, Way]]] = {
            (frozenset({head}), self.placement.sites[head]): [(0.0, ())]
        }
        for _ in range(len(self.query.aliases) - 1):
            wider: dict[tuple[frozenset[str], str], list[tuple[float, Way]]] = {}
            for (done, at), begun in states.items():
                for to in self._reach(done):
                    there = self.placement.sites[to]
                    for how in Algorithm if at != there else (Algorithm.SP_S,):
                        more = self._price_alone(_Leg(head, 0, done, to, how, at, there))
                        found = wider.setdefault((done | {to}, at if how in AT_SOURCE else there), [])
                        found += [(seconds + more, (*steps, OneWayStep(to, how))) for seconds, steps in begun]
            states = {key: heapq.nsmallest(BEGINNINGS, found, key=_price) for key, found in wider.items()}
        whole = (
            (seconds + self._ship_results(head, at), way) for (_, at), all_ in states.items() for seconds, way in all_
        )
        alone = heapq.nsmallest(most, whole, key=_price)
        simple = self._simple(head) if len(self.query.aliases) <= MOST_SIMPLE else ()
        yield from dict.fromkeys([*(way for _, way in alone), *simple])

    def _reach(self, done: frozenset[str]) -> list[str]:
        return [a for a in self.query.aliases if a not in done and self.query.between(done, a)]

    def _price_alone(self, leg: _Leg) -> float:
        if leg.at == leg.there or (leg.head, leg.to) not in self.placement.spans:
            return 0.0
        cargo = self._load(leg)
        return cargo.seconds + sum(seconds for _, seconds, _ in cargo.shared)

    def _ship_results(self, head: str, at: str) -> float:
        to = self.placement.results_at
        is_free = to in (None, at) or head not in self.placement.heads
        return 0.0 if is_free else self.letters.results(head) / self.line(at, str(to)).bytes_per_s

    def _simple(self, head: str) -> Iterator[Way]:
        """All sequences of simple joins."""
        for order in self._orders(frozenset({head})):
            for ways in product(_SIMPLE, repeat=len(order)):
                yield tuple(OneWayStep(to, how) for to, how in zip(order, ways, strict=True))

    def _orders(self, done: frozenset[str]) -> Iterator[tuple[str, ...]]:
        following = self._reach(done)
        if not following:
            yield ()
        for to in following:
            yield from ((to, *order) for order in self._orders(done | {to}))

    def _gather(self, ways: Mapping[str, list[Way]]) -> Iterator[dict[str, Way]]:
        """For every site a plan that brings all streams there, as far as the ways of heads allow."""
        for site in dict.fromkeys(self.placement.sites.values()):
            yield {
                head: min(of_head, key=lambda way, h=head: self._distance(h, way, site))  # type: ignore[misc]
                for head, of_head in ways.items()
            }

    def _distance(self, head: str, way: Way, site: str) -> int:
        """How many steps of simple joins a way takes elsewhere than at a site; one of other joins is far."""
        at, out = self.placement.sites[head], 0
        for step in way:
            at = at if step.algorithm in AT_SOURCE else self.placement.sites[step.to]
            out += (at != site) + 100 * (step.algorithm not in _SIMPLE)
        return out

    def _descend(self, begin: Mapping[str, Way], routes: Mapping[str, list[_Route]]) -> tuple[float, dict[str, Way]]:
        """Improve a plan, head by head."""
        plan, is_better = [self._route(head, begin[head]) for head in routes], True
        best = self._price_routes(plan)
        while is_better:
            is_better = False
            for n, of_head in enumerate(routes.values()):
                for route in of_head:
                    other = [*plan[:n], route, *plan[n + 1 :]]
                    seconds = self._price_routes(other)
                    if seconds < best * (1 - 1e-9):
                        plan, best, is_better = other, seconds, True
        return best, {route.head: route.way for route in plan}


class _Leg(NamedTuple):
    head: str
    number: int
    done: frozenset[str]
    to: str
    how: Algorithm
    at: str
    there: str


class _Cargo(NamedTuple):
    """What a leg ships."""

    own: tuple[Item, ...]
    seconds: float
    """Of these."""
    shared: tuple[tuple[_Sent, float, Item], ...]
    """What other legs may need, too, with its seconds."""


class _Route(NamedTuple):
    """A way of a head through sites."""

    number: int
    head: str
    way: Way
    legs: tuple[_Leg, ...]
    whole: frozenset[_Copy]
    """The whole copies that it has made."""
    uses: frozenset[_Copy]
    """The whole copies that make it ship less."""


class _Load(NamedTuple):
    """What a route ships, in seconds of line."""

    seconds: float
    shared: tuple[tuple[_Sent, float], ...]
    """What other routes may need, too."""


def _price(way: tuple[float, Way]) -> float:
    return way[0]
