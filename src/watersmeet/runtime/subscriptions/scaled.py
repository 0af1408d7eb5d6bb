"""The units of a registry over time: as many as the user says when it starts, or as the load asks for (`start(scaling=)`).

    units=4 where there were 2      the first batch of the restart has 4 units, which take over what is theirs (`registry.shared.handover`, `registry.rjoin.arcs`)
    scaling=                        after every batch there may be more or fewer from the next one on; nodes of a ring also move next to those that have much

Invariant: what a batch's units are stands in its intent, and is a function of the manifest and of what the user said when the batch was decided; a replay reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from watersmeet.query.scaling import Scaling
from watersmeet.registry.placement import (
    Load,
    Placement,
    even_places,
    move_node,
    read_placement,
    write_placement,
)
from watersmeet.registry.plan import RegistryPlan
from watersmeet.routing.scaling import ScalingMemory, decide_units
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.spark.allocation import Executors
from watersmeet.storage.manifest import BatchManifest, Intent


@dataclass(frozen=True)
class RegistryUnits:
    """What batches of a registry decide of its units."""

    plan: RegistryPlan
    wanted: int | None = None
    """What the user says there are to be; with `scaling`, to begin with."""
    scaling: Scaling | None = None
    name = "routing"

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        placement = self.read(before.routing)
        obeys = self.wanted is not None and (self.scaling is None or before.batch < 0)
        if obeys and placement.units != self.wanted:
            placement = self._resize(placement, self.wanted or 1, {})
        return write_placement(replace(placement, weighs=self.scaling is not None), self.plan.units)

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        placement, said = self.read(intent.routing).settle(), list[str]()
        account.units = placement.units
        after.retire({unit for unit in after.units if unit >= placement.units})
        if self.scaling is not None:
            placement, said = self._scale(self.scaling, placement, after, account)
        after.routing = write_placement(placement, self.plan.units)
        return said

    def read(self, routing: Sequence[Mapping[str, Any]]) -> Placement:
        """The units of a batch."""
        return read_placement(routing, self.plan.units)

    def _scale(
        self, scaling: Scaling, placement: Placement, after: BatchManifest, account: Account
    ) -> tuple[Placement, list[str]]:
        """The units of the next batch, and what changes, in words."""
        memory, reports = ScalingMemory(**after.scaling), account.reports
        bytes = dict.fromkeys(reports, 0)
        for unit, _, info in after.segments():
            bytes[unit] = bytes.get(unit, 0) + info.bytes
        loads = {unit: max(held, reports[unit].memory) if unit in reports else held for unit, held in bytes.items()}
        seconds = {unit: report.seconds for unit, report in reports.items()}
        units = decide_units(scaling, placement.units, loads, memory, seconds=seconds)
        after.scaling = asdict(memory)
        arcs: dict[int, Load] = {u: (r.arc[0], r.arc[1]) for u, r in reports.items() if r.arc and u < placement.units}
        if units != placement.units:
            return self._resize(placement, units, arcs), [f"{placement.units} -> {units} units"]
        moved = placement.then(move_node(placement.places, arcs))
        changed = [n for n, (was, now) in enumerate(zip(placement.places, moved.places, strict=True)) if was != now]
        return moved, [f"unit {n} moves on the ring, next to one that has more" for n in changed]

    def _resize(self, placement: Placement, units: int, arcs: Mapping[int, Load]) -> Placement:
        """As many units; under the shared plan only their number counts."""
        return placement.resize(units, arcs) if self.plan.engine == "rjoin" else placement.then(even_places(units))


class RegistryDecider(Decider):
    """All decisions of a registry."""

    def __init__(self, units: RegistryUnits, executors: Executors | None = None) -> None:
        super().__init__(executors=executors)
        self.units, self.taken = units, (units,)

    def resume(self, manifest: BatchManifest) -> None:
        """Go on from a manifest; what it says of units is read when the next batch is decided."""
        self.after_commit(manifest)

    def after_commit(self, after: BatchManifest) -> None:
        """A batch has been committed, now or before this run."""
        if self.executors is not None:
            self.executors.follow(self.units.read(after.routing).units)
