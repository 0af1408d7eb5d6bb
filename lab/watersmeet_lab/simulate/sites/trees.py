"""Trees of two-way joins across sites: what one costs, and the cheapest one: the formulas of one-way joins, with joined tuples as a stream.

    ((a b) c)  one order for all; each level is a two-way join, that is two one-way joins

    level      stream k  <-->  results of the level below, over streams B
    downward   from B's new rows to k's window     rows of B: those of all heads in B together
    upward     from k's new tuples to B's window   a row of B is in it while all its members are in theirs: w_B = product of w_i, joined

Invariant: the search finds the cheapest tree under the formulas. Ties go to what comes first.
Implements: Tran and Lee (2010), section 4.2, whose cost model is left open there.
Departs from the paper: the two one-way joins of a level must have one place of results, since those have a window together; the
paper does not say where that window is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.errors import OptionError
from watersmeet.plan.explain.sites import explain_cost, explain_joins, explain_setting, explain_step
from watersmeet.sites.planning.cost import PRICES, Cost, PricedJoin, Setting
from watersmeet.sites.planning.flow import Flow, FlowValues, Meeting
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import Found, Optimizer, PricedStep
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


def explain_found(found: Found | FoundTree, setting: Setting) -> str:
    """A linear plan or a tree as text: sites and windows, the setting, then one line for each one-way join."""
    return "\n".join(explain_joins(found, setting) if isinstance(found, Found) else _explain_tree(found, setting))


def _explain_tree(found: FoundTree, setting: Setting) -> Iterator[str]:
    query, below = found.plan.query, found.plan.first
    yield from explain_setting(query, setting)
    yield explain_cost("tree", found.bytes, found.shipments, found.seconds)
    for level, (downward, upward) in zip(found.plan.levels, found.estimates, strict=True):
        yield f"  {below} with {level.stream}"
        yield explain_step(downward, level.stream, query.stream(level.stream).site)
        yield explain_step(upward, f"({below})", downward.source)
        below = f"{below}, {level.stream}"
