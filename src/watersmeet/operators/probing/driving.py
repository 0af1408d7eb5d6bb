"""Driver selection: in which order the sides whose tuples wait in a batch are processed, and how.

    waiting  a 900    b 100    c 4,000           tuples in the batch's buffers, which are the inbox
    stored   a 10^5   b 10^6   c 10^5            tuples in the tables
    order    c, a, b                             by the plan's policy, from what the unit has measured
    turn 1   c leaves the inbox, its results leave the unit        inbox  a, b
    turn 2   a leaves the inbox, its results leave the unit        inbox  b

The paper's policies are one function each. `auto` adds what the paper leaves open, a cost of an order:

    cost of driver j after the drivers in D  =  sum over its probes of  lookups + MATCH x matches
    objective                                =  sum over drivers of  cost x (1 + EARLY x share of results still to come)

After the drivers in D the results so far do not depend on the order inside D, so the best order is found exactly, subset by
subset. Since the second factor is between 1 and 1 + EARLY, the order's estimated cost is at most EARLY above the least; among
orders that cost the same, the one whose results come early wins.

Statistics fade by half from batch to batch. A buffer is opened when its turn has come: what waits is as it was sent, and what
has been consumed is the unit's segment alone. Policies that go tuple by tuple open all buffers first, and so does a unit that
may sweep the batch: whether that is cheaper is seen from all new tuples' times. A sweep takes all drivers at once.

Invariant: an order is a permutation of the sides, and depends on the inbox and the manifest only. No order changes a result: a
combination is made by the last of its new members, whichever that is. A driver's results have left before the next driver begins. Ties: the
position of the side.
Implements: Valsomatzis and Gounaris (2013), sections 3.1 and 3.2, table 1, equation 1, figures 2 to 4.
Departs from the paper: selectivities are measured, not known. Table 2 prints the selectivity of the whole join where it
should have that of each stream (I to IV: all equal either way). Tuple-at-a-time policies look up a slice of the order at once, in which every tuple
meets exactly those that it would meet tuple by tuple; only the order of results inside a slice differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np

from watersmeet.operators.probing.multiway import Multiway
from watersmeet.operators.probing.side import Bound, VisibleSide
from watersmeet.plan.model import EARLY, INTERLEAVED, Policy
from watersmeet.plan.order import probe_order
from watersmeet.storage.segment import Segment

MATCH = 0.25
"""What a match costs, in look-ups: it is copied and, if it is no result yet, looks up again, which is counted apart."""
MOST_EXACT = 7
"""With more inputs `auto` is `initial_output_size`: sets of drivers double with every input."""
SLICE = 8192
"""How many tuples of all sides a tuple-at-a-time policy looks up together."""
RESULTS, COMBINATIONS, TUPLES = "results", "combinations", "tuples "
"""Names of statistics; the last is followed by a side."""


Selectivity = Callable[[frozenset[str], str], float | None]
"""(bound inputs, probed input) to matches per partial result and stored tuple; None where nothing was measured."""


@dataclass(frozen=True)
class WaitingInput:
    """An input when a batch begins: |buffer_j| and |ht_j|."""

    name: str
    buffered: int
    stored: int


@dataclass(frozen=True)
class DriverMeasures:
    """Statistics of earlier batches; empty before the first."""

    results: float = 0.0
    """|Mjoin| of the batches remembered."""
    combinations: float = 0.0
    """Combinations that these results are a part of: the product of the tables, as it grew."""
    tuples: Mapping[str, float] = field(default_factory=dict)
    """|S_j| of the batches remembered."""
    selectivity: Selectivity = lambda bound, y: None
    sequence: Callable[[str], Sequence[str]] | None = None
    """The probe sequence of a driver; without one, the other inputs by position."""


def mjoin_selectivity(results: float, combinations: float) -> float:
    """sigma_Mjoin = |Mjoin| / (|S_1| x ... x |S_M|); 1 before anything was measured, and one result where there was none: then only sizes count.

    >>> mjoin_selectivity(5e6, 1e18), mjoin_selectivity(0, 0), mjoin_selectivity(0, 1e6)
    (5e-12, 1.0, 1e-06)
    """
    return max(results, 1.0) / combinations if combinations >= 1 else 1.0


def stream_selectivity(results: float, tuples: float) -> float:
    """sigma_Sj = |Mjoin| / |S_j|: results per tuple of the stream; one result where there was none.

    >>> stream_selectivity(1e6, 1e5), stream_selectivity(0, 10)
    (10.0, 0.1)
    """
    return max(results, 1.0) / tuples if tuples > 0 else 0.0


def round_off(value: float) -> float:
    """Without the last digits: estimates that differ by rounding alone are equal, and then the position decides.

    >>> round_off(0.1 + 0.2) == round_off(0.3)
    True
    """
    return float(f"{value:.9g}")


def output_size(buffered: int, selectivity: float, others: Sequence[int]) -> float:
    """outBuffer_j = |buffer_j| x sigma_Mjoin x product of |ht_l| over the other inputs l (equation 1).

    >>> output_size(100, 1e-3, [10, 20])
    20.0
    """
    return buffered * selectivity * prod(others)


def output_rate(size: float, buffered: int) -> float:
    """outRate_j = outBuffer_j / |buffer_j|."""
    return size / buffered if buffered else 0.0


def order(policy: Policy, inputs: Sequence[WaitingInput], measured: DriverMeasures) -> tuple[str, ...]:
    """The inputs in the order in which their buffers are processed; interleaving policies have none, see `INTERLEAVED`.

    >>> inputs = [WaitingInput("a", 10, 1000), WaitingInput("b", 10, 10), WaitingInput("c", 30, 1000)]
    >>> order("initial_output_size", inputs, DriverMeasures()), order("output_rate", inputs, DriverMeasures())
    (('b', 'c', 'a'), ('b', 'a', 'c'))
    >>> order("consumption_rate", inputs, DriverMeasures(10, 1e6, {"a": 5, "b": 20, "c": 10}))
    ('b', 'c', 'a')
    """
    if policy == "consumption_rate":
        sigma = {i.name: stream_selectivity(measured.results, measured.tuples.get(i.name, 0.0)) for i in inputs}
        return tuple(sorted((i.name for i in inputs), key=lambda name: round_off(sigma[name])))
    if policy == "initial_output_size":
        return _greedy(inputs, lambda i, size: size, measured)
    if policy == "output_rate":
        return _greedy(inputs, lambda i, size: output_rate(size, i.buffered), measured)
    if policy == "auto":
        return cheapest(inputs, measured)
    return tuple(i.name for i in inputs)


def _greedy(
    inputs: Sequence[WaitingInput], value: Callable[[WaitingInput, float], float], measured: DriverMeasures
) -> tuple[str, ...]:
    """Again and again the input of highest value; a processed buffer has joined its table."""
    selectivity = mjoin_selectivity(measured.results, measured.combinations)
    left, stored, out = list(inputs), {i.name: i.stored for i in inputs}, list[str]()
    while left:
        values = [
            round_off(
                value(i, output_size(i.buffered, selectivity, [n for name, n in stored.items() if name != i.name]))
            )
            for i in left
        ]
        best = left.pop(values.index(max(values)))
        stored[best.name] += best.buffered
        out.append(best.name)
    return tuple(out)


@dataclass
class OrderEstimate:
    """What an order is expected to cost: inputs by number, a set of drivers as bits."""

    inputs: Sequence[WaitingInput]
    measured: DriverMeasures

    def __post_init__(self) -> None:
        self._number = {i.name: n for n, i in enumerate(self.inputs)}
        count = len(self.inputs)
        done = np.arange(1 << count)
        self._rows = [
            np.where(done >> n & 1, float(i.stored + i.buffered), float(i.stored)) for n, i in enumerate(self.inputs)
        ]
        """Tuples in every table, by the set of drivers done."""
        made = np.prod(self._rows, axis=0)
        made -= made[0]
        self.to_come = 1 - made / made[-1] if made[-1] else np.zeros(len(done))
        """The share of the batch's results that the drivers of a set have not made."""
        self.cost = [self._cost(n) for n in range(count)]
        """Of every driver's buffer, by the set of drivers done before it; in look-ups."""

    def _steps(self, driver: str) -> list[tuple[int, float | None]]:
        """(input, selectivity) of every probe of a driver."""
        others = [i.name for i in self.inputs if i.name != driver]
        steps, bound = [], {driver}
        for name in others if self.measured.sequence is None else self.measured.sequence(driver):
            steps.append((self._number[name], self.measured.selectivity(frozenset(bound), name)))
            bound.add(name)
        return steps

    def _cost(self, driver: int) -> np.ndarray:
        partial = np.full(len(self.to_come), float(self.inputs[driver].buffered))
        total = np.zeros(len(partial))
        for y, selectivity in self._steps(self.inputs[driver].name):
            total += partial
            partial = partial * (np.minimum(self._rows[y], 1) if selectivity is None else selectivity * self._rows[y])
            total += MATCH * partial
        return total

    def objective(self) -> list[list[float]]:
        """Every driver's part of what `auto` minimises, by the set done before; its results come while it runs."""
        done = np.arange(len(self.to_come))
        waiting = [(self.to_come + self.to_come[done | 1 << n]) / 2 for n in range(len(self.cost))]
        return [(cost * (1 + EARLY * late)).tolist() for cost, late in zip(self.cost, waiting, strict=True)]

    def total(self, names: Sequence[str]) -> float:
        """The cost of an order."""
        done, total = 0, 0.0
        for n in (self._number[name] for name in names):
            total += float(self.cost[n][done])
            done |= 1 << n
        return total


