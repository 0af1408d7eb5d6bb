"""Which operators carry out a plan, in which stages.

    [sequence] -> join -> [join ...] -> [fetch ...] -> [distinct or aggregate]

Invariant: plans that ship differently have the same join units, so state can be handed from one to the other. A join's stage is its number, after the
sequencer's; the holders of payloads of the alias at position p are stage 1 + p, whichever aliases have any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from watersmeet.dataflow.contract import Dataflow, Entry, Flows, FlowStage, Onward
from watersmeet.errors import UnsupportedError
from watersmeet.operators import sequence
from watersmeet.operators.enter import JoinEntry, SequenceEntry
from watersmeet.operators.finish.aggregate import GroupUnits
from watersmeet.operators.finish.distinct import DistinctUnits
from watersmeet.operators.finish.windowed import WindowedUnits
from watersmeet.operators.join import JoinUnits
from watersmeet.operators.nearest import AsOf
from watersmeet.operators.onward import Out, ToJoin, ToKeepers
from watersmeet.operators.outer.unmatched import Extend, Through, Unmatched
from watersmeet.operators.payload import Fetch, ToHolders, Whole, list_fetched
from watersmeet.plan.finish import FinishPlan
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads, narrow
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import Resized, read_grids
from watersmeet.routing.spread import HotKey, Spread

NO_EPOCHS: Mapping[int, Epochs] = MappingProxyType({})


def dataflow_of(
    plan: Plan, *, keeps: bool = True, routing: Mapping[int, Epochs] = NO_EPOCHS, defers: bool = False
) -> Dataflow:
    """The dataflow of a plan; if it does not `keep` rows and groups itself, Spark does, after the last stage. `routing`: by number of a join, if it is not the plan's. `defers`:
    payloads of other batches follow later, so holders have their stages, and units that keep have their numbers, in this one, too."""
    if plan.parts:
        return _of_tree(plan, keeps=keeps)
    begin = 1 if plan.sequenced else 0
    joins = len(plan.stages)
    defers = (defers and plan.finish is not None and keeps) or plan.shipping == "semijoin"
    last = begin + joins + (len(plan.inputs) if defers else 0)
    out: Onward = Out(plan)
    if plan.finish is not None and keeps:
        out = ToKeepers(plan, last)
    stages = [FlowStage(sequence.Sequence(plan), 1)] if plan.sequenced else []
    if plan.shipping == "semijoin":
        stages += _make_holders(plan, out)
    else:
        for number in range(joins):
            at = begin + number
            onward = out if number == joins - 1 else ToJoin(plan, number + 1, at + 1, routing=routing.get(number + 1))
            stages.append(_make_join(plan, JoinUnits(plan, number, at, onward)))
        stages += [FlowStage(Fetch(plan, i.alias, out), plan.units) for i in plan.inputs] if defers else []
    stages += make_keepers(plan) if keeps else []
    entries: dict[str, Entry] = {
        i.alias: SequenceEntry(plan, i.alias)
        if plan.sequenced
        else JoinEntry(plan, i.alias, number := find_stage(plan, i.alias), routing.get(number))
        for i in plan.inputs
    }
    rounds = len(stages)
    if plan.shipping == "semijoin" and (plan.finish is None or not keeps):
        rounds = 2 + list_fetched(plan)[-1].position  # the holders after those have nothing to do
    return Dataflow(plan.join.streams, tuple(stages), entries, rounds)


def find_stage(plan: Plan, alias: str) -> int:
    """The number of the join in which an alias' tuples enter."""
    return plan.stages.index(plan.entry(alias)[0])


def _of_tree(plan: Plan, *, keeps: bool) -> Dataflow:
    """The dataflow of a join tree: a stage for every join, and one after each whose preserved tuples others must settle."""
    starts, at = [], 0
    for join in plan.stages:
        starts.append(at)
        at += 2 if join.is_spread else 1
    out: Onward = ToKeepers(plan, at) if plan.finish is not None and keeps else Out(plan)
    stages: list[FlowStage] = []
    for number, (join, start) in enumerate(zip(plan.stages, starts, strict=True)):
        assert join.part is not None
        scope, onward = plan.scope(join.part), out
        if join.onward is not None:
            to, side = join.onward
            target = plan.stages[to].part
            assert target is not None
            onward = ToJoin(plan.scope(target), to, starts[to], side)
        if join.part.node.nearest is not None:
            stages.append(FlowStage(AsOf(scope, number, start, onward), join.units, wakes=True))
            continue
        operator = JoinUnits(scope, number, start, Through(start + 1, join.units) if join.is_spread else onward)
        stages.append(replace(_make_join(scope, operator), wakes=bool(join.part.node.preserved), lags={}))
        if join.is_spread:
            extends = tuple(Extend(scope, wait.side, operator.into) for wait in operator.waits)
            stages.append(FlowStage(Unmatched(operator.waits, extends, onward), join.units, wakes=True))
    stages += make_keepers(plan) if keeps else []
    entries: dict[str, Entry] = {}
    for source in plan.inputs:
        number = plan.stages.index(plan.entry(source.alias)[0])
        part = plan.stages[number].part
        assert part is not None
        entries[source.alias] = JoinEntry(plan.scope(part), source.alias, starts[number])
    return Dataflow(plan.join.streams, tuple(stages), entries, len(stages))


