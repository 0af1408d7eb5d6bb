"""Trees of two-way joins across sites: what one costs, and the cheapest one: the formulas of one-way joins, with joined tuples as a stream.

    ((a b) c)  one order for all; each level is a two-way join, that is two one-way joins

    level      stream k  <-->  results of the level below, over streams B
    downward   from B's new rows to k's window     rows of B: those of all heads in B together
    upward     from k's new tuples to B's window   a row of B is in it while all its members are in theirs: w_B = product of w_i, joined

Joins inside a site ship nothing. Where one join of a level brings a copy of the other's source whole to the place of the results, the other sets out from there (`share_copies`).

Invariant: the search finds the cheapest tree under the formulas. Ties go to what comes first.
Implements: Tran and Lee (2010), section 4.2, whose cost model is left open there.
Departs from the paper: the two one-way joins of a level must have one place of results, since those have a window together; the
paper does not say where that window is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import OptionError
from watersmeet.sites.planning.cost import PRICES, Cost, LineCost, PricedJoin
from watersmeet.sites.planning.flow import Flow, FlowValues, Meeting
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import NOTHING_SHIPPED, Delivery, Optimizer, PricedStep, free_of_shipping
from watersmeet.sites.planning.statistics import StreamStatistics


@dataclass(frozen=True)
class Level:
    """A two-way join of a tree: a stream with the results of the level below (at first: with another stream)."""

    stream: str
    upward: Algorithm
    """From the stream to what is below."""
    downward: Algorithm
    """From what is below to the stream."""

    def __post_init__(self) -> None:
        if self.upward.at_source == self.downward.at_source:
            raise OptionError(
                f"level of {self.stream}: {self.upward.value} and {self.downward.value} put results at two sites, and they"
                " have one window; let one join at the source and the other at the destination"
            )

    @property
    def at_stream(self) -> bool:
        """Whether results arise at the stream's site."""
        return self.upward.at_source

    def __str__(self) -> str:
        return f"{self.stream} {self.upward.value}/{self.downward.value}"


@dataclass(frozen=True)
class TreePlan:
    """One order for all streams: the first, then levels.

    >>> query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.x = c.y"], window_us=1)
    >>> print(TreePlan.of(query, "a, b SP-S/SM-D1, c SM-D2/SM-S1"))
    ((a, b SP-S/SM-D1), c SM-D2/SM-S1)
    """

    query: SiteQuery
    first: str
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        done = [self.first, *(level.stream for level in self.levels)]
        if sorted(done) != sorted(self.query.aliases):
            raise OptionError(f"a tree names each of {', '.join(self.query.aliases)} once, not {', '.join(done)}")
        for n, alias in enumerate(done[1:], 1):
            if not self.query.between(done[:n], alias):
                raise OptionError(f"the tree: no equality connects {alias} with {', '.join(done[:n])}")
        if rows := [s.alias for s in self.query.streams if s.window_rows is not None]:
            raise OptionError(
                f"a tree keeps a window over joined tuples, and a window of rows ({', '.join(rows)}) does not say how long"
                " they live; use a linear plan"
            )

    @classmethod
    def of(cls, query: SiteQuery, text: str) -> TreePlan:
        """From text: 'a, b SP-S/SM-D1, ...'."""
        first, *items = (item.split() for item in text.split(","))
        if len(first) != 1 or any(len(i) != 2 or i[1].count("/") != 1 for i in items):
            raise OptionError(f"tree {text!r}: write a stream, then streams with two algorithms: a, b SP-S/SM-D1")
        levels = (Level(name, *map(Algorithm.of, both.split("/"))) for name, both in items)
        return cls(query, first[0], tuple(levels))

    def places(self) -> tuple[str, ...]:
        """The site of the first stream, then that of the results of every level."""
        at = [self.query.stream(self.first).site]
        for level in self.levels:
            at.append(self.query.stream(level.stream).site if level.at_stream else at[-1])
        return tuple(at)

    def __str__(self) -> str:
        out = self.first
        for level in self.levels:
            out = f"({out}, {level})"
        return out


