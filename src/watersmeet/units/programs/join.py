"""A round for every stage: tuples are routed to the units of the stage where they enter, which join and store them.

    round 0   a, b -> units of stage 1        round 1   a+b and c -> units of stage 2        ...

Invariant: a stage's tuples and the results of the stage before meet in one step, in the round that has the stage's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.units.join_unit import JoinUnit
from watersmeet.units.pack import route
from watersmeet.units.program import Call, Mail, inbox_of, kind_of
from watersmeet.units.watermark import cuts, watermarks


@dataclass(frozen=True)
class JoinProgram:
    """Every unit is one of a stage of the plan."""

    plan: Plan

    @property
    def rounds(self) -> int:
        return len(self.plan.stages)

    @property
    def wakes(self) -> bool:
        return False

    def entrance(self) -> None:
        return None

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        unit = JoinUnit(self.plan, call.unit)
        for table in unit.step(inbox_of(call.inbox, call.seen), call.manifest, call.store):
            if unit.is_last:
                yield table
            else:
                yield from self._on(call.round + 1, table)
        call.report.include(unit.report)

    def _on(self, number: int, table: pa.Table) -> Iterator[Mail]:
        """What a stage has bound together, to the next one."""
        stage = self.plan.stages[number]
        for part in route(self.plan, stage, 0, table):
            for unit in part.units:
                yield Mail(unit, kind_of(stage.sides[0].name, part.role), part.table)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return cuts(self.plan, watermarks(self.plan, maxima))
