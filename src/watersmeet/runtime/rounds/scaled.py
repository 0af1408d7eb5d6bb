"""The routing of a query over time: it grows and shrinks with the load (`scaling=`), or its sides follow the data (`routing="auto"`).

    biclique    window joins migrate nothing: units that were removed get no more tuples, are probed as long as they hold any, and are gone when these have expired.
                Where a side is kept for ever, its segments are handed over to other units of the subgroup; they are files, so only the manifest changes
    grid        when a batch begins under another size, its units take what is theirs from what is stored (`routing.resize`)

Every join of a pipeline scales by itself.

Invariant: a function of the manifest and of what the batch reports. Segments move only inside their subgroup, where every probe that could meet them goes, or by the units
themselves, under the intent of the batch that does it.
Implements: Lin, Ooi, Wang, Yu (2015), section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from watersmeet.dataflow.contract import MOST_UNITS, first_unit
from watersmeet.dataflow.report import Report
from watersmeet.errors import OptionError
from watersmeet.operators.assemble import resize_grids
from watersmeet.operators.balance import BicliqueBalance, BicliqueMemory, find_cut
from watersmeet.plan.model import Plan, Stage
from watersmeet.query.scaling import Scaling
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import Resized, write_grid
from watersmeet.routing.scaling import ScalingMemory, decide, decide_grid
from watersmeet.routing.spread import HotKey
from watersmeet.runtime.rounds.batch import Account
from watersmeet.storage.manifest import BatchManifest, Identity, Intent

Routing: TypeAlias = Epochs | Hypercube
Heavy = tuple[int, int, Sequence[tuple[int, int]]]
"""What a source task has seen of a side: its number, how many rows, and (key, rows) of its most frequent keys."""


@dataclass
class Measured:
    """What a batch has left at the units of one join, by their numbers in it."""

    sides: list[dict[int, int]] = field(default_factory=list)
    """By side the bytes that units hold: in memory with indexes, as they have reported; of those that had no turn, as stored."""
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def loads(self) -> dict[int, int]:
        """Bytes by unit."""
        out: dict[int, int] = {}
        for side in self.sides:
            for unit, held in side.items():
                out[unit] = out.get(unit, 0) + held
        return out


@dataclass(frozen=True)
class Scaled:
    """The routing of a query over time; without `scaling` it stays as it is."""

    plan: Plan
    scaling: Scaling | None = None
    name = "routing"

    def __post_init__(self) -> None:
        if self.scaling is None:
            return
        if self.plan.parts:
            raise OptionError(
                "scaling= is for inner joins: of an outer, semi, anti or as-of join units know who has had a partner, and cannot hand that over; give units= as many as the load will need"
            )
        if self.plan.sites is not None:
            raise OptionError(
                "scaling= is for units of one application, and this query runs across sites: scale each of them by its own units="
            )
        if self.plan.sequenced:
            raise OptionError(
                "scaling= and ROWS windows do not go together: one unit numbers their tuples; give a window in time, or units="
            )
        if self.plan.shipping == "semijoin":
            raise OptionError("scaling= and shipping='semijoin' do not go together: use shipping='full'")

    def next(self, before: BatchManifest) -> list[dict[str, Any]]:
        return before.routing

    @property
    def watches_keys(self) -> bool:
        """Whether source tasks should count keys."""
        routing = self.plan.stages[0].routing
        return self.scaling is not None and self.scaling.hot_keys and isinstance(routing, Biclique) and routing.by_keys

    def settle(self, before: BatchManifest, after: BatchManifest, intent: Intent, account: Account) -> list[str]:
        if self.scaling is None and not intent.routing:
            return []
        routings, said = self._routings(intent.routing), list[str]()
        if self.scaling is not None:
            memory = ScalingMemory(**after.scaling) if after.scaling else ScalingMemory()
            for side, rows, keys in _sum_by_side(account.heavy):
                memory.count(side, rows, keys)
            for number in routings:
                routings[number], changes = self._scale(number, routings, memory, after, intent, account)
                said += changes
            after.scaling = asdict(memory)
        occupied = {unit for unit, _, _ in after.segments()}
        for number, routing in routings.items():
            if isinstance(routing, Epochs):
                held = {unit - first_unit(number) for unit in occupied}
                routing = routing.prune(routing.units - held, find_cut(self.plan, after.maxima, number))
                routings[number] = routing
            gone = _units_of(after, number) - {first_unit(number) + unit for unit in _members(routing)} - occupied
            after.retire(gone)
        after.routing = [entry for n, routing in routings.items() for entry in self._write(n, routing)]
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The routing of the next batch, if it is not the plan's."""
        return show_routing(self.plan, manifest)

    def count_units(self, manifest: BatchManifest) -> int:
        """How many units store new tuples from the next batch on."""
        return sum(len(_members(routing, storing=True)) for routing in self._routings(manifest.routing).values())

    def _routings(self, raw: Sequence[Mapping[str, Any]]) -> dict[int, Routing]:
        """By join how a batch has routed; grids as they are after it."""
        epochs, resized = Epochs.by_stage(raw), resize_grids(self.plan, raw)
        out: dict[int, Routing] = {}
        for number, stage in enumerate(resized.stages):
            if isinstance(stage.routing, Biclique):
                out[number] = epochs.get(number, Epochs((stage.routing,)))
            elif isinstance(stage.routing, Hypercube):
                out[number] = Hypercube(stage.routing.dimensions, stage.routing.shares, stage.routing.classes_of)
        return out

    def _write(self, number: int, routing: Routing) -> list[dict[str, Any]]:
        """Entries of the next batch's routing; none where it is the plan's."""
        planned = self.plan.stages[number].routing
        if isinstance(routing, Epochs):
            return [] if routing.routings == (planned,) else routing.to_json(number)
        return [] if routing == planned else [write_grid(number, routing)]

    def _scale(
        self,
        number: int,
        routings: Mapping[int, Routing],
        memory: ScalingMemory,
        after: BatchManifest,
        intent: Intent,
        account: Account,
    ) -> tuple[Routing, list[str]]:
        """One join: how the next batch is routed, and what changes, in words."""
        assert self.scaling is not None
        routing, found = routings[number], measure(self.plan.stages[number], number, after, account)
        elsewhere = sum(len(_members(other, storing=True)) for n, other in routings.items() if n != number)
        where: dict[str, Any] = {"seconds": found.seconds, "stage": number, "elsewhere": elsewhere}
        if isinstance(routing, Hypercube):
            grid = decide_grid(self.scaling, routing, found.sides, memory, **where)
            if grid == routing:
                return routing, []
            hot = tuple(h for h in map(HotKey.from_json, intent.spread) if h.stage == number)
            changed = Resized(grid.dimensions, grid.shares, grid.classes_of, routing.shares, hot)
            join = f"join {number + 1}, " if number else ""
            return changed, [f"{join}all sides: {routing.units} -> {grid.units} units"]
        cools = self._expires(self.plan.stages[number])
        decision = decide(self.scaling, routing.current, found.loads, memory, cools=cools, **where)
        if not decision.changes:
            return routing, []
        said = [*decision.changes, *self._migrate(after, number, routing.current, decision.routing, found.loads)]
        return routing.then(decision.routing, max(after.maxima.values(), default=0)), said

    def _expires(self, stage: Stage) -> bool:
        """Whether no side is kept for ever: then earlier routings end."""
        return all(self.plan.retention_us(stage, side) < UNBOUNDED for side in stage.sides)

    def _migrate(
        self, after: BatchManifest, number: int, old: Biclique, new: Biclique, loads: Mapping[int, int]
    ) -> list[str]:
        """Hand segments over inside subgroups of sides that are kept for ever."""
        said, stage, first = [], self.plan.stages[number], first_unit(number)
        held = {first + unit: bytes for unit, bytes in loads.items()}
        for position, side in enumerate(stage.sides):
            if self.plan.retention_us(stage, side) < UNBOUNDED:
                continue
            moved = 0
            for then, now in zip(old.sides[position], new.sides[position], strict=True):
                if then != now:
                    units, among = ([first + u for u in some] for some in (sorted({*then, *now}), now))
                    moved += after.deal(Identity.of(self.plan), side.name, units, among, held)
            if moved:
                said.append(f"side {position}: {moved} segments handed over")
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
            after.retire(_units_of(after, 0) - Epochs.from_json(made.routing).units - occupied)
        return said

    def explain(self, manifest: BatchManifest) -> list[str]:
        """The routing of the next batch, if it is not the plan's."""
        return show_routing(self.plan, manifest)


