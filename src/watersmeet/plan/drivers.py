"""Driver selection: in which order the inputs whose tuples wait in a batch are processed.

    waiting   a 900    b 100    c 4,000        tuples in the batch's buffers
    stored    a 10^5   b 10^6   c 10^5         tuples in the tables
    order     c, a, b: the whole buffer of c, then that of a, then that of b

The paper's policies are one function each. `auto` adds what the paper leaves open, a cost of an order:

    cost of driver j after the drivers in D  =  sum over its probes of  lookups + MATCH x matches
    objective                                =  sum over drivers of  cost x (1 + EARLY x share of results still to come)

After the drivers in D the results so far do not depend on the order inside D, so the best order is found exactly, subset by
subset. Since the second factor is between 1 and 1 + EARLY, the order's estimated cost is at most EARLY above the least; among
orders that cost the same, the one whose results come early wins.

Invariant: an order is a permutation of the inputs and depends on the counts given only. No order changes a result: a
combination is made by the last of its new members, whichever that is. Ties: the position of the input.
Implements: Valsomatzis and Gounaris (2013), section 3.2, table 1, equation 1, figures 2 to 4.
Departs from the paper: selectivities are measured, not known. Table 2 prints the selectivity of the whole join where it
should have that of each stream (I to IV: all equal either way).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, get_args

import numpy as np

Policy = Literal["auto", "timestamp", "round_robin", "consumption_rate", "initial_output_size", "output_rate"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
INTERLEAVED = ("timestamp", "round_robin")
"""Policies that go from input to input tuple by tuple; all others take a buffer whole."""
MATCH = 0.25
"""What a match costs, in look-ups: it is copied and, if it is no result yet, looks up again, which is counted apart."""
EARLY = 0.02
"""How much of the cost `auto` gives for early results, at most."""
MOST_EXACT = 7
"""With more inputs `auto` is `initial_output_size`: sets of drivers double with every input."""
WHY: Mapping[str, str] = {
    "timestamp": "tuples in the order of time, whichever input they are of, a slice of the batch at a time",
    "round_robin": "the oldest waiting tuple of each input in turn, a slice of the batch at a time",
    "consumption_rate": "fewest results per tuple first, so that buffers empty early",
    "initial_output_size": "most results expected from its buffer first",
    "output_rate": "most results expected per tuple first",
    "auto": f"the order of least estimated cost, up to {EARLY:.0%} more for early results",
}

Selectivity = Callable[[frozenset[str], str], float | None]
"""(bound inputs, probed input) to matches per partial result and stored tuple; None where nothing was measured."""


@dataclass(frozen=True)
class Waiting:
    """An input when a batch begins: |buffer_j| and |ht_j|."""

    name: str
    buffered: int
    stored: int


@dataclass(frozen=True)
class Measured:
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
    """sigma_Mjoin = |Mjoin| / (|S_1| x ... x |S_M|); 1 before anything was measured: then only sizes count.

    >>> mjoin_selectivity(5e6, 1e18), mjoin_selectivity(0, 0)
    (5e-12, 1.0)
    """
    return results / combinations if combinations >= 1 else 1.0


def stream_selectivity(results: float, tuples: float) -> float:
    """sigma_Sj = |Mjoin| / |S_j|: results per tuple of the stream.

    >>> stream_selectivity(1e6, 1e5)
    10.0
    """
    return results / tuples if tuples > 0 else 0.0


def output_size(buffered: int, selectivity: float, others: Sequence[int]) -> float:
    """outBuffer_j = |buffer_j| x sigma_Mjoin x product of |ht_l| over the other inputs l (equation 1).

    >>> output_size(100, 1e-3, [10, 20])
    20.0
    """
    return buffered * selectivity * prod(others)


def output_rate(size: float, buffered: int) -> float:
    """outRate_j = outBuffer_j / |buffer_j|."""
    return size / buffered if buffered else 0.0


def order(policy: Policy, inputs: Sequence[Waiting], measured: Measured) -> tuple[str, ...]:
    """The inputs in the order in which their buffers are processed; interleaving policies have none, see `INTERLEAVED`.

    >>> inputs = [Waiting("a", 10, 1000), Waiting("b", 10, 10), Waiting("c", 30, 1000)]
    >>> order("initial_output_size", inputs, Measured()), order("output_rate", inputs, Measured())
    (('b', 'c', 'a'), ('b', 'a', 'c'))
    >>> order("consumption_rate", inputs, Measured(10, 1e6, {"a": 5, "b": 20, "c": 10}))
    ('b', 'c', 'a')
    """
    if policy == "consumption_rate":
        sigma = {i.name: stream_selectivity(measured.results, measured.tuples.get(i.name, 0.0)) for i in inputs}
        return tuple(sorted((i.name for i in inputs), key=lambda name: sigma[name]))
    if policy == "initial_output_size":
        return _greedy(inputs, lambda i, size: size, measured)
    if policy == "output_rate":
        return _greedy(inputs, lambda i, size: output_rate(size, i.buffered), measured)
    if policy == "auto":
        return cheapest(inputs, measured)
    return tuple(i.name for i in inputs)


def _greedy(inputs: Sequence[Waiting], value: Callable[[Waiting, float], float], measured: Measured) -> tuple[str, ...]:
    """Again and again the input of highest value; a processed buffer has joined its table."""
    selectivity = mjoin_selectivity(measured.results, measured.combinations)
    left, stored, out = list(inputs), {i.name: i.stored for i in inputs}, list[str]()
    while left:
        values = [
            value(i, output_size(i.buffered, selectivity, [n for name, n in stored.items() if name != i.name]))
            for i in left
        ]
        best = left.pop(values.index(max(values)))
        stored[best.name] += best.buffered
        out.append(best.name)
    return tuple(out)


@dataclass
class Estimate:
    """What an order is expected to cost: inputs by number, a set of drivers as bits."""

    inputs: Sequence[Waiting]
    measured: Measured

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


def cheapest(inputs: Sequence[Waiting], measured: Measured) -> tuple[str, ...]:
    """The order that minimises the objective: exact, by dynamic programming over sets of drivers.

    >>> thin = {("c", "a"): 1e-3, ("c", "b"): 1.0}
    >>> measured = Measured(selectivity=lambda bound, y: thin.get((*bound, y), 1e-6))
    >>> cheapest([Waiting("a", 1000, 1000), Waiting("b", 1000, 1000), Waiting("c", 1000, 1000)], measured)
    ('b', 'c', 'a')
    """
    count = len(inputs)
    if count > MOST_EXACT:
        return order("initial_output_size", inputs, measured)
    objective = Estimate(inputs, measured).objective()
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for done in range(1 << count):
        so_far, path = best[done]
        for n in range(count):
            if not done >> n & 1:
                found = (so_far + objective[n][done], (*path, n))
                best[done | 1 << n] = min(best.get(done | 1 << n, found), found)
    return tuple(inputs[n].name for n in best[(1 << count) - 1][1])