@dataclass(frozen=True)
class PlanFlows(Flows):
    """The dataflows of a plan: batches may differ in their routing, and in the aliases whose payloads follow later."""

    plan: Plan

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        routing = decisions.get("routing") or ()
        plan = spread_keys(resize_grids(self.plan, routing), decisions.get("spread", ()))
        plan = replace(defer_payloads(plan, decisions.get("shipping", ())), numbers_rows=True)
        return dataflow_of(plan, routing=Epochs.by_stage(routing), defers=self.plan.shipping == "auto")


def resize_grids(plan: Plan, routing: Sequence[Mapping[str, Any]]) -> Plan:
    """The same query with grids of other sizes, see `routing.resize`."""
    planned = {n: stage.routing for n, stage in enumerate(plan.stages) if isinstance(stage.routing, Hypercube)}
    made = read_grids(routing, planned)
    stages = [replace(stage, routing=made[n]) if n in made else stage for n, stage in enumerate(plan.stages)]
    return replace(plan, stages=tuple(stages)) if made else plan


def spread_keys(plan: Plan, hot: Iterable[Mapping[str, Any]]) -> Plan:
    """The same query with some keys spread, see `routing.spread`."""
    keys, stages = [HotKey.from_json(raw) for raw in hot], list(plan.stages)
    for number, stage in enumerate(stages):
        mine = tuple(key for key in keys if key.stage == number)
        if mine:
            assert isinstance(stage.routing, Hypercube)
            stages[number] = replace(stage, routing=Spread(stage.routing, mine))
    return replace(plan, stages=tuple(stages)) if keys else plan


def _make_holders(plan: Plan, out: Onward) -> list[FlowStage]:
    """The narrow join, and a stage of holders for every alias, of which those without payloads have nothing to do."""
    slim, sources = narrow(plan), list_fetched(plan)
    stages = [_make_join(slim, JoinUnits(slim, 0, 0, ToHolders(plan, sources[0].alias, slim.output)))]
    following = dict(zip([i.alias for i in sources], sources[1:], strict=False))
    for source in plan.inputs:
        after = following.get(source.alias)
        onward: Onward = Whole(plan, out) if after is None else ToHolders(plan, after.alias)
        stages.append(FlowStage(Fetch(plan, source.alias, onward), plan.units))
    return stages


def _make_join(plan: Plan, operator: JoinUnits) -> FlowStage:
    """The stage of a join. A side's time is that of one of its aliases; others may be older."""
    lags: dict[str, int] = {}
    for side in operator.spec.sides:
        for alias in side.aliases:
            back = 0 if alias == side.reference else -plan.join.windows.lo(side.reference, alias)
            stream = plan.by_alias[alias].stream
            lags[stream] = max(lags.get(stream, 0), back)
    routing = operator.spec.routing
    adopts, units = isinstance(routing, Spread) and any(hot.adopting for hot in routing.hot), operator.spec.units
    if isinstance(routing, Resized):
        adopts, units = True, max(units, routing.before.units)
    return FlowStage(operator, units, wakes=adopts, in_order=not routing.stores_all, lags=lags)


def make_keepers(plan: Plan) -> list[FlowStage]:
    """The stage that keeps rows or groups, if the plan has one."""
    if plan.finish is None:
        return []
    if not plan.finish.inside:
        what = "DISTINCT" if plan.join.distinct else "GROUP BY"
        raise UnsupportedError(
            f"start() with {what}: {plan.finish.why_outside}, and no unit can do it between two rounds; use dataframe()"
        )
    return [make_last_stage(plan, plan.finish)]


def make_last_stage(plan: Plan, finish: FinishPlan) -> FlowStage:
    """The units that keep rows or groups, whoever projects them."""
    if plan.join.group_window is not None:
        return FlowStage(WindowedUnits(plan), finish.units, wakes=True)
    return FlowStage(DistinctUnits(plan) if plan.join.distinct else GroupUnits(plan), finish.units)
