"""Joins across sites as a dataflow of rounds: a unit per site, which keeps its own streams and what it has been told of others.

    round 0    every site gets its own streams' tuples, tells others of them, and sends its heads' rows on their way
    round r    messages of other sites, see `sites.schedule`; results leave in the last round

Invariant: results do not depend on the plan of one-way joins, which may be another in every batch: windows stay where they are,
copies and sent bits that the new plan has no use for are forgotten by both sites at once, others are filled up.
Implements: Tran and Lee (2010), section 4.1 on top of `sites.site`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Dataflow, Flows, FlowStage, Message, Onward, Turn, Yielded
from watersmeet.operators.assemble import make_keepers
from watersmeet.operators.enter import JoinEntry
from watersmeet.operators.join import Out, ToKeepers
from watersmeet.plan.model import Plan
from watersmeet.sites.held import names
from watersmeet.sites.keeping import cuts
from watersmeet.sites.schedule import Schedule, schedule
from watersmeet.sites.site import Site


@dataclass(frozen=True)
class SiteFlows(Flows):
    """The dataflows of a query across sites: batches may differ in their sequences of one-way joins."""

    plan: Plan

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        plan = self.plan.at(decisions.get("sites") or {})
        out: Onward = Out(plan) if plan.finish is None else ToKeepers(plan, 1)
        operator = OneWayJoins(plan, schedule(plan), out)
        stages = (FlowStage(operator, plan.units, wakes=True), *make_keepers(plan))
        rounds = operator.schedule.rounds
        entries = {i.alias: JoinEntry(plan, i.alias, 0) for i in plan.inputs}
        return Dataflow(plan.join.streams, stages, entries, rounds + len(stages) - 1, (0, rounds)[: len(stages)])


@dataclass(frozen=True)
class OneWayJoins:
    """Every unit is a site."""

    plan: Plan
    schedule: Schedule
    onward: Onward

    def step(self, turn: Turn) -> Iterator[Yielded]:
        messages: list[Message] = []
        yield from self.onward(_results(Site(self.plan, self.schedule, turn).step(), messages))
        yield from messages

    def cuts(self, clock: Clock) -> dict[str, int]:
        """The bound that an expiry message would carry; of a stream and of all that sites keep of it."""
        of_alias = cuts(self.plan, clock)
        everyone = range(len(self.plan.inputs))
        kept = {name: n for unit in range(self.plan.units) for name, n in names(self.schedule, unit, everyone).items()}
        return {**of_alias, **{name: of_alias[self.plan.inputs[n].alias] for name, n in kept.items()}}


def _results(items: Iterator[pa.Table | Message], messages: list[Message]) -> Iterator[pa.Table]:
    """The tables among what a site yields; messages are put aside."""
    for item in items:
        if isinstance(item, Message):
            messages.append(item)
        else:
            yield item
