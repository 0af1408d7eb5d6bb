"""A site's part of a query as a dataflow: its own streams enter, its units join, and what other sites are sent is left in their state.

    round 0    new tuples, and what other sites have sent
    round r    rows of this site's other units; results leave in the last round

Invariant: results of all sites together are the query's, whatever the plan and however long letters take.
Implements: Tran and Lee (2010), section 4.1 on top of `sites.unit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import (
    HERE,
    Dataflow,
    Flows,
    FlowStage,
    Intake,
    Message,
    Onward,
    Origin,
    Turn,
    Yielded,
)
from watersmeet.operators.enter import take_kept
from watersmeet.operators.join import Out
from watersmeet.plan.model import Plan
from watersmeet.sites.deal import deal_tuples
from watersmeet.sites.kept import Kept
from watersmeet.sites.paths import Paths, paths_of
from watersmeet.sites.station import SiteState, Station
from watersmeet.sites.unit import SiteUnit


@dataclass(frozen=True)
class SiteEntry:
    """Tuples of a stream that arrives at the site, to the units that keep them."""

    plan: Plan
    paths: Paths
    position: int
    units: int
    stage: int = 0

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        source = self.plan.inputs[self.position]
        rows, seen = take_kept(source, wire)
        parts = deal_tuples(self.plan, self.paths, self.position, rows, self.units)
        return seen, (Message(unit, source.alias, part) for unit, part in parts if part.num_rows)


@dataclass(frozen=True)
class SiteUnits:
    """The units of a site in one batch, which has this state."""

    station: Station
    state: SiteState
    onward: Onward
    last: int

    def step(self, turn: Turn) -> Iterator[Yielded]:
        messages: list[Message] = []
        yield from self.onward(self._results(turn, messages))
        yield from messages

    def _results(self, turn: Turn, messages: list[Message]) -> Iterator[pa.Table]:
        station, plan = self.station, self.station.plan
        if turn.round == 0:
            Kept(turn.state, turn.store).settle(self.state.cuts, station.retention)
        spans = station.spans(self.state, station.own(turn.clock.after, self.state))
        for item in SiteUnit(plan, station.homes, spans, turn, self.last).step():
            if isinstance(item, Message):
                messages.append(item)
            else:
                yield item
        turn.report.watermarks = turn.clock.after
        turn.report.retained = {a: n for a, n in turn.state.rows().items() if a in plan.aliases}
        turn.report.bytes = turn.state.bytes()

    def cuts(self, clock: Clock) -> dict[str, int]:
        """What is dead is in the state of the next batch, which its units apply."""
        return {}


@dataclass(frozen=True)
class SiteFlows(Flows):
    """The dataflows of a site: batches differ in what the site has been told."""

    station: Station
    plan: Intake
    """What enters here."""

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        station = self.station
        last = 0 if station.units == 1 else len(station.plan.aliases)
        state = SiteState.of(decisions.get("sites") or {})
        stage = FlowStage(SiteUnits(station, state, Out(station.plan), last), station.units, wakes=True)
        paths = paths_of(station.plan)
        entries = {station.plan.aliases[n]: SiteEntry(station.plan, paths, n, station.units) for n in station.homes}
        streams = {name: spec for name, spec in station.plan.streams.items() if name in station.streams}
        return Dataflow(streams, (stage,), entries, last + 1, (0,))
