"""Two rounds, for queries with ROWS windows: the sequencer numbers the streams, then the join units get what is final.

    round 0   all tuples -> the sequencer        round 1   released tuples, watermarks and cuts -> every join unit

Invariant: the join units learn watermarks from the sequencer alone, so their state expires by its word and not by the
batch's maxima.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.units.join_unit import Inbox, JoinUnit
from watersmeet.units.pack import Punctuation, split_for_sequencer
from watersmeet.units.program import CONTROL, Call, Mail, control, said
from watersmeet.units.sequencer import Sequencer


@dataclass(frozen=True)
class SequencedProgram:
    """Units of the grid join; the unit after the last of them is the sequencer."""

    plan: Plan
    rounds = 2

    @property
    def wakes(self) -> bool:
        return False

    def entrance(self) -> int:
        return self.plan.units

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        if call.round == 0:
            yield from self._sequence(call)
        else:
            yield from self._join(call)

    def _sequence(self, call: Call) -> Iterator[Mail]:
        inbox = Inbox()
        for stream, ts in call.seen.items():
            inbox.punctuate(stream, Punctuation(ts))
        for source in self.plan.inputs:
            for wire in call.inbox.get(source.alias, []):
                punctuation, table = split_for_sequencer(source, wire)
                inbox.punctuate(source.stream, punctuation)
                inbox.tables.setdefault(source.alias, []).append(table)
        release = Sequencer(self.plan).step(inbox, call.manifest, call.store)
        call.report.late = dict(release.late)
        call.report.rows_in = {a: sum(t.num_rows for t in tables) for a, tables in inbox.tables.items()}
        for alias, parts in release.tables.items():
            yield from (Mail(unit, alias, table) for unit, table in parts)
        for unit in range(self.plan.units):
            yield control(unit, {"marks": release.marks, "cuts": release.cuts})

    def _join(self, call: Call) -> Iterator[pa.Table]:
        word = said(call.inbox.pop(CONTROL)[0])
        unit = JoinUnit(self.plan, call.unit)
        yield from unit.step(Inbox(call.inbox, marks=word["marks"], cuts=word["cuts"]), call.manifest, call.store)
        call.report.include(unit.report)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return {}
