"""Sites of a query over simulated lines: the letters of the engine, each under way for as long as its line takes.

    paris   --|------|------|--     a site runs a batch at the end of every interval, with what has come by then
    tokyo   --|------|------|--         letter: waits for the line, bytes / bandwidth, latency, jitter

A tuple arrives at the highest event time that its stream has had so far: in the order of the table, and never before it happened. When the tables have ended, sites go on
as long as letters come that results may follow from.

Invariant: what sites do is what they do in any other process: `AcrossSites` plays their batches, and only letters pass between them. Results do not depend on the lines.
Implements: Tran and Lee (2010), section 2.2: the execution interval; its bound on delays is not needed, since letters say how far sites are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.errors import OptionError
from watersmeet.plan.model import TIME, Plan
from watersmeet.runtime.across import AcrossSites
from watersmeet.sites.letter import Letter
from watersmeet_lab.simulate.network import Network, Simulation

MOST_INTERVALS = 1_000_000


class OverLines(AcrossSites):
    """The sites of a plan, over a network."""

    def __init__(self, plan: Plan, network: Network, units: int = 1) -> None:
        super().__init__(plan, units, exact=True)
        self.simulation = Simulation(network)
        self.heartbeats, self.under_way, self.first_us = 0, 0, 0
        """Letters that bring no table; letters under way that results may follow from; the event time at which the simulation begins."""
        for name in self.sites:
            self.simulation.enter(name, lambda sender, letter, to=name: self._receive(sender, to, *letter))  # type: ignore[misc]

    def carry(self, letter: Letter, size: int, *, matters: bool) -> None:
        self.heartbeats += not letter.items
        self.under_way += matters
        self.simulation.send(letter.sender, letter.to, (letter, matters), rows=letter.rows, nbytes=size)

    def _receive(self, sender: str, to: str, letter: Letter, matters: bool) -> None:
        self.lines.setdefault((sender, to), []).append(letter)
        if matters:
            self.under_way -= 1
            self.awaited.add(to)


class SimulatedSites:
    """One run over whole tables, given as wire rows by alias."""

    def __init__(
        self,
        plan: Plan,
        wires: Mapping[str, pa.Table],
        network: Network,
        carrier: Callable[[Plan, Network, int], OverLines] = OverLines,
    ) -> None:
        _check_order(plan, network)
        self.across = carrier(plan, network, max(1, plan.units_wanted))
        self.wires, self.arrivals = wires, {alias: _find_arrivals(wire) for alias, wire in wires.items()}
        times = [found for found in self.arrivals.values() if len(found)]
        self.first_us = self.across.first_us = min((int(found[0]) for found in times), default=0)
        self.last_us = max((int(found[-1]) for found in times), default=0)
        self.interval_us, self.intervals = network.interval_us, 0
        if (self.last_us - self.first_us) // self.interval_us >= MOST_INTERVALS:
            raise OptionError(
                f"interval_us={self.interval_us}: the streams span more than {MOST_INTERVALS:,} intervals; give a longer one"
            )
        self.found: list[pa.Table] = []
        self.latest_us = 0
        """How long after the end of the last interval with tuples a result was found."""

    def run(self) -> tuple[list[pa.Table], dict[str, Any]]:
        """All intervals, until no letter is under way that results may follow from; results, and what was counted."""
        self.simulation.at(self.interval_us, lambda: self._act(0))
        self.simulation.run()
        return self.found, self._count()

    @property
    def simulation(self) -> Simulation:
        return self.across.simulation

    def _act(self, number: int) -> None:
        """The batches of all sites at the end of an interval."""
        begin = self.first_us + number * self.interval_us
        ended, self.intervals = begin > self.last_us, number + 1
        wires = dict(self._between(begin, begin + self.interval_us))
        found = self.across.push(wires, ended=ended)
        if any(table.num_rows for table in found):
            over = self.last_us - self.first_us
            self.latest_us = max(0, self.simulation.now_us - (over // self.interval_us + 1) * self.interval_us)
        self.found += found
        if not ended or self.across.awaited or self.across.under_way:
            self.simulation.at((number + 2) * self.interval_us, lambda: self._act(number + 1))

    def _between(self, begin: int, end: int) -> Iterator[tuple[str, pa.Table]]:
        for alias, times in self.arrivals.items():
            first, last = np.searchsorted(times, (begin, end))
            yield alias, self.wires[alias].slice(first, last - first)

    def _count(self) -> dict[str, Any]:
        traffic = self.simulation.traffic
        totals = [sum(getattr(t, name) for t in traffic.values()) for name in ("messages", "rows", "bytes")]
        return {
            "pairs": {f"{s} > {r}": [t.messages, t.rows, t.bytes] for (s, r), t in traffic.items()},
            **dict(zip(("shipments", "rows", "bytes"), totals, strict=True)),
            "heartbeats": self.across.heartbeats,
            "intervals": self.intervals,
            "latest_us": self.latest_us,
            "simulated_us": self.simulation.now_us,
            "changes": list(self.across.changes),
            "late": {stream: self.across.late.get(stream, 0) for stream in self.across.plan.join.streams},
        }


def _find_arrivals(wire: pa.Table) -> np.ndarray:
    """When rows arrive; a row without a time comes with the one before it."""
    if not wire.num_rows:
        return np.empty(0, np.int64)
    column = wire.column(TIME).combine_chunks()
    times = np.full(wire.num_rows, np.iinfo(np.int64).min)
    known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    times[known] = integers(column.drop_null())
    times = np.maximum.accumulate(times)
    return np.maximum(times, times[known].min(initial=np.iinfo(np.int64).max) if known.any() else 0)


def _check_order(plan: Plan, network: Network) -> None:
    for a in plan.site_names:
        for b in plan.site_names:
            link = network.link(a, b)
            if link.jitter_us and link.arrival != "in order":
                raise OptionError(
                    f"the line from {a} to {b} reorders letters, and sites take them in order; give Link(arrival='in order')"
                )
