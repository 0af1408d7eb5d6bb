"""What a tree costs, and the cheapest one: the formulas of one-way joins, with joined tuples as a stream.

    level      stream k  <-->  results of the level below, over streams B
    downward   from B's new rows to k's window     rows of B: those of all heads in B together
    upward     from k's new tuples to B's window   a row of B is in it while all its members are in theirs: w_B = product of w_i, joined

Invariant: the search finds the cheapest tree under the formulas. Ties go to what comes first.
Implements: Tran and Lee (2010), section 4.2, whose cost model is left open there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.sites.planning.cost import PRICES, Cost, PricedJoin
from watersmeet.sites.planning.flow import Flow, FlowValues, Meeting
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, Level, OneWayStep, TreePlan
from watersmeet.sites.planning.optimize import Optimizer, PricedStep
from watersmeet.sites.planning.statistics import StreamStatistics


@dataclass(frozen=True)
class FoundTree:
    """A tree, its cost in seconds per second, and the estimates of its levels: downward, then upward."""

    plan: TreePlan
    seconds: float
    estimates: tuple[tuple[PricedStep, PricedStep], ...]

    @property
    def bytes(self) -> float:
        """Expected, per second."""
        return sum(e.cost.bytes for level in self.estimates for e in level)

    @property
    def shipments(self) -> float:
        return sum(e.cost.shipments for level in self.estimates for e in level)


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
        return FoundTree(plan, sum(e.seconds for level in out for e in level), tuple(out))

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
        _, ((first, _), *levels) = min(states.values(), key=lambda way: way[0])
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
        upward = [(PRICES[a](up).seconds(back, out), a) for a in algorithms if (a in AT_SOURCE) == at_stream]
        downward = [(PRICES[a](down).seconds(out, back), a) for a in algorithms if (a in AT_SOURCE) != at_stream]
        (x, first), (y, second) = (min(prices, key=lambda price: price[0]) for prices in (upward, downward))
        return x + y, Level(self.query.aliases[k], first, second)

    def _level(self, done: int, below: str, k: int, level: Level) -> tuple[PricedStep, PricedStep]:
        down, up = self._both(done, k)
        here, setting = self.linear.sites[k], self.linear.setting
        out, back = setting.line(below, here), setting.line(here, below)
        downward: Cost = PRICES[level.downward](down)
        upward: Cost = PRICES[level.upward](up)
        per_second = 1e6 / setting.interval_us
        return (
            PricedStep(OneWayStep(level.stream, level.downward), below, down.flow.rows * per_second, downward, downward.seconds(out, back)),
            PricedStep(OneWayStep(level.stream, level.upward), here, up.flow.rows * per_second, upward, upward.seconds(back, out)),
        )  # fmt: skip

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
