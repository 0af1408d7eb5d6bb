"""Which payloads follow later, batch by batch: priced after every batch, changed at the next one's beginning.

    manifest n-1: next = {a}  ->  intent n: {a}, durably  ->  stored tuples of a are turned  ->  batch n  ->  traffic  ->  next

Invariant: how a batch ships stands in its intent, and the decision is a function of the manifest alone: a replay ships
and decides alike. All stored tuples of an alias have the form of the batch that last touched them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import following, offers
from watersmeet.plan.shipping import Traffic, choose, named, why
from watersmeet.runtime.rounds.manifest import BatchManifest

Entered = Mapping[str, Sequence[int]]
"""By alias what source tasks have read: tuples, bytes without payload, bytes of payload."""


@dataclass(frozen=True)
class Shipping:
    """How a query ships over time. Only `auto` changes, and only where source tasks post tuples to units themselves."""

    plan: Plan
    bandwidth: float
    adapts: bool

    @cached_property
    def _offered(self) -> Plan:
        return following(self.plan, offers(self.plan))

    def next(self, before: BatchManifest) -> tuple[str, ...]:
        """The aliases whose payloads follow later in the batch after a manifest."""
        if self.plan.shipping == "semijoin":
            return tuple(i.alias for i in self.plan.inputs if i.payload)
        return tuple(before.shipping.get("next", ())) if self.adapts else ()

    def settle(self, after: BatchManifest, now: tuple[str, ...], entered: Entered, results: int) -> list[str]:
        """Take a batch into account and decide on the next one; what will change, in words."""
        after.shipping["next"] = list(now)
        if not self.adapts or not any(rows for rows, _, _ in entered.values()):
            return []
        traffic = self.traffic(after)
        traffic.fade()
        for alias, (rows, first, late) in entered.items():
            traffic.count(alias, rows, first, late)
        traffic.results += results
        traffic.kept = self._kept(after)
        way, _ = choose(self._offered, traffic, now, self.bandwidth)
        said = []
        if way != now:
            said = [f"from the next batch on {named(way)}: " + "; ".join(self._why(traffic, way))]
            traffic.batches, traffic.changes = 0, traffic.changes + 1
        after.shipping = {"stored": list(now), "next": list(way), "traffic": asdict(traffic)}
        return said

    def traffic(self, manifest: BatchManifest) -> Traffic:
        return Traffic(**manifest.shipping["traffic"]) if "traffic" in manifest.shipping else Traffic()

    def explain(self, manifest: BatchManifest) -> list[str]:
        """How the query ships now, and why."""
        way = self.next(manifest)
        if not self.adapts:
            return []
        traffic = self.traffic(manifest)
        lines = [f"now {named(way)}, at {self.bandwidth / 1e6:,.0f} MB/s between units"]
        if traffic.rows:
            lines += self._why(traffic, way)
        return lines

    def _why(self, traffic: Traffic, way: tuple[str, ...]) -> list[str]:
        return list(why(self._offered, traffic, way, self.bandwidth))

    def _kept(self, after: BatchManifest) -> dict[str, float]:
        """Stored tuples by alias, each counted once."""
        kept: dict[str, float] = {}
        for unit, alias, info in after.segments():
            if unit < self.plan.units:
                kept[alias] = kept.get(alias, 0.0) + info.rows
        for alias in kept:
            stage, side = self.plan.entry(alias)
            kept[alias] /= max(1.0, stage.routing.homes(side))
        return kept
