"""From what the units of a batch report to the hot keys of the next one: `routing.balance` for every dimension of every stage of a plan; and to the ranges and the sizes of a biclique's sides.

Invariant: a function of the reports, the clock, and what it has said before: what comes of it is written down before the next batch, so a replay does
not ask again. In one batch the coordinates of one dimension of a stage begin to hold keys, so that the home of each has all that they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from watersmeet.dataflow.contract import Dataflow, stage_of
from watersmeet.dataflow.report import Report
from watersmeet.operators.assemble import dataflow_of
from watersmeet.plan.model import Plan, Stage
from watersmeet.routing.balance import KeyCounts, adjust, find_wanted
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.depth import Sample, adapt_cells, merge_samples
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sizes import Flow, adapt_sizes
from watersmeet.routing.spread import HotKey

MOST_EARLIER = 3
"""Routings that hold tuples besides the newest; with more it waits until some have expired."""
Reports = Mapping[int, Report]


@dataclass
class Balanced:
    """The hot keys of the next batch, what has been counted, both as JSON, and what changes, in words."""

    hot: list[dict[str, Any]]
    memory: dict[str, Any]
    said: list[str]


@dataclass(frozen=True)
class Balance:
    """Spreads the hot keys of a plan while it runs on so many cores; if it does not adapt any more, they cool down."""

    plan: Plan
    cores: int
    adapts: bool = True

    @cached_property
    def _flow(self) -> Dataflow:
        return dataflow_of(self.plan)

    def settle(
        self,
        before: Sequence[Mapping[str, Any]],
        memory: Mapping[str, Any],
        reports: Reports,
        maxima: Mapping[str, int],
    ) -> Balanced:
        """After a batch with these hot keys."""
        if not before and not _counts_keys(memory) and not any(report.frequent for report in reports.values()):
            return Balanced([], {}, [])
        hot, out = [HotKey.from_json(raw) for raw in before], list[HotKey]()
        after = dict(memory)
        cuts = self._flow.cuts(self._flow.clock(dict(maxima), {}))
        now_ts = max(maxima.values(), default=0)
        for stage, join, grid in self._grids():
            adopts = self.adapts
            for dimension, share in enumerate(grid.shares):
                mine = [one for one in hot if (one.stage, one.dimension) == (stage, dimension)]
                name = f"{stage}.{dimension}"
                counts = KeyCounts(**after[name]) if name in after else KeyCounts()
                self._count(counts, stage, join, grid, dimension, mine, reports)
                after[name] = asdict(counts)
                known = {one.key: one for one in mine}
                wanted = find_wanted(counts, share, self.cores, known) if self.adapts else {}
                cut_of = [cuts[side.name] for side in join.sides]
                changed = adjust(mine, wanted, (stage, dimension), now_ts, cut_of, adopts=adopts)
                adopts = adopts and not any(one.adopting for one in changed)
                out += changed
        return Balanced([one.to_json() for one in out], after, self._say(hot, out))

    def _grids(self) -> Iterator[tuple[int, Stage, Hypercube]]:
        for number, stage in enumerate(self.plan.stages):
            if isinstance(stage.routing, Hypercube):
                yield number, stage, stage.routing

    def _count(
        self,
        counts: KeyCounts,
        stage: int,
        join: Stage,
        grid: Hypercube,
        dimension: int,
        hot: Sequence[HotKey],
        reports: Reports,
    ) -> None:
        """Take in what units of a stage have reported; what copies have is counted once."""
        mine = [r for unit, r in reports.items() if stage_of(unit) == stage]
        fixed = [n for n in range(len(join.sides)) if grid.find_fixed(n)[dimension]]
        keys: dict[int, list[float]] = {}
        copied = {one.key: one for one in hot}
        rows = [0.0] * len(join.sides)
        for side in fixed:
            name, homes = join.sides[side].name, grid.copies(side)
            rows[side] = sum(r.rows_in.get(name, 0) for r in mine) / homes
            for report in mine:
                for key, number in report.frequent.get(name, {}).get(str(dimension), ()):
                    one = copied.get(key)
                    places = 1 if one is None or one.anchor == side else len(one.copied)
                    keys.setdefault(key, [0.0] * len(join.sides))[side] += number / homes / places
                    rows[side] -= number / homes * (1 - 1 / places)
        counts.count([max(n, 0.0) for n in rows], keys, float(sum(r.found for r in mine)))

    def _say(self, before: Sequence[HotKey], after: Sequence[HotKey]) -> list[str]:
        """What has changed, in words."""
        was = {(one.stage, one.dimension, one.key): one for one in before}
        now = {(one.stage, one.dimension, one.key): one for one in after}
        said = []
        for place in sorted({*was, *now}):
            old, new = was.get(place), now.get(place)
            sizes = tuple(0 if one is None else len(one.spread) for one in (old, new))
            one = new or old
            assert one is not None
            side = self.plan.stages[one.stage].sides[one.anchor].name
            units = [max(size, 1) for size in sizes]
            if units[0] != units[1]:
                said.append(f"a key of {side} goes to {units[1]} units instead of {units[0]}: {_why(units)}")
        return said


def _counts_keys(memory: Mapping[str, Any]) -> bool:
    """Whether any key is remembered: of rows alone nothing follows."""
    return any(counts["keys"] for counts in memory.values())


@dataclass
class BicliqueMemory:
    """The routings of a join of two sides, empty if it is the plan's, what was sampled and what was counted; all as JSON."""

    routing: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    flow: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BicliqueBalance:
    """Lets the ranges of a join of two streams follow their values, and the sizes of its sides their rates, on so many cores."""

    plan: Plan
    cores: int

    @classmethod
    def of(cls, plan: Plan, cores: int) -> BicliqueBalance | None:
        """None where no biclique routes, or somebody has forced it."""
        by_two = len(plan.stages) == 1 and isinstance(plan.stages[0].routing, Biclique)
        return cls(plan, cores) if plan.may_spread and by_two else None

    def settle(
        self, before: BicliqueMemory, reports: Reports, maxima: Mapping[str, int], occupied: Set[int] | None = None
    ) -> tuple[BicliqueMemory, list[str]]:
        """After a batch under these routings; `occupied` are the units that hold tuples, if that is known."""
        join = self.plan.stages[0]
        assert isinstance(join.routing, Biclique)
        epochs = Epochs.from_json(before.routing) if before.routing else Epochs((join.routing,))
        known = before.samples or [[], []]
        brought = [[r.values.get(side.name, []) for r in reports.values()] for side in join.sides]
        samples = [merge_samples(old, new) for old, new in zip(known, brought, strict=True)]
        flow = Flow(**before.flow)
        flow.count(*self._count(epochs, reports))
        empty = frozenset[int]() if occupied is None else epochs.units - occupied
        epochs = epochs.prune(empty, find_cut(self.plan, maxima))
        made = sized = adapt_sizes(epochs.current, flow, self.cores)
        made = adapt_cells(sized, samples)
        if made == epochs.current or len(epochs.routings) > MOST_EARLIER:
            return BicliqueMemory(epochs.to_json() if before.routing else [], samples, asdict(flow)), []
        said = list(_tell_change(epochs.current, sized, made))
        then = epochs.then(made, max(maxima.values(), default=0))
        return BicliqueMemory(then.to_json(), samples, asdict(flow)), said

    def _count(self, epochs: Epochs, reports: Reports) -> tuple[list[float], list[float]]:
        """By side new tuples, and pairs that its units have looked at."""
        rows, pairs = [0.0, 0.0], [0.0, 0.0]
        names = [side.name for side in self.plan.stages[0].sides]
        for unit, report in reports.items():
            held_by = [unit in members for members in epochs.current.members]
            for side, name in enumerate(names):
                if held_by[side]:
                    rows[side] += report.rows_in.get(name, 0)
                    pairs[side] += max(report.found, report.looked)
        return rows, pairs