def cheapest(inputs: Sequence[WaitingInput], measured: DriverMeasures) -> tuple[str, ...]:
    """The order that minimises the objective: exact, by dynamic programming over sets of drivers.

    >>> thin = {("c", "a"): 1e-3, ("c", "b"): 1.0}
    >>> measured = DriverMeasures(selectivity=lambda bound, y: thin.get((*bound, y), 1e-6))
    >>> cheapest([WaitingInput("a", 1000, 1000), WaitingInput("b", 1000, 1000), WaitingInput("c", 1000, 1000)], measured)
    ('b', 'c', 'a')
    """
    count = len(inputs)
    if count > MOST_EXACT:
        return order("initial_output_size", inputs, measured)
    objective = OrderEstimate(inputs, measured).objective()
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for done in range(1 << count):
        so_far, path = best[done]
        for n in range(count):
            if not done >> n & 1:
                found = (so_far + objective[n][done], (*path, n))
                known = best.get(done | 1 << n, found)
                best[done | 1 << n] = min(known, found, key=lambda one: (round_off(one[0]), one[1]))
    return tuple(inputs[n].name for n in best[(1 << count) - 1][1])


class DriverStats:
    """Measured results, combinations and tuples; old batches fade by half. JSON: a few numbers."""

    def __init__(self, memory: Mapping[str, float]) -> None:
        self._fading = {name: value / 2 for name, value in memory.items()}

    def record(self, results: int, combinations: float, tuples: Mapping[str, int]) -> None:
        """Add a batch."""
        more = {RESULTS: results, COMBINATIONS: combinations, **{TUPLES + side: n for side, n in tuples.items()}}
        for name, value in more.items():
            self._fading[name] = self._fading.get(name, 0.0) + value

    def memory(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in self._fading.items()}

    def summarize(self, selectivity: Selectivity, sequence: Callable[[str], Sequence[str]] | None) -> DriverMeasures:
        """What a policy may know."""
        tuples = {n.removeprefix(TUPLES): v for n, v in self._fading.items() if n.startswith(TUPLES)}
        results, combinations = (self._fading.get(name, 0.0) for name in (RESULTS, COMBINATIONS))
        return DriverMeasures(results, combinations, tuples, selectivity, sequence)


