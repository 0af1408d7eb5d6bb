"""What a batch decides before it runs: its routing, its shipping. A query without any of these decides nothing.

    manifest n-1: next  ->  intent n: the same, durably  ->  batch n under it  ->  measures  ->  manifest n: next

- Routing (`scaling=`): loads are checked after every batch, and from the next one on the routing may differ. Window joins migrate nothing:
  units that were removed get no more tuples, are probed as long as they hold any, and are gone when these have expired. Where a side is kept for ever,
  its segments are handed over to other units of the subgroup; they are files, so only the manifest changes.
- Sides (`routing="auto"`): ranges follow the values of two streams, and the number of units of each side their rates.
- Spread (`routing="auto"`): keys that have become hot are spread over several units, and cool down again, see `operators.balance`.
- Shipping (`shipping="auto"`): which payloads follow later is priced after every batch. Stored tuples are turned when the next one begins.

Invariant: what a batch decides stands in its intent, and is a function of the manifest alone: a replay decides alike. Segments move only inside
their subgroup, where every probe that could meet them goes. All stored tuples of an alias have the form of the batch that last touched them.
Implements: Lin, Ooi, Wang, Yu (2015), section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from watersmeet.dataflow.contract import Message, stage_of
from watersmeet.dataflow.report import Report
from watersmeet.errors import OptionError
from watersmeet.operators.balance import Balance, BicliqueBalance, BicliqueMemory, describe_hot, find_cut
from watersmeet.plan.explain.explanation import Detail, Explanation, explain
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads, offers
from watersmeet.plan.shipping import MEMORY, Traffic, choose, show_shipping, why
from watersmeet.query.scaling import Scaling
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.scaling import ScalingMemory, decide
from watersmeet.runtime.rounds.running import Account
from watersmeet.storage.manifest import BatchManifest, Identity, Intent

Heavy = tuple[int, int, Sequence[tuple[int, int]]]
"""What a source task has seen of a side: its number, how many rows, and (key, rows) of its most frequent keys."""


class Decision(Protocol):
    """One thing that batches decide."""

    @property
    def name(self) -> str:
        """The intent's field."""

    def next(self, before: BatchManifest) -> Any:
        """What the batch after a manifest decides, as JSON; empty if it is as the plan has it."""

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        """Take a batch's measures in and decide on the next one; what will change, in words."""


class Decider:
    """All decisions of a query; `taken` are those that its batches take. Batches of a registry take none: there is no plan."""

    def __init__(
        self,
        plan: Plan | None = None,
        scaling: Scaling | None = None,
        bandwidth: float = MEMORY,
        *,
        adapts_shipping: bool = False,
        cores: int = 0,
    ) -> None:
        """`cores`: how many units run at a time, if keys may be spread; 0: they may not."""
        self.plan, self.weighs, self.watches_keys = plan, adapts_shipping, False
        """`weighs`: whether source tasks say how wide tuples are."""
        self.taken: tuple[Decision, ...] = ()
        self.joins = range(1)
        """The stages that join: others hold tuples, too."""
        if plan is None:
            return
        self.carried: list[str] = []
        """How tuples travel to units, in words."""
        first = 1 if plan.sequenced else 0
        self.joins = range(first, first + len(plan.stages))
        sides = BicliqueBalance.of(plan, cores) if scaling is None and cores else None
        self.routing: Scaled | Sides = Scaled(plan, scaling) if sides is None else Sides(plan, sides)
        self.shipping = Shipping(plan, bandwidth, adapts_shipping)
        self.spread = SpreadKeys(Balance(plan, max(cores, 1), adapts=cores > 0 and plan.may_spread))
        self.watches_keys = self.routing.watches_keys
        if scaling is not None or sides is not None:
            self.taken += (self.routing,)
        if self.spread.balance.adapts:
            self.taken += (self.spread,)
        if adapts_shipping or plan.shipping == "semijoin":
            self.taken += (self.shipping,)

    def resume(self, manifest: BatchManifest) -> None:
        """Go on from a manifest: what an earlier run has decided is taken back, even if this run would not decide it."""
        if self.plan is not None and (manifest.routing or manifest.shipping or manifest.spread):
            self.taken = (self.routing, self.spread, self.shipping)
        self.after_commit(manifest)

    def read_sites(self, intent: Intent) -> dict[str, Any]:
        """What an intent says of the site that it is of, as the dataflow needs it."""
        return {}

    def messages(self, before: BatchManifest, intent: Intent) -> list[Message]:
        """What comes from elsewhere in a batch."""
        return []

    def after_commit(self, after: BatchManifest) -> None:
        """A batch has been committed, now or before this run."""

    def describe(self, after: BatchManifest, account: Account) -> dict[str, Any]:
        """How a batch has shipped, as figures of its progress."""
        return {"shipping": show_shipping(after.apart)}

    def explain(self, runtime: str, detail: Detail, manifest: BatchManifest | None) -> Explanation:
        """The plan, and what has been decided while the query runs."""
        assert self.plan is not None
        if manifest is None:
            return explain(self.plan, runtime, detail, shipping_now=self.carried)
        routing = [*self.routing.explain(manifest), *self.spread.explain(manifest)]
        shipping = [*self.carried, *self.shipping.explain(manifest)]
        return explain(self.plan, runtime, detail, routing_now=routing, shipping_now=shipping)