def _tell_change(old: Biclique, sized: Biclique, made: Biclique) -> Iterator[str]:
    if sized != old:
        m, n = (len(members) for members in sized.members)
        yield f"{m} and {n} units store the two sides from the next batch on: so their rates ask for"
    if made != sized:
        how = "at random" if made.by is None else "cells of equal depth"
        yield f"ranges did not keep the units busy: {how} from the next batch on"


def find_cut(plan: Plan, maxima: Mapping[str, int], join: int = 0) -> int:
    """The time before which nothing that a join of a plan stores can live."""
    flow = dataflow_of(plan)
    cuts = flow.cuts(flow.clock(dict(maxima), {}))
    return min(cuts[side.name] for side in plan.stages[join].sides)


def _why(units: Sequence[int]) -> str:
    return "it is hot" if units[1] > units[0] else "it has cooled down"


def describe_hot(plan: Plan, hot: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hot keys in words, most of them together."""
    by_side: dict[str, list[int]] = {}
    for one in map(HotKey.from_json, hot):
        side = plan.stages[one.stage].sides[one.anchor].name
        by_side.setdefault(side, []).append(len(one.spread))
    return [
        f"hot keys of {side}: {len(sizes)}, spread over up to {max(sizes)} units each"
        for side, sizes in by_side.items()
    ]