def measure(stage: Stage, number: int, after: BatchManifest, account: Account) -> Measured:
    """What a batch has left at the units of a join."""
    first, names = first_unit(number), [side.name for side in stage.sides]
    stored: list[dict[int, int]] = [{} for _ in names]
    for unit, kind, info in after.segments():
        if unit // MOST_UNITS == number and kind in names:
            mine = stored[names.index(kind)]
            mine[unit - first] = mine.get(unit - first, 0) + info.bytes
    out = Measured(stored)
    for unit, held in out.loads.items():
        reported = account.reports.get(first + unit, Report()).memory
        if reported > held:
            for side in (s for s in stored if unit in s):
                side[unit] = round(side[unit] * reported / held)
    reports = {unit: r for unit, r in account.reports.items() if unit // MOST_UNITS == number}
    out.seconds = {unit - first: report.seconds for unit, report in reports.items()}
    return out


def show_routing(plan: Plan, manifest: BatchManifest) -> list[str]:
    """The routing of the next batch in words, if it is not the plan's."""
    out = []
    for number, epochs in Epochs.by_stage(manifest.routing).items():
        sizes, kept = [len(members) for members in epochs.current.members], len(epochs.routings) - 1
        words = f"{epochs.current.kind}, {sizes[0]} and {sizes[1]} units store; {kept} earlier routings are probed"
        out.append(f"now {_name_join(plan, number)}{words}")
    for number, stage in enumerate(resize_grids(plan, manifest.routing).stages):
        planned = plan.stages[number].routing
        if isinstance(stage.routing, Hypercube) and stage.routing.units != planned.units:
            shares = " x ".join(map(str, stage.routing.shares))
            out.append(f"now {_name_join(plan, number)}{stage.routing.kind}, {shares} units instead of {planned.units}")
    return out


def _name_join(plan: Plan, number: int) -> str:
    return f"join {number + 1}: " if len(plan.stages) > 1 else ""


def _members(routing: Routing, *, storing: bool = False) -> set[int]:
    """The units of a routing, or those that store new tuples."""
    if isinstance(routing, Hypercube):
        return set(range(routing.units))
    return {unit for side in routing.current.members for unit in side} if storing else routing.units


def _units_of(manifest: BatchManifest, number: int) -> set[int]:
    return {unit for unit in manifest.units if unit // MOST_UNITS == number}


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