@dataclass(frozen=True)
class FoundTree:
    """A tree, its cost in seconds per second, and the estimates of its levels: downward, then upward."""

    plan: TreePlan
    seconds: float
    estimates: tuple[tuple[PricedStep, PricedStep], ...]
    delivery: Delivery = NOTHING_SHIPPED

    @property
    def bytes(self) -> float:
        """Expected, per second."""
        return self.delivery.bytes + sum(e.cost.bytes for level in self.estimates for e in level)

    @property
    def shipments(self) -> float:
        return self.delivery.shipments + sum(e.cost.shipments for level in self.estimates for e in level)


class TreeOptimizer:
    """Prices and searches trees; shares what an optimizer of linear plans knows."""

    def __init__(self, linear: Optimizer) -> None:
        self.linear, self.flows, self.query = linear, linear.flows, linear.query
        self._joins: dict[tuple[int, int], tuple[PricedJoin, PricedJoin]] = {}

    def price(self, plan: TreePlan) -> FoundTree:
        """The sum over all levels."""
        done, out = 1 << self.query.position[plan.first], []
        for level, below in zip(plan.levels, plan.places(), strict=False):
            k = self.query.position[level.stream]
            out.append(self._level(done, below, k, level))
            done |= 1 << k
        delivery = self._deliver(plan.places()[-1])
        return FoundTree(plan, sum(e.seconds for level in out for e in level) + delivery.seconds, tuple(out), delivery)

    def _deliver(self, at: str) -> Delivery:
        return self.linear.deliver((head, at) for head in range(len(self.linear.sites)))

    def find(self) -> FoundTree:
        """The cheapest tree: states are (streams joined, site of the results), as for linear plans."""
        sites, algorithms = self.linear.sites, self.linear.algorithms
        states: dict[tuple[int, str], tuple[float, tuple[tuple[int, Level | None], ...]]] = {
            (1 << n, site): (0.0, ((n, None),)) for n, site in enumerate(sites)
        }
        for _ in range(len(sites) - 1):
            wider: dict[tuple[int, str], tuple[float, tuple[tuple[int, Level | None], ...]]] = {}
            for (done, place), (seconds, steps) in states.items():
                for k in self.flows.reachable(done):
                    for at_stream in (True, False):
                        cost, level = self._cheapest(done, place, k, at_stream, algorithms)
                        state = done | 1 << k, sites[k] if at_stream else place
                        if state not in wider or seconds + cost < wider[state][0]:
                            wider[state] = seconds + cost, (*steps, (k, level))
            states = wider
        whole = [(seconds + self._deliver(place).seconds, steps) for (_, place), (seconds, steps) in states.items()]
        _, ((first, _), *levels) = min(whole, key=lambda way: way[0])
        plan = TreePlan(self.query, self.query.aliases[first], tuple(level for _, level in levels if level is not None))
        return self.price(plan)

    def _cheapest(
        self, done: int, place: str, k: int, at_stream: bool, algorithms: Sequence[Algorithm]
    ) -> tuple[float, Level]:
        """The best pair of one-way joins that leaves results at the stream's site, or where those below are."""
        down, up = self._both(done, k)
        here = self.linear.sites[k]
        line = self.linear.setting.line
        out, back = line(place, here), line(here, place)
        is_inside = place == here
        upward = [
            (_seconds(PRICES[a](up), back, out, is_inside), a) for a in algorithms if (a in AT_SOURCE) == at_stream
        ]
        downward = [
            (_seconds(PRICES[a](down), out, back, is_inside), a) for a in algorithms if (a in AT_SOURCE) != at_stream
        ]
        (x, first), (y, second) = (min(prices, key=lambda price: price[0]) for prices in (upward, downward))
        return x + y, Level(self.query.aliases[k], first, second)

    def _level(self, done: int, below: str, k: int, level: Level) -> tuple[PricedStep, PricedStep]:
        down, up = self._both(done, k)
        here, setting = self.linear.sites[k], self.linear.setting
        out, back = setting.line(below, here), setting.line(here, below)
        downward: Cost = PRICES[level.downward](down)
        upward: Cost = PRICES[level.upward](up)
        per_second = 1e6 / setting.interval_us
        both = (
            PricedStep(OneWayStep(level.stream, level.downward), below, down.flow.rows * per_second, downward, downward.seconds(out, back)),
            PricedStep(OneWayStep(level.stream, level.upward), here, up.flow.rows * per_second, upward, upward.seconds(back, out)),
        )  # fmt: skip
        return both if below != here else (free_of_shipping(both[0]), free_of_shipping(both[1]))

    def _both(self, done: int, k: int) -> tuple[PricedJoin, PricedJoin]:
        """The one-way joins of a level: downward and upward."""
        if (done, k) not in self._joins:
            flows, setting = self.flows, self.linear.setting
            heads = [n for n in range(len(flows.streams)) if done >> n & 1]
            below, met = self._below(heads, done), [flows.meet(h, done, k) for h in heads]
            # Heads differ in what they bring, not in what can match.
            meeting = met[0]._replace(
                draws=min(sum(m.draws for m in met), below.rows), of_head=all(m.of_head for m in met)
            )
            down = PricedJoin.of(below, meeting, flows.streams[k], flows.window_rows[k], False, setting)
            h = heads[0]
            rows = flows.window_rows[h] * flows.flow(h, done).rows / flows.flow(h, done).heads
            own = flows.flow(k, 1 << k)
            upward = Meeting(
                meeting.stream_values, own.rows, meeting.values, meeting.common, True, meeting.key_bytes
            )  # fmt: skip
            joined = StreamStatistics(max(below.rows, 1e-9) * 1e6 / setting.interval_us, below.full_bytes, {}, {})
            self._joins[done, k] = down, PricedJoin.of(own, upward, joined, rows, False, setting)
        return self._joins[done, k]

    def _below(self, heads: list[int], done: int) -> Flow:
        """All heads' rows together."""
        parts = [self.flows.flow(h, done) for h in heads]
        count = sum(p.heads for p in parts)
        alive = sum(p.heads * p.alive for p in parts) / count
        values = {
            c: FlowValues(v.distinct, sum(p.values[c].draws for p in parts), all(p.values[c].of_head for p in parts))
            for c, v in parts[0].values.items()
        }
        return Flow(count, alive, sum(p.rows for p in parts), parts[0].full_bytes, values)