class DriverReport(Protocol):
    """Receives what ran."""

    drivers: list[str]
    policy: str


class Driving:
    """One step's drivers: `buffered` rows of every side wait in the inbox."""

    def __init__(self, join: Multiway, buffered: Sequence[int], stats: DriverStats, report: DriverReport) -> None:
        self.join, self.stats, self.report = join, stats, report
        self.waiting = [
            WaitingInput(s.spec.name, n, int(s.offsets[-1])) for s, n in zip(join.sides, buffered, strict=True)
        ]
        self._waiting = {*range(len(self.waiting))}
        self._results = 0

    def turns(self, consume: Callable[[int], Segment | None]) -> Iterator[Iterator[Bound]]:
        """Every driver's combinations; `consume` takes the buffer of the side with a number out of the inbox."""
        policy, sides = self.join.plan.driver, self.join.sides
        self.report.policy = policy
        if policy in INTERLEAVED or self.join.needs_all:
            self._open(range(len(sides)), consume)
        if self.join.needs_all and self.join.sweep is not None:
            yield self._count_results(self._together(self.join.sweep_all()))
        elif policy in INTERLEAVED:
            yield self._count_results(
                self._together(self.join.interleave(ranks(sides, policy == "round_robin"), SLICE))
            )
        else:
            numbers = {s.spec.name: n for n, s in enumerate(sides)}
            for name in order(policy, self.waiting, self._summarize()):
                yield self._count_results(self._drive(numbers[name], consume))
        self._measure()

    def _open(self, numbers: Iterable[int], consume: Callable[[int], Segment | None]) -> None:
        """Open buffers that still wait."""
        for number in self._waiting & {*numbers}:
            self._waiting.remove(number)
            self.join.sides[number].admit(consume(number))

    def _drive(self, number: int, consume: Callable[[int], Segment | None]) -> Iterator[Bound]:
        self._open([number], consume)
        side = self.join.sides[number]
        if side.new is not None:
            self.report.drivers.append(side.spec.name)
        yield from self.join.drive(side)

    def _together(self, found: Iterator[Bound]) -> Iterator[Bound]:
        """All drivers at once."""
        names = [s.spec.name for s in self.join.sides if s.new is not None]
        if names:
            self.report.drivers.append(" | ".join(names))
            yield from found

    def _summarize(self) -> DriverMeasures:
        """Fan-outs are kept by the aliases that are bound, and sides have several; two sides need no probe sequence."""
        plan, stats = self.join.plan, self.join.stats
        aliases = {s.spec.name: s.spec.aliases for s in self.join.sides}
        return self.stats.summarize(
            lambda bound, y: stats.selectivity(frozenset(a for name in bound for a in aliases[name]), y),
            None if len(aliases) == 2 else lambda driver: probe_order(plan, driver, stats),
        )

    def _count_results(self, found: Iterator[Bound]) -> Iterator[Bound]:
        for bound in found:
            self._results += len(next(iter(bound.values())))
            yield bound

    def _measure(self) -> None:
        """A batch's combinations are those of all tuples less those of the old ones, whatever the order was."""
        stored = [w.stored for w in self.waiting]
        new = {s.spec.name: len(s.new_idx) for s in self.join.sides}
        whole = [n + more for n, more in zip(stored, new.values(), strict=True)]
        self.stats.record(self._results, float(prod(whole) - prod(stored)), new)


def ranks(sides: Sequence[VisibleSide], in_turn: bool) -> dict[str, np.ndarray]:
    """For every side's new tuples their place in the order of time, or, in turn, in that of the oldest of each side.

    Ties: the number of the side, then the row.
    """
    times = [s.new.ts if s.new is not None else np.empty(0, np.int64) for s in sides]
    side_of = np.repeat(np.arange(len(sides)), [len(t) for t in times])
    if in_turn:
        places = []
        for t in times:
            place = np.empty(len(t), np.int64)
            place[np.argsort(t, kind="stable")] = np.arange(len(t))
            places.append(place)
        in_order = np.lexsort((side_of, np.concatenate(places)))
    else:
        in_order = np.lexsort((side_of, np.concatenate(times)))
    rank = np.empty(len(in_order), np.int64)
    rank[in_order] = np.arange(len(in_order))
    parts = np.split(rank, np.cumsum([len(t) for t in times])[:-1])
    return {s.spec.name: part for s, part in zip(sides, parts, strict=True)}
