"""Scaling while a query runs: after every batch the loads are looked at, and from the next batch on the routing may differ.

    manifest n-1: routing  ->  intent n: the same, durably  ->  batch n is routed by it  ->  loads  ->  manifest n: routing

Window joins migrate nothing: units that were removed get no more tuples, are probed as long as they hold any, and are
gone when these have expired. Where a side is kept for ever, its segments are handed over to other units of the subgroup;
they are files, so only the manifest changes.

Invariant: the routing of a batch stands in its intent, and the decision is a function of the manifest alone: a replay routes
and decides alike. Segments move only inside their subgroup, where every probe that could meet them goes.
Implements: Lin, Ooi, Wang, Yu (2015), section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan
from watersmeet.query.scaling import Scaling
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique, Keys
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.scaling import Memory, decide
from watersmeet.runtime.rounds.manifest import BatchManifest

Heavy = tuple[int, int, Sequence[tuple[int, int]]]
"""What a source task has seen of a side: its number, how many rows, and (key, rows) of its most frequent keys."""


@dataclass(frozen=True)
class Elastic:
    """The routing of a query over time; without `scaling` it stays as it is."""

    plan: Plan
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if self.scaling is None:
            return
        if len(self.plan.stages) > 1 or not isinstance(self.plan.stages[0].routing, Biclique):
            raise OptionError(
                "scaling= moves the units of a biclique, and this query is not routed by one: give routing='contrand', 'random' or 'range' and two streams"
            )
        if self.plan.shipping == "semijoin":
            raise OptionError("scaling= and shipping='semijoin' do not go together: use shipping='full'")

    def routing(self, before: BatchManifest) -> list[dict[str, Any]]:
        """The routing of the batch after a manifest, as the intent writes it; empty if the plan's is all there is."""
        if before.routing:
            return before.routing
        return [] if self.scaling is None else Epochs((self._planned,)).to_json()

    @property
    def watches_keys(self) -> bool:
        """Whether source tasks should count keys."""
        return self.scaling is not None and self.scaling.hot_keys and isinstance(self._planned.by, Keys)

    def settle(self, after: BatchManifest, routing: Sequence[Mapping[str, Any]], heavy: Sequence[Heavy]) -> list[str]:
        """Decide on the routing from the next batch on; what was changed, in words."""
        if not routing:
            return []
        epochs, said = Epochs.from_json(routing), list[str]()
        if self.scaling is not None:
            memory = Memory(**after.scaling) if after.scaling else Memory()
            for side, rows, keys in _summed(heavy):
                memory.count(side, rows, keys)
            loads = _loads(after)
            decision = decide(self.scaling, epochs.current, loads, memory)
            if decision.said:
                said = [*decision.said, *self._migrate(after, epochs.current, decision.routing, loads)]
                epochs = epochs.then(decision.routing)
            after.scaling = asdict(memory)
        occupied = {unit for unit, _, _ in after.segments()}
        epochs = epochs.pruned(epochs.units - occupied)
        after.retire(set(after.units) - epochs.units - occupied)
        after.routing = epochs.to_json()
        return said

    @property
    def _planned(self) -> Biclique:
        planned = self.plan.stages[0].routing
        assert isinstance(planned, Biclique)
        return planned

    def _migrate(self, after: BatchManifest, old: Biclique, new: Biclique, loads: dict[int, int]) -> list[str]:
        """Hand segments over inside subgroups of sides that are kept for ever."""
        said = []
        for number, side in enumerate(self.plan.stages[0].sides):
            if self.plan.retention_us(self.plan.stages[0], side) < UNBOUNDED:
                continue
            moved = 0
            for then, now in zip(old.sides[number], new.sides[number], strict=True):
                if then != now:
                    moved += after.deal(self.plan, side.name, sorted({*then, *now}), now, loads)
            if moved:
                said.append(f"side {number}: {moved} segments handed over")
        return said


def _loads(after: BatchManifest) -> dict[int, int]:
    loads: dict[int, int] = {}
    for unit, _, info in after.segments():
        loads[unit] = loads.get(unit, 0) + info.bytes
    return loads


def _summed(heavy: Sequence[Heavy]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """By side, over all source tasks."""
    rows: dict[int, int] = {}
    keys: dict[int, dict[int, int]] = {}
    for side, count, frequent in heavy:
        rows[side] = rows.get(side, 0) + count
        mine = keys.setdefault(side, {})
        for code, number in frequent:
            mine[code] = mine.get(code, 0) + number
    return [(side, rows[side], sorted(keys[side].items())) for side in sorted(rows)]
