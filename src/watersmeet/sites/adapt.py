"""Statistics of streams as they flow, and how the next batch joins.

    batch n: measures of every site  ->  memory (older batches fade)  ->  statistics  ->  the optimizer  ->  the plan of batch n+1

Time is the streams' own: rates are tuples per second of event time, and the interval is what a micro-batch covers of it.

Invariant: memory is JSON and stands in the manifest; the decision is a function of it, of the plan and of the batch's reports, so a replay decides alike.
Implements: Tran and Lee (2010), section 4.1 on statistics that are measured, and section 7's adaptivity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from watersmeet.dataflow.contract import Report
from watersmeet.plan.explain.sites import explain_sites
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.place_sites import column
from watersmeet.plan.shipping import is_clear, is_enough
from watersmeet.sites.planning.cost import PerTuple
from watersmeet.sites.planning.model import Column
from watersmeet.sites.planning.optimize import Found, cheapest
from watersmeet.sites.planning.placed import ANYTHING, KEY_BYTES, Sequences, write_plan
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics


def settle(
    plan: Plan, memory: SiteMemory, reports: Iterable[Report], before: Mapping[str, int], after: Mapping[str, int]
) -> tuple[Sequences, list[str]]:
    """Take a batch's measures in: the sequences of the next one, and what will change, in words."""
    measures = {alias: said for report in reports for alias, said in report.measured.items()}
    memory.count(measures, advance(plan, measures, before, after))
    return decide(plan, memory)


