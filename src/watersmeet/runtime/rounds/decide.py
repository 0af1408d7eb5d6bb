"""What a batch decides before it runs: its routing, its shipping. A query without any of these decides nothing.

    manifest n-1: next  ->  intent n: the same, durably  ->  batch n under it  ->  measures  ->  manifest n: next

- Routing (`scaling=`): loads are checked after every batch, and from the next one on the routing may differ, see `rounds.scaled`.
- Sides (`routing="auto"`): ranges follow the values of two streams, and the number of units of each side their rates.
- Spread (`routing="auto"`): keys that have become hot are spread over several units, and cool down again, see `operators.balance`.
- Shipping (`shipping="auto"`): which payloads follow later is priced after every batch. Stored tuples are turned when the next one begins.

Invariant: what a batch decides stands in its intent, and is a function of the manifest alone: a replay decides alike. All stored tuples of an alias have the form of the batch that
last touched them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from watersmeet.dataflow.contract import Message, stage_of
from watersmeet.errors import OptionError
from watersmeet.operators.assemble import resize_grids
from watersmeet.operators.balance import Balance, BicliqueBalance, describe_hot
from watersmeet.plan.explain.explanation import Detail, Explanation, explain
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads, offers
from watersmeet.plan.shipping import MEMORY, Traffic, choose, show_shipping, why
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.scaled import Scaled, Sides
from watersmeet.runtime.spark.allocation import Executors
from watersmeet.storage.manifest import BatchManifest, Intent


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
        executors: Executors | None = None,
    ) -> None:
        """`cores`: how many units run at a time, if keys may be spread; 0: they may not. `executors` follow the number of units."""
        self.plan, self.weighs, self.watches_keys, self.executors = plan, adapts_shipping, False, executors
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
        if self.plan is not None and any("shares" in entry for entry in manifest.routing):
            if self.plan.shipping == "semijoin":
                raise OptionError(
                    "the units of this checkpoint have been scaled, and shipping='semijoin' holds payloads by their planned number: use shipping='full'"
                )
            self.shipping, self.weighs = replace(self.shipping, adapts=False), False
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
        if self.executors is not None and isinstance(self.routing, Scaled):
            self.executors.follow(self.routing.count_units(after))

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
class SpreadKeys:
    """The keys that are spread over several units; a query that may not spread any lets those cool down that it finds. Where a grid is dealt anew, its hot keys begin anew."""

    balance: Balance
    name = "spread"

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        return list(before.spread.get("next", ()))

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        if not self.balance.adapts and not intent.spread:
            after.spread = {}
            return []
        balance = self._under(intent.routing)
        made = balance.settle(intent.spread, after.spread.get("memory", {}), account.reports, after.maxima)
        dealt = {entry["stage"] for entry in after.routing if "was" in entry}
        hot = [one for one in made.hot if one["stage"] not in dealt]
        after.spread = {"next": hot, "memory": made.memory}
        return made.said

    def _under(self, routing: Sequence[Mapping[str, Any]]) -> Balance:
        """The balance over grids of a batch's sizes."""
        plan = resize_grids(self.balance.plan, routing)
        if plan.stages != self._latest.plan.stages:
            self.__dict__["_latest"] = replace(self.balance, plan=plan)
        return self._latest

    @cached_property
    def _latest(self) -> Balance:
        return self.balance

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The hot keys of the next batch."""
        return describe_hot(self.balance.plan, self.next(manifest))


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