@dataclass(frozen=True)
class Scaled:
    """The routing of a query over time; without `scaling` it stays as it is."""

    plan: Plan
    scaling: Scaling | None = None
    name = "routing"

    def __post_init__(self) -> None:
        if self.scaling is None:
            return
        if len(self.plan.stages) > 1 or self._planned is None:
            raise OptionError(
                "scaling= moves the units of a biclique, and this query is not routed by one: give routing='contrand', 'random' or 'range' and two streams"
            )
        if self.plan.shipping == "semijoin":
            raise OptionError("scaling= and shipping='semijoin' do not go together: use shipping='full'")

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        if before.routing or self.scaling is None or self._planned is None:
            return before.routing
        return Epochs((self._planned,)).to_json()

    @property
    def watches_keys(self) -> bool:
        """Whether source tasks should count keys."""
        if self.scaling is None or self._planned is None:
            return False
        return self.scaling.hot_keys and self._planned.by_keys

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        if not intent.routing:
            return []
        epochs, said = Epochs.from_json(intent.routing), list[str]()
        if self.scaling is not None:
            memory = ScalingMemory(**after.scaling) if after.scaling else ScalingMemory()
            for side, rows, keys in _sum_by_side(account.heavy):
                memory.count(side, rows, keys)
            loads, seconds = _loads(after, account), {unit: r.seconds for unit, r in account.reports.items()}
            decision = decide(self.scaling, epochs.current, loads, memory, cools=self._expires, seconds=seconds)
            if decision.changes:
                said = [*decision.changes, *self._migrate(after, epochs.current, decision.routing, loads)]
                epochs = epochs.then(decision.routing, max(after.maxima.values(), default=0))
            after.scaling = asdict(memory)
        occupied = {unit for unit, _, _ in after.segments()}
        epochs = epochs.prune(epochs.units - occupied, find_cut(self.plan, after.maxima))
        after.retire(set(after.units) - epochs.units - occupied)
        after.routing = epochs.to_json()
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The routing of the next batch, if it is not the plan's."""
        return _show_epochs(manifest)

    @property
    def _expires(self) -> bool:
        """Whether no side is kept for ever: then earlier routings end."""
        stage = self.plan.stages[0]
        return all(self.plan.retention_us(stage, side) < UNBOUNDED for side in stage.sides)

    @property
    def _planned(self) -> Biclique | None:
        return self.plan.stages[0].routing.elastic

    def _migrate(self, after: BatchManifest, old: Biclique, new: Biclique, loads: dict[int, int]) -> list[str]:
        """Hand segments over inside subgroups of sides that are kept for ever."""
        said = []
        for number, side in enumerate(self.plan.stages[0].sides):
            if self.plan.retention_us(self.plan.stages[0], side) < UNBOUNDED:
                continue
            moved = 0
            for then, now in zip(old.sides[number], new.sides[number], strict=True):
                if then != now:
                    moved += after.deal(Identity.of(self.plan), side.name, sorted({*then, *now}), now, loads)
            if moved:
                said.append(f"side {number}: {moved} segments handed over")
        return said


@dataclass(frozen=True)
class Sides:
    """The ranges and the sizes of the sides of a biclique: they follow the data."""

    plan: Plan
    balance: BicliqueBalance
    name = "routing"
    watches_keys = False

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        return before.routing

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        known = BicliqueMemory(intent.routing, after.scaling.get("samples", []), after.scaling.get("flow", {}))
        occupied = {unit for unit, _, _ in after.segments()}
        made, said = self.balance.settle(known, account.reports, after.maxima, occupied)
        after.routing, after.scaling = made.routing, {"samples": made.samples, "flow": made.flow}
        if made.routing:
            after.retire(set(after.units) - Epochs.from_json(made.routing).units - occupied)
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The routing of the next batch, if it is not the plan's."""
        return _show_epochs(manifest)


