"""Sites that go by the paper's bound on delays instead of by what letters say: section 2.2, and what happens without its constraints.

    a letter sent at E is there at E + delta, so at T a site takes for granted all that was sent until T - delta

The engine (`watersmeet.sites`) runs as it is; only what a site takes for known differs: `Frontiers` here are those of a clock. Where a line is slower than delta, results are wrong:
that is what heartbeats are for.

Invariant: on lines that keep the bound, and with all three constraints, results are the query's.
Implements: Tran and Lee (2010), section 2.2: delta, delayed probe (1), delayed removal (2), limited-interval match (3).
Departs from the paper: sites act at the ends of intervals, so a delay is counted in whole intervals. Two streams: over longer sequences the paper adds delays up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import pyarrow as pa

from watersmeet.dataflow.clock import dead_before
from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.frontiers import Frontiers, Told
from watersmeet.sites.letter import Letter
from watersmeet.sites.one_way.at_unit import Span
from watersmeet.sites.paths import ASKING, KNOWING, Leg, Paths
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.site_state import Epoch, SiteState
from watersmeet.sites.station import Station
from watersmeet_lab.simulate.network import Network
from watersmeet_lab.simulate.sites.lines import OverLines

Constraint = Literal["delayed probe", "delayed removal", "limited match"]
MOST_HOPS = 5
"""Letters that a head waits for, and one more."""


@dataclass(frozen=True)
class Bound:
    """The longest that a letter is thought to take, and the constraints that are left out, to see what they are for."""

    delta_us: int
    without: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.delta_us, int) or self.delta_us < 0:
            raise OptionError(f"delta_us={self.delta_us!r}: give whole microseconds")
        if strange := [c for c in self.without if c not in get_args(Constraint)]:
            raise OptionError(f"without={strange[0]!r}: there are {', '.join(get_args(Constraint))}")

    def round_up(self, interval_us: int) -> int:
        """A letter is taken at the end of an interval.

        >>> Bound(80_000).round_up(100_000), Bound(100_001).round_up(100_000)
        (100000, 200000)
        """
        return -(-self.delta_us // interval_us) * interval_us


class BoundedFrontiers(Frontiers):
    """How far everything is at a time of the clock, if no letter takes longer than the bound."""

    def __init__(
        self, paths: Paths, site: int, streams: Sequence[int], told: Told, now_us: int, hop_us: int, without: Collection[Constraint]
    ) -> None:  # fmt: skip
        self.now_us, self.hop_us, self.without = now_us, hop_us, without
        super().__init__(paths, site, streams, told)

    def of(self, stream: int) -> int:
        return self._streams[stream] if self._paths.homes[stream] == self.site else self.now_us - self.hop_us

    def _pass_source(self, leg: Leg, fed: int, stream: int) -> None:
        super()._pass_source(leg, fed, self.now_us if "delayed probe" in self.without else stream)

    def _hear(self, leg: Leg, verb: str) -> int:
        return self.now_us - _count_hops(leg, verb) * self.hop_us

    def window_cut(self, stream: int) -> int:
        return self._cut(stream, super().window_cut(stream))

    def copy_cut(self, stream: int) -> int:
        return self._cut(stream, super().copy_cut(stream))

    def _cut(self, stream: int, cut: int) -> int:
        if "delayed removal" not in self.without:
            return cut
        reach = max((leg.reach_us for leg in self._paths.all if leg.to == stream), default=0)
        return min(self._streams[stream], dead_before(self.now_us, reach)) if cut < self.now_us else cut


def _count_hops(leg: Leg, verb: str) -> int:
    """How many letters a head has waited for when something that is said on a leg has come.

    SM-D2: ask (1), want (2), rows (3). SM-D1: values (1), rows (2).
    """
    asked = 1 + (leg.how in KNOWING)
    if verb == "ask":
        return asked
    if verb in ("ready", "want"):
        return asked + 1
    return (asked + 2 if leg.how in ASKING else asked) if leg.how is not Algorithm.SP_D else 1


class BoundedStation(Station):
    """A site that goes by the clock."""

    def __init__(self, plan: Plan, site: int, units: int, bound: Bound, clock: Callable[[], tuple[int, int]]) -> None:
        super().__init__(plan, site, units)
        if len(plan.aliases) > 2:
            raise OptionError(f"a bound on delays is for two streams, and the query has {len(plan.aliases)}")
        self.bound, self.clock = bound, clock

    def paths(self, epoch: Epoch) -> Paths:
        paths = super().paths(epoch)
        if "limited match" not in self.bound.without:
            return paths
        return replace(paths, legs=tuple(tuple(replace(leg, plan=self.plan) for leg in legs) for legs in paths.legs))

    def spans(self, state: SiteState, own: Mapping[str, int]) -> list[Span]:
        now_us, interval_us = self.clock()
        hop_us, out = self.bound.round_up(interval_us), list[Span]()
        for epoch, span in zip(state.epochs, super().spans(state, own), strict=True):
            streams = [own.get(alias, now_us - hop_us) for alias in self.plan.aliases]
            frontiers = BoundedFrontiers(span.paths, self.site, streams, epoch.told, now_us, hop_us, self.bound.without)
            out.append(replace(span, frontiers=frontiers))
        return out


class BoundedSites(OverLines):
    """The sites of a plan over a network, under a bound."""

    def __init__(self, plan: Plan, network: Network, units: int, bound: Bound) -> None:
        super().__init__(plan, network, units)
        self._over, self._hop_us = 0, bound.round_up(network.interval_us)
        for n, site in enumerate(self.sites.values()):
            site.station = BoundedStation(plan, n, units, bound, self._read_clock)
            site.flows = SiteFlows(site.station, plan)

    def _read_clock(self) -> tuple[int, int]:
        """The event time that it is, and the interval."""
        return self.first_us + self.simulation.now_us, self.simulation.network.interval_us

    def push(self, wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        """Streams have reached the end of the interval: clocks are synchronous."""
        now_us, _ = self._read_clock()
        reached = {source.stream: now_us for source in self.plan.inputs}
        found = super().push(wires, **{**how, "reached": reached})
        self._over += bool(how.get("ended"))
        if self._is_waiting:
            self.awaited.add(self.plan.site_names[0])  # the clock goes on for those who wait for it
        return found

    def carry(self, letter: Letter, size: int, *, matters: bool) -> None:
        """What a letter says changes with the clock for ever; results follow from its items."""
        super().carry(letter, size, matters=bool(letter.items) or (matters and self._is_waiting))

    @property
    def _is_waiting(self) -> bool:
        """Whether heads may wait for letters, if these take no longer than the bound."""
        return self._over < MOST_HOPS * (1 + self._hop_us // self.simulation.network.interval_us)


def under(bound: Bound) -> Callable[[Plan, Network, int], BoundedSites]:
    """What makes the sites of a simulation."""
    return partial(BoundedSites, bound=bound)
