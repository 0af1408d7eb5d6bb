"""Joins across sites in rounds: a unit per site, which keeps its own streams and what it has been told of others.

    round 0    every site gets its own streams' tuples, tells others of them, and sends its heads' rows on their way
    round r    mail of other sites, see `plan.sites.schedule`; results leave in the last round

Invariant: results do not depend on the plan of one-way joins, which may be another in every batch: windows stay where they are,
copies and sent bits that the new plan has no use for are forgotten by both sites at once, others are filled up.
Implements: Tran and Lee (2010), section 4.1 on top of `units.sites.site`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.plan.sites.schedule import Schedule, schedule
from watersmeet.units.program import Call, Mail
from watersmeet.units.sites.held import names
from watersmeet.units.sites.site import Site
from watersmeet.units.watermark import cuts, watermarks


@dataclass(frozen=True)
class SiteProgram:
    """Every unit is a site."""

    plan: Plan

    @property
    def schedule(self) -> Schedule:
        return schedule(self.plan)

    @property
    def rounds(self) -> int:
        return self.schedule.rounds

    @property
    def wakes(self) -> bool:
        return True

    def entrance(self) -> None:
        return None

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        yield from Site(self.plan, self.schedule, call).step()

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        """The bound that an expiry message would carry; of a stream and of all that sites keep of it."""
        of_alias = cuts(self.plan, watermarks(self.plan, maxima))
        everyone = range(len(self.plan.inputs))
        kept = {name: n for unit in range(self.plan.units) for name, n in names(self.schedule, unit, everyone).items()}
        return {**of_alias, **{name: of_alias[self.plan.inputs[n].alias] for name, n in kept.items()}}