def _show_epochs(manifest: BatchManifest) -> list[str]:
    if not manifest.routing:
        return []
    epochs = Epochs.from_json(manifest.routing)
    sizes = [len(members) for members in epochs.current.members]
    kept = len(epochs.routings) - 1
    return [f"now {epochs.current.kind}, {sizes[0]} and {sizes[1]} units store; {kept} earlier routings are probed"]


@dataclass(frozen=True)
class SpreadKeys:
    """The keys that are spread over several units; a query that may not spread any lets those cool down that it finds."""

    balance: Balance
    name = "spread"

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        return list(before.spread.get("next", ()))

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        if not self.balance.adapts and not intent.spread:
            after.spread = {}
            return []
        made = self.balance.settle(intent.spread, after.spread.get("memory", {}), account.reports, after.maxima)
        after.spread = {"next": made.hot, "memory": made.memory}
        return made.said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The hot keys of the next batch."""
        return describe_hot(self.balance.plan, self.next(manifest))


def _loads(after: BatchManifest, account: Account) -> dict[int, int]:
    """Bytes by unit: in memory with indexes, as units have reported; of those that had no turn, as stored."""
    loads: dict[int, int] = {}
    for unit, _, info in after.segments():
        loads[unit] = loads.get(unit, 0) + info.bytes
    return {unit: max(stored, account.reports.get(unit, Report()).memory) for unit, stored in loads.items()}


def _sum_by_side(heavy: Sequence[Heavy]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Frequent keys by side, over all source tasks."""
    rows: dict[int, int] = {}
    keys: dict[int, dict[int, int]] = {}
    for side, count, frequent in heavy:
        rows[side] = rows.get(side, 0) + count
        mine = keys.setdefault(side, {})
        for code, number in frequent:
            mine[code] = mine.get(code, 0) + number
    return [(side, rows[side], sorted(keys[side].items())) for side in sorted(rows)]


@dataclass(frozen=True)
class Shipping:
    """The aliases whose payloads follow later. Only `auto` changes, and only where source tasks post tuples to units themselves."""

    plan: Plan
    bandwidth: float
    adapts: bool
    name = "shipping"

    @cached_property
    def _offered(self) -> Plan:
        return defer_payloads(self.plan, offers(self.plan))

    def next(self, before: BatchManifest) -> list[str]:
        if self.plan.shipping == "semijoin":
            return [i.alias for i in self.plan.inputs if i.payload]
        return list(before.shipping.get("next", ())) if self.adapts else []

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        now = tuple(intent.shipping)
        after.shipping["next"] = list(now)
        if not self.adapts or not any(rows for rows, _, _ in account.entered.values()):
            return []
        traffic = _traffic(after)
        traffic.fade()
        for alias, (rows, first, late) in account.entered.items():
            traffic.count(alias, rows, first, late)
        traffic.results += sum(report.results for report in account.reports.values())
        traffic.kept = self._count_stored(after)
        way, _ = choose(self._offered, traffic, now, self.bandwidth)
        said = []
        if way != now:
            said = [f"from the next batch on {show_shipping(way)}: " + "; ".join(self._why(traffic, way))]
            traffic.batches, traffic.changes = 0, traffic.changes + 1
        after.shipping = {"stored": list(now), "next": list(way), "traffic": asdict(traffic)}
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """How the query ships now, and why."""
        if not self.adapts:
            return []
        way, traffic = tuple(self.next(manifest)), _traffic(manifest)
        lines = [f"now {show_shipping(way)}, at {self.bandwidth / 1e6:,.0f} MB/s between units"]
        return [*lines, *self._why(traffic, way)] if traffic.rows else lines

    def _why(self, traffic: Traffic, way: tuple[str, ...]) -> list[str]:
        return list(why(self._offered, traffic, way, self.bandwidth))

    def _count_stored(self, after: BatchManifest) -> dict[str, float]:
        """Stored tuples by alias, each counted once."""
        kept: dict[str, float] = {}
        for unit, alias, info in after.segments():
            if not stage_of(unit):
                kept[alias] = kept.get(alias, 0.0) + info.rows
        for alias in kept:
            stage, side = self.plan.entry(alias)
            kept[alias] /= max(1.0, stage.routing.homes(side))
        return kept


def _traffic(manifest: BatchManifest) -> Traffic:
    return Traffic(**manifest.shipping["traffic"]) if "traffic" in manifest.shipping else Traffic()
