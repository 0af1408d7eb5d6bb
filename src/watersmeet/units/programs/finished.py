"""One round more, for DISTINCT and GROUP BY: what leaves the units that join is mailed to deduplicators or mergers.

    rounds 0 .. n-1   another program; in place of results its units send rows or views, by hash
    round n           a deduplicator lets rows out that have not left before; a merger the groups that have changed

Invariant: all mail for one row, or one group, goes to one unit. Deduplicators and mergers have numbers of their own,
from `FIRST` on, whatever units the program before them has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.plan.model import TIME, Plan
from watersmeet.units.deduplicator import KEPT, Deduplicator, over
from watersmeet.units.leave import leaving
from watersmeet.units.merger import Merger, group_hash
from watersmeet.units.program import Call, Mail, Program
from watersmeet.units.row_hash import by_hash, row_hash
from watersmeet.units.views import values
from watersmeet.units.watermark import watermarks

LEFT = "left"
"""The kind of mail that holds what has left a unit that joins."""
FIRST = 100_000


@dataclass(frozen=True)
class FinishedProgram:
    """A program, and a round after it."""

    plan: Plan
    before: Program

    @property
    def rounds(self) -> int:
        assert self.before.rounds is not None
        return self.before.rounds + 1

    @property
    def wakes(self) -> bool:
        return False

    def entrance(self) -> int | None:
        return self.before.entrance()

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        if LEFT in call.inbox:
            yield from self._finish(call)
        else:
            yield from self._pass_on(call)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        own = {KEPT: over(self.plan, watermarks(self.plan, maxima))} if self.plan.join.distinct else {}
        return {**self.before.cuts(maxima), **own}

    def _pass_on(self, call: Call) -> Iterator[Mail]:
        assert self.plan.finish is not None
        mail: list[Mail] = []
        for table in leaving(self.plan, _results(self.before.step(call), mail)):
            hashes = row_hash(table.drop_columns([TIME])) if self.plan.join.distinct else group_hash(self.plan, table)
            for unit, part in by_hash(table, hashes, self.plan.finish.units):
                yield Mail(FIRST + unit, LEFT, part, round=self.rounds - 1)
        yield from mail

    def _finish(self, call: Call) -> Iterator[pa.Table]:
        tables = call.inbox.pop(LEFT)
        if self.plan.join.distinct:
            marks = watermarks(self.plan, call.manifest.maxima)
            yield from Deduplicator(self.plan).step(tables, call.manifest, call.store, marks)
        else:
            yield values(self.plan, Merger(self.plan).step(tables, call.manifest, call.store))


def _results(items: Iterator[pa.Table | Mail], mail: list[Mail]) -> Iterator[pa.Table]:
    """The tables among what a step yields; mail is put aside."""
    for item in items:
        if isinstance(item, Mail):
            mail.append(item)
        else:
            yield item