def _seconds(cost: Cost, out: LineCost, back: LineCost, is_inside: bool) -> float:
    return cost.processing_s if is_inside else cost.seconds(out, back)


def share_copies(found: FoundTree) -> FoundTree:
    """A tree's estimates as sites run it: a source that is there as a copy sets out from the copy."""
    estimates = []
    for downward, upward in found.estimates:
        if upward.step.algorithm is Algorithm.SP_S:
            downward = free_of_shipping(downward)
        elif downward.step.algorithm is Algorithm.SP_S:
            upward = free_of_shipping(upward)
        estimates.append((downward, upward))
    joins = sum(e.seconds for level in estimates for e in level)
    return replace(found, estimates=tuple(estimates), seconds=joins + found.delivery.seconds)


def simple_trees(query: SiteQuery) -> Iterator[TreePlan]:
    """Trees that bring whole tuples to one place after another: cheap where sites share copies, which the search does not know."""
    for first in query.aliases:
        done = [first]
        while len(done) < len(query.aliases):
            done.append(next(a for a in query.aliases if a not in done and query.between(done, a)))
        for both in ((Algorithm.SP_S, Algorithm.SP_D), (Algorithm.SP_D, Algorithm.SP_S)):
            yield TreePlan(query, first, tuple(Level(alias, *both) for alias in done[1:]))


def find_tree(linear: Optimizer) -> FoundTree:
    """The cheapest tree as sites run it; ties go to the one that is found first."""
    trees = TreeOptimizer(linear)
    found = [trees.find(), *(trees.price(plan) for plan in simple_trees(linear.query))]
    return min(map(share_copies, found), key=lambda one: one.seconds)
