"""How sites join, batch by batch: measured by every batch, changed at the next one's beginning.

    manifest n-1: next plan  ->  intent n: the same, durably  ->  batch n under it  ->  measures  ->  manifest n: next plan

Invariant: the plan of a batch stands in its intent, and the decision is a function of the manifest alone: a replay joins and
decides alike. Changing the plan moves no window: see `units.programs.sites`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from watersmeet.plan.explain_sites import shown
from watersmeet.plan.model import Plan
from watersmeet.plan.sites.online import Memory, advanced, decided
from watersmeet.plan.sites.placed import Sequences
from watersmeet.runtime.calibrate import calibrate
from watersmeet.runtime.rounds.manifest import BatchManifest
from watersmeet.units.join_unit import StepReport


@dataclass(frozen=True)
class SitePlans:
    """The plans of a query across sites over time; of any other query it knows none."""

    plan: Plan

    def next(self, before: BatchManifest) -> Sequences:
        """The plan of the batch after a manifest, as JSON."""
        if self.plan.sites is None:
            return {}
        known = before.sites.get("next") if self.plan.sites.search is not None else None
        return known or self.plan.sites.to_json()

    def settle(
        self, after: BatchManifest, now: Sequences, reports: Mapping[int, StepReport], before: Mapping[str, int]
    ) -> list[str]:
        """Take a batch's measures in and decide on the next one; what will change, in words."""
        if self.plan.sites is None:
            return []
        memory = Memory.of(after.sites.get("memory", {}))
        if memory.per_tuple is None:
            costs = calibrate()
            memory.per_tuple = [costs.probe, costs.update, costs.hash, costs.insert]
        measured = {alias: said for report in reports.values() for alias, said in report.measured.items()}
        plan = self.plan.at(now)
        memory.count(measured, advanced(plan, measured, before, after.maxima))
        following, said = decided(plan, memory)
        after.sites = {"next": following, "memory": asdict(memory)}
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The plan of the next batch, priced under what has been measured."""
        if self.plan.sites is None:
            return []
        plan = self.plan.at(self.next(manifest))
        return shown(plan, Memory.of(manifest.sites.get("memory", {})))


def shipped(plan: Plan, reports: Mapping[int, StepReport]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Shipments, rows and bytes by (sender, receiver)."""
    if plan.sites is None:
        return {}
    names, out = plan.site_names, dict[tuple[str, str], tuple[int, int, int]]()
    for _, report in sorted(reports.items()):
        for pair, (shipments, rows, size) in report.sent.items():
            sender, receiver = map(int, pair.split(">"))
            out[names[sender], names[receiver]] = shipments, rows, size
    return out
