"""What every one-way join of a query ships, by execution; and the linear plan that ships least, among all of them.

    head a     b SP-S, c SP-D, d SM-S1      one run: three one-way joins are counted
               b SP-D, c SM-S1, d SM-S2     ...

The cost of a plan is the sum over its one-way joins (equation 1), and each of those depends on the head, the streams joined before it and its algorithm, not on how these were
joined: all lines are alike. So all sequences are run that together have every one-way join, and the cheapest of all plans follows.

Invariant: nothing is estimated here. Every run's results are DuckDB's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from watersmeet.sites.planning.cost import Cost, Setting
from watersmeet.sites.planning.model import PAPER, Algorithm, LinearPlan, OneWayStep, Sequence, SiteQuery
from watersmeet.sites.planning.trees import TreePlan
from watersmeet_lab.reproduce.semijoin.answer import Answer, ask_duckdb, verify
from watersmeet_lab.reproduce.semijoin.execute import Execution, Shipment, execute
from watersmeet_lab.simulate.network import Network
from watersmeet_lab.simulate.sites.samples import Streams


class OneWay(NamedTuple):
    """A one-way join: from the rows of a head and the streams that it has been joined with, to a stream."""

    head: str
    done: frozenset[str]
    to: str
    algorithm: Algorithm


class Counter:
    """Executes one-way joins of a query, each once, and plans as a whole."""

    def __init__(self, streams: Streams, setting: Setting, warm_s: float) -> None:
        self.streams, self.setting = streams, setting
        self.network = Network(interval_us=setting.interval_us)
        first, last = streams.span_us
        warm = int(warm_s * 1e6 / setting.interval_us)
        self.span = range(warm, max(warm + 1, (last - first) // setting.interval_us))
        """The intervals that are counted: windows have filled, and the last one may be cut short."""
        self.costs: dict[OneWay, Cost] = {}
        self.runs, self.results = 0, 0
        self._right: dict[str | None, Answer] = {}

    def cost(self, join: OneWay) -> Cost:
        """What a one-way join ships."""
        if join not in self.costs:
            self.run(join.head, next(s for s in self._sequences(join.head) if join in _joins(join.head, s)))
        return self.costs[join]

    def run(self, head: str, steps: Sequence) -> Execution:
        """Execute a head's sequence, and count its one-way joins."""
        query = self.streams.query
        others = {h: next(self._sequences(h)) for h in query.aliases if h != head}
        plan = LinearPlan(query, {h: steps if h == head else others[h] for h in query.aliases})
        found = execute(self.streams, plan, self.network, head=head)
        self._verify(f"{head}: {', '.join(f'{s.to} {s.algorithm.value}' for s in steps)}", found, head)
        for number, join in enumerate(_joins(head, steps)):
            position = query.position[join.to]

            def is_of_join(s: Shipment, number: int = number, position: int = position) -> bool:
                verb, *numbers = s.kind.split()
                return verb == f"@{position}" if verb.startswith("@") else int(numbers[1]) == number

            self.costs[join] = found.cost(self.span, is_of_join)
        return found

    def run_plan(self, plan: LinearPlan | TreePlan) -> float:
        """Execute a plan as a whole; its seconds of line per second."""
        found = execute(self.streams, plan, self.network)
        self._verify(str(plan), found, None)
        return found.seconds(self.span, self.setting)

    def count(self, heads: str | None = None) -> None:
        """Execute until every one-way join of some heads is counted."""
        for head in heads or self.streams.query.aliases:
            for steps in self._sequences(head):
                if not all(join in self.costs for join in _joins(head, steps)):
                    self.run(head, steps)

    def price(self, plan: LinearPlan) -> float:
        """The sum of what a plan's one-way joins ship, in seconds of line per second."""
        return sum(self.price_sequence(head, steps) for head, steps in plan.sequences.items())

    def price_sequence(self, head: str, steps: Sequence) -> float:
        return sum(self._seconds(self.cost(join)) for join in _joins(head, steps))

    def total(self, plan: LinearPlan) -> Cost:
        """The same, term by term."""
        costs = [self.cost(join) for head, steps in plan.sequences.items() for join in _joins(head, steps)]
        return Cost(*(sum(column) for column in zip(*costs, strict=True)))

    def find_best(self) -> LinearPlan:
        """The cheapest of all linear plans."""
        self.count()
        query = self.streams.query
        return LinearPlan(query, {head: self.find_best_sequence(head) for head in query.aliases})

    def find_best_sequence(self, head: str) -> Sequence:
        """The cheapest of all sequences of a head: in every order, of every step the cheapest algorithm."""
        self.count(head)
        ways = [self._choose(head, order) for order in orders(self.streams.query, head)]
        return min(ways, key=lambda steps: self.price_sequence(head, steps))

    def _choose(self, head: str, order: tuple[str, ...]) -> Sequence:
        done, steps = frozenset({head}), list[OneWayStep]()
        for to in order:
            best = min(PAPER, key=lambda a: self._seconds(self.costs[OneWay(head, done, to, a)]))
            steps.append(OneWayStep(to, best))
            done |= {to}
        return tuple(steps)

    def _seconds(self, cost: Cost) -> float:
        line = self.setting.line("A", "B")
        return cost._replace(processing_s=0.0).seconds(line, line)

    def _sequences(self, head: str) -> Iterator[Sequence]:
        """Of every order six, in which every step has every algorithm once."""
        for order in orders(self.streams.query, head):
            for first in range(len(PAPER)):
                yield tuple(OneWayStep(to, PAPER[(first + n) % len(PAPER)]) for n, to in enumerate(order))

    def _verify(self, what: str, found: Execution, head: str | None) -> None:
        if head not in self._right:
            self._right[head] = ask_duckdb(self.streams, head)
        self.results += verify(what, found.answer, self._right[head]).results
        self.runs += 1


def orders(query: SiteQuery, head: str) -> Iterator[tuple[str, ...]]:
    """The orders in which every stream is connected with those before it."""
    for order in permutations([a for a in query.aliases if a != head]):
        if all(query.between([head, *order[:n]], to) for n, to in enumerate(order)):
            yield order


def count_plans(query: SiteQuery) -> int:
    """How many linear plans a query has, with the six algorithms."""
    plans = 1
    for head in query.aliases:
        plans *= len(list(orders(query, head))) * len(PAPER) ** (len(query.aliases) - 1)
    return plans


def _joins(head: str, steps: Sequence) -> list[OneWay]:
    done, out = frozenset({head}), list[OneWay]()
    for step in steps:
        out.append(OneWay(head, done, step.to, step.algorithm))
        done |= {step.to}
    return out
