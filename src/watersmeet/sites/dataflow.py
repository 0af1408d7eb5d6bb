"""A site's part of a query as a dataflow: its own streams enter, its units join, and what other sites are sent is left in their state.

    round 0    new tuples, and what other sites have sent
    round r    rows of this site's other units; results leave in the last round
    then       where all results are, units that keep rows or groups

Invariant: results of all sites together are the query's, whatever the plan and however long letters take.
Implements: Tran and Lee (2010), section 4.1 on top of `sites.one_way.unit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import Clock, Promise, Seen
from watersmeet.dataflow.contract import (
    HERE,
    Dataflow,
    Flows,
    FlowStage,
    Intake,
    Message,
    Onward,
    Operator,
    Origin,
    Turn,
    Yielded,
)
from watersmeet.operators.assemble import make_keepers
from watersmeet.operators.enter import LONE, split, take_counted
from watersmeet.operators.onward import Out, ToKeepers
from watersmeet.plan.model import Plan
from watersmeet.plan.source_sql import OWN
from watersmeet.sites.one_way.deal import deal_tuples
from watersmeet.sites.one_way.kept import Kept
from watersmeet.sites.one_way.rows_windows import drop_ended
from watersmeet.sites.one_way.unit import Outbox, SiteUnit
from watersmeet.sites.paths import Paths
from watersmeet.sites.site_state import SiteState
from watersmeet.sites.station import Station


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
        rows, seen = take_counted(source, wire)
        lone = rows.slice(0, 0)
        if OWN in rows.column_names:  # what fails its own conditions, or lacks a key, has no partner
            rows, lone = split(rows.drop_columns([OWN]), rows.column(OWN).fill_null(False))
        parts = deal_tuples(self.plan, self.paths, self.position, rows, self.units)
        sent = (Message(unit, source.alias, part) for unit, part in parts if part.num_rows)
        return seen, chain(sent, [Message(0, LONE + source.alias, lone)] if lone.num_rows else [])


@dataclass(frozen=True)
class SiteUnits:
    """The units of a site in one batch, which has this state."""

    station: Station
    state: SiteState
    onward: Onward
    last: int
    outbox: Outbox | None = None
    """Where to leave what other sites are sent; None: in the units' state."""

    def step(self, turn: Turn) -> Iterator[Yielded]:
        messages: list[Message] = []
        yield from self.onward(self._results(turn, messages))
        yield from messages

    def _results(self, turn: Turn, messages: list[Message]) -> Iterator[pa.Table]:
        station, plan = self.station, self.station.plan
        if turn.round == 0:
            forget(Kept(turn.state, turn.store), station, self.state)
        spans = station.spans(self.state, station.own(turn.clock.after, self.state))
        to = None if station.results_site == station.site else station.results_site
        unit = SiteUnit(plan, station.homes, spans, turn, self.last, to)
        unit.asked = self.state.survey.find_measured()
        unit.fates, unit.outbox = self.state.fates, self.outbox
        for item in unit.step():
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


def forget(stored: Kept, station: Station, state: SiteState) -> None:
    """What is dead after the batch before, by time or by number."""
    stored.settle(state.cuts, station.retention)
    for window, (ends, mark, *others) in state.ended.items():
        cut = drop_ended(stored, window, ends, mark)
        if cut is not None:
            stored.settle(dict.fromkeys(others, cut), {})


@dataclass(frozen=True)
class FinishAtSite:
    """Units that keep rows or groups at the site where all results are."""

    station: Station
    state: SiteState
    operator: Operator

    def step(self, turn: Turn) -> Iterator[Yielded]:
        own = self.station.own(turn.clock.after, self.state)
        mark = self.station.find_results_mark(self.state, own)
        streams = self.station.plan.streams
        turn.clock = Clock(streams, promise=Promise(dict.fromkeys(streams, mark)))
        yield from self.operator.step(turn)

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Units apply them in their turns: the clock here knows the site's own streams only."""
        return {}


@dataclass(frozen=True)
class SiteFlows(Flows):
    """The dataflows of a site: batches differ in what the site has been told."""

    station: Station
    plan: Intake
    """What enters here."""

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        return self.at(SiteState.of(decisions.get("sites") or {}))

    def at(self, state: SiteState, outbox: Outbox | None = None) -> Dataflow:
        """The dataflow of a batch that has this state, and leaves there what is sent."""
        station = self.station
        last = max(station.paths(epoch).last_round(station.units) for epoch in state.epochs)
        keepers = make_keepers(station.plan) if station.results_site == station.site else []
        onward: Onward = ToKeepers(station.plan, 1) if keepers else Out(station.plan)
        units = FlowStage(SiteUnits(station, state, onward, last, outbox), station.units, wakes=True)
        finish = [replace(k, operator=FinishAtSite(station, state, k.operator)) for k in keepers]
        plan, paths = station.plan, station.first_paths
        entries = {plan.aliases[n]: SiteEntry(plan, paths, n, station.units) for n in station.homes}
        streams = {name: spec for name, spec in station.plan.streams.items() if name in station.streams}
        return Dataflow(streams, (units, *finish), entries, last + 1 + len(finish), (0, last + 1)[: 1 + len(finish)])