def sum_shipments(plan: Plan, reports: Mapping[int, Report]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Shipments, rows and bytes by (sender, receiver)."""
    if plan.sites is None:
        return {}
    names, out = plan.site_names, dict[tuple[str, str], tuple[int, int, int]]()
    for _, report in sorted(reports.items()):
        for pair, (shipments, rows, size) in report.sent.items():
            sender, receiver = map(int, pair.split(">"))
            out[names[sender], names[receiver]] = shipments, rows, size
    return out


class Adapting:
    """How sites join over time, and what they have shipped, where one process runs all of them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.memory = plan, SiteMemory()
        self.sequences: Sequences = {}
        self.shipped: dict[tuple[str, str], tuple[int, int, int]] = {}
        """Shipments, rows and bytes by (sender, receiver)."""
        self.changes: list[str] = []

    def settle(self, reports: Mapping[int, Report], before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Take a batch in."""
        plan = self.plan.at(self.sequences)
        self.sequences, said = settle(plan, self.memory, reports.values(), before, after)
        self.changes += said
        for pair, (shipments, rows, size) in sum_shipments(plan, reports).items():
            known = self.shipped.get(pair, (0, 0, 0))
            self.shipped[pair] = known[0] + shipments, known[1] + rows, known[2] + size


FADING = 0.6
"""What a batch counts for in the next one."""
_ALL = 2.0**62
_LEAST_WEIGHT = 0.02
_MOST_VALUES = 512


@dataclass
class Sketch:
    """A sample of a key's values: of those with a hash below `below`, the weight of their tuples, and of its squares."""

    below: float = _ALL
    values: dict[str, list[float]] = field(default_factory=dict)
    rows: float = 0.0
    squares: float = 0.0
    """Of the weights of all tuples."""

    def fade(self) -> None:
        self.rows, self.squares = self.rows * FADING, self.squares * FADING**2
        faded = {h: [w * FADING, q * FADING**2] for h, (w, q) in self.values.items()}
        self.values = {h: v for h, v in faded.items() if v[0] > _LEAST_WEIGHT}
        if self.below < _ALL and len(self.values) < _MOST_VALUES // 8:
            # There were many values and few are left: what a thin sample says of them is chance, so begin again.
            self.below, self.values, self.rows, self.squares = _ALL, {}, 0.0, 0.0

    def add(self, rows: int, below: float, counts: Sequence[Sequence[float]]) -> None:
        """A batch's sample."""
        self.rows, self.squares = self.rows + rows, self.squares + rows
        self.below = min(self.below, below)
        for hash_, count in counts:
            w, q = self.values.get(str(hash_), (0.0, 0.0))
            self.values[str(hash_)] = [w + count, q + count]
        kept = sorted(int(h) for h in self.values if int(h) < self.below)
        if len(kept) > _MOST_VALUES:
            self.below = float(kept[_MOST_VALUES])
        self.values = {h: v for h, v in self.values.items() if int(h) < self.below}

    @property
    def distinct(self) -> float:
        """1 / the chance that two tuples are equal."""
        equal = sum(w * w - q for w, q in self.values.values()) * _ALL / self.below
        return max(1.0, (self.rows * self.rows - self.squares) / max(equal, 1.0))

    def equal_with(self, other: Sketch) -> float:
        """The chance that a tuple of each are equal."""
        below = min(self.below, other.below)
        shared = (h for h in self.values.keys() & other.values.keys() if int(h) < below)
        weight = sum(self.values[h][0] * other.values[h][0] for h in shared) * _ALL / below
        return weight / max(self.rows * other.rows, 1e-9)


@dataclass
class MeasuredStream:
    """What batches have measured of a stream, fading."""

    rows: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    keys: dict[str, Sketch] = field(default_factory=dict)

    def fade(self) -> None:
        self.rows, self.bytes, self.seconds = (x * FADING for x in (self.rows, self.bytes, self.seconds))
        for sketch in self.keys.values():
            sketch.fade()


@dataclass
class SiteMemory:
    """All streams, by alias."""

    streams: dict[str, MeasuredStream] = field(default_factory=dict)
    span_us: float = 0.0
    """Event time that measured batches covered, fading like their number."""
    weight: float = 0.0
    batches: int = 0
    """Measured since the last change."""
    changes: int = 0
    per_tuple: list[float] | None = None
    """What processing costs, as it was measured when the query began."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> SiteMemory:
        streams = {
            alias: MeasuredStream(**{**seen, "keys": {c: Sketch(**s) for c, s in seen["keys"].items()}})
            for alias, seen in raw.get("streams", {}).items()
        }
        return cls(**{**raw, "streams": streams})

    def count(self, measured: Mapping[str, Mapping[str, Any]], advanced_us: Mapping[str, int]) -> None:
        """Take a batch in: what sites measured, and by how much each alias' stream has advanced."""
        for seen in self.streams.values():
            seen.fade()
        self.span_us, self.weight = self.span_us * FADING, self.weight * FADING
        for alias, us in advanced_us.items():
            seen = self.streams.setdefault(alias, MeasuredStream())
            seen.seconds += us / 1e6
            if alias in measured:
                said = measured[alias]
                seen.rows += said["rows"]
                seen.bytes += said["bytes"]
                for c, sample in said["keys"].items():
                    seen.keys.setdefault(c, Sketch()).add(said["rows"], sample["below"], sample["counts"])
        if any(advanced_us.values()):
            self.span_us += max(advanced_us.values())
            self.weight += 1
        self.batches += 1

    @property
    def interval_us(self) -> int:
        return max(1, round(self.span_us / self.weight)) if self.weight else 1_000_000

    def is_known(self, plan: Plan) -> bool:
        """Whether every stream has been seen for a while."""
        return all(
            a in self.streams and self.streams[a].rows >= 1 and self.streams[a].seconds > 0 for a in plan.aliases
        )

    def statistics(self, plan: Plan) -> Statistics:
        """As the optimizer takes them."""
        streams, common = {}, dict[frozenset[Column], float]()
        for source in plan.inputs:
            seen = self.streams[source.alias]
            distinct = {column(plan, c, source.alias): seen.keys[str(c)].distinct for c in source.keys} | {
                ANYTHING: 1.0
            }
            sizes = dict.fromkeys(distinct, float(KEY_BYTES))
            streams[source.alias] = StreamStatistics(seen.rows / seen.seconds, seen.bytes / seen.rows, distinct, sizes)
        for number, members in enumerate(plan.classes):
            for x, y in combinations(members.members, 2):
                equal = self.streams[x].keys[str(number)].equal_with(self.streams[y].keys[str(number)])
                p, q = (x, column(plan, number, x)), (y, column(plan, number, y))
                values = streams[x].distinct[p[1]] * streams[y].distinct[q[1]]
                common[frozenset({p, q})] = max(equal * values, 1e-6)
        return Statistics(streams, common)

    @property
    def costs(self) -> PerTuple | None:
        return None if self.per_tuple is None else PerTuple(*self.per_tuple)


def better(plan: Plan, memory: SiteMemory) -> tuple[Found, Found] | None:
    """The plan that measured statistics ask for, and the present one, both priced; None if the present one should stay."""
    assert plan.sites is not None
    if plan.sites.search is None or not is_enough(memory.batches, memory.changes) or not memory.is_known(plan):
        return None
    optimizer = plan.sites.optimizer(memory.statistics(plan), memory.interval_us, memory.costs)
    best, standing = cheapest(optimizer, plan.sites.search), plan.sites.price(optimizer)
    if best.plan.sequences == plan.sites.linear.sequences or not is_clear(best.seconds, standing.seconds):
        return None
    return best, standing


def decide(plan: Plan, memory: SiteMemory) -> tuple[Sequences, list[str]]:
    """The plan of the next batch, and in words what changes; `plan` has the present one. Memory notes a change."""
    assert plan.sites is not None
    found = better(plan, memory)
    if found is None:
        return plan.sites.to_json(), []
    best, standing = found
    memory.batches, memory.changes = 0, memory.changes + 1
    said = f"from the next batch on {best.plan}: {best.seconds:.3g} s per second of the streams instead of {standing.seconds:.3g}"
    return write_plan(best.plan), [said]


def advance(
    plan: Plan, measured: Mapping[str, Any], before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, int]:
    """By how much a batch has moved every alias' stream; the first one, by the span that it covers."""
    out = {}
    for source in plan.inputs:
        if source.stream in before:
            out[source.alias] = after[source.stream] - before[source.stream]
        elif source.alias in measured:
            out[source.alias] = measured[source.alias]["high"] - measured[source.alias]["low"]
    return out


def explain_plan(plan: Plan, memory: SiteMemory) -> list[str]:
    """The present plan, priced under what has been measured, if every stream has been seen for a while."""
    if not memory.is_known(plan):
        return explain_sites(plan)
    source = f"measured: {memory.batches} batches under this plan, {memory.changes} changes of plan before"
    return explain_sites(plan, (memory.statistics(plan), memory.interval_us, memory.costs, source))
