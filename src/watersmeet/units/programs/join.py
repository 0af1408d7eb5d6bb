"""One round: tuples are routed to the unit of their keys, which joins and stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.units.join_unit import Inbox, JoinUnit
from watersmeet.units.pack import Punctuation
from watersmeet.units.program import Call, Mail
from watersmeet.units.watermark import cuts, watermarks


@dataclass(frozen=True)
class JoinProgram:
    """Every unit is one cell of the plan's grid."""

    plan: Plan
    rounds = 1

    def entrance(self) -> None:
        return None

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        inbox = Inbox(call.inbox, {s: Punctuation(ts) for s, ts in call.seen.items()})
        unit = JoinUnit(self.plan, call.unit)
        yield from unit.step(inbox, call.manifest, call.store)
        call.report.include(unit.report)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return cuts(self.plan, watermarks(self.plan, maxima))
