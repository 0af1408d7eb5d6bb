"""Who drives when: a batch's buffers in the order that the plan's policy chooses from what the unit has measured.

    inbox    a [900 rows]  b [100]  c [4,000]        order c, a, b
    turn 1   c leaves the inbox, its results leave the unit        inbox  a, b
    turn 2   a leaves the inbox, its results leave the unit        inbox  b

Statistics fade by half from batch to batch. A buffer is opened when its turn has come: what waits is as it was sent, and what
has been consumed is the unit's segment alone. Policies that go tuple by tuple open all buffers first, and so does a unit that
may sweep the batch: whether that is cheaper is seen from all new tuples' times. A sweep takes all drivers at once.

Invariant: a driver's results have left before the next driver begins; the order depends on the inbox and the manifest only.
Implements: Valsomatzis and Gounaris (2013), sections 3.1 and 3.2; the order itself is `plan.drivers`.
Departs from the paper: tuple-at-a-time policies look up a slice of the order at once, in which every tuple meets exactly those
that it would meet tuple by tuple; only the order of results inside a slice differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Protocol

import numpy as np

from watersmeet.plan.drivers import INTERLEAVED, Measured, Selectivity, Waiting, order
from watersmeet.plan.order import probe_order
from watersmeet.units.multiway import WHOLE, Multiway
from watersmeet.units.segment import Segment
from watersmeet.units.side import Side
from watersmeet.units.wide_rows import Bound

SLICE = 8192
"""How many tuples of all sides a tuple-at-a-time policy looks up together."""
RESULTS, COMBINATIONS, TUPLES = "results", "combinations", "tuples "
"""Names of statistics; the last is followed by a side."""


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

    def measured(self, selectivity: Selectivity, sequence: Callable[[str], Sequence[str]] | None) -> Measured:
        """What a policy may know."""
        tuples = {n.removeprefix(TUPLES): v for n, v in self._fading.items() if n.startswith(TUPLES)}
        results, combinations = (self._fading.get(name, 0.0) for name in (RESULTS, COMBINATIONS))
        return Measured(results, combinations, tuples, selectivity, sequence)


class Report(Protocol):
    """Where it is said what ran."""

    drivers: list[str]
    policy: str


class Driving:
    """One step's drivers: `buffered` rows of every side wait in the inbox."""

    def __init__(self, join: Multiway, buffered: Sequence[int], stats: DriverStats, report: Report) -> None:
        self.join, self.stats, self.report = join, stats, report
        self.waiting = [Waiting(s.spec.name, n, int(s.offsets[-1])) for s, n in zip(join.sides, buffered, strict=True)]
        self._waiting = {*range(len(self.waiting))}
        self._results = 0

    def turns(self, consume: Callable[[int], Segment | None]) -> Iterator[Iterator[Bound]]:
        """Every driver's combinations; `consume` takes the buffer of the side with a number out of the inbox."""
        policy, sides = self.join.plan.driver, self.join.sides
        self.report.policy = policy
        if policy in INTERLEAVED or self.join.takes_all:
            self._open(range(len(sides)), consume)
        if self.join.takes_all and self.join.kernel in WHOLE:
            yield self._counted(self._together(self.join.whole()))
        elif policy in INTERLEAVED:
            yield self._counted(self._together(self.join.interleave(ranks(sides, policy == "round_robin"), SLICE)))
        else:
            numbers = {s.spec.name: n for n, s in enumerate(sides)}
            for name in order(policy, self.waiting, self._measured()):
                yield self._counted(self._driven(numbers[name], consume))
        self._measure()

    def _open(self, numbers: Iterable[int], consume: Callable[[int], Segment | None]) -> None:
        """Open buffers that still wait."""
        for number in self._waiting & {*numbers}:
            self._waiting.remove(number)
            self.join.sides[number].admit(consume(number))

    def _driven(self, number: int, consume: Callable[[int], Segment | None]) -> Iterator[Bound]:
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

    def _measured(self) -> Measured:
        """Fan-outs are kept by the aliases that are bound, and sides have several; two sides need no probe sequence."""
        plan, stats = self.join.plan, self.join.stats
        aliases = {s.spec.name: s.spec.aliases for s in self.join.sides}
        return self.stats.measured(
            lambda bound, y: stats.selectivity(frozenset(a for name in bound for a in aliases[name]), y),
            None if len(aliases) == 2 else lambda driver: probe_order(plan, driver, stats),
        )

    def _counted(self, found: Iterator[Bound]) -> Iterator[Bound]:
        for bound in found:
            self._results += len(next(iter(bound.values())))
            yield bound

    def _measure(self) -> None:
        """A batch's combinations are those of all tuples less those of the old ones, whatever the order was."""
        stored = [w.stored for w in self.waiting]
        new = {s.spec.name: len(s.new_idx) for s in self.join.sides}
        whole = [n + more for n, more in zip(stored, new.values(), strict=True)]
        self.stats.record(self._results, float(prod(whole) - prod(stored)), new)


def ranks(sides: Sequence[Side], in_turn: bool) -> dict[str, np.ndarray]:
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
