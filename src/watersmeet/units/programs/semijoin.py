"""Late materialisation in rounds: references join first, then results visit the holders of the payloads.

    round 0    units of the grid join narrow tuples; a result knows (`_in`, `_row`) of every payload it needs
    round 1    results go to the holders of the first alias' payload, who add its columns
    round k    ... of the k-th; the last holders hand the results over

Payload segments are written where the tuples entered, before round 0, and belong to the holder that their number says.

Invariant: a holder's state only grows by adoption and shrinks by expiry; rounds read it and never change it.
Implements: Tran and Lee (2010), section 3.1 (join attributes first, tuples only if they match), without sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from watersmeet.plan.model import InputPlan, Plan
from watersmeet.plan.rules.ship import IN, ROW, narrow, payload_refs
from watersmeet.query.expr import ColumnRef
from watersmeet.routing.biclique import grouped
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import JoinUnit
from watersmeet.units.payload import beside, gathered, holder, number_of
from watersmeet.units.program import Call, Mail, inbox_of
from watersmeet.units.watermark import cuts, watermarks

MATCHES = "matches"


@dataclass(frozen=True)
class SemijoinProgram:
    """Units of the grid join; after them come as many holders for every alias."""

    plan: Plan

    @property
    def rounds(self) -> int:
        return 1 + len(self._fetched)

    @cached_property
    def _fetched(self) -> list[InputPlan]:
        return [i for i in self.plan.inputs if i.payload]

    @property
    def wakes(self) -> bool:
        return False

    def entrance(self) -> None:
        return None

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        if call.round == 0:
            yield from self._join(call)
        else:
            yield from self._fetch(call)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return cuts(self.plan, watermarks(self.plan, maxima))

    def _join(self, call: Call) -> Iterator[Mail]:
        slim = narrow(self.plan)
        unit = JoinUnit(slim, call.unit)
        inbox = inbox_of(call.inbox, call.seen)
        names = [_name(ref) for ref in slim.output]
        for table in unit.step(inbox, call.manifest, call.store):
            yield from self._to_holders(table.rename_columns(names), 1)
        call.report.include(unit.report)

    def _fetch(self, call: Call) -> Iterator[pa.Table | Mail]:
        source = self._fetched[call.round - 1]
        held = {number_of(i): i for i in call.manifest.segments[source.alias]}
        names = [(_name(ref), source.column(ref)) for ref in payload_refs(self.plan, source)]
        for table in call.inbox.pop(MATCHES):
            numbers, rows = (integers(table.column(_reference(source, n)).combine_chunks()) for n in (IN, ROW))
            narrow = table.drop_columns([_reference(source, IN), _reference(source, ROW)])
            for order, fetched in gathered(call.store, held, numbers, rows, [c for _, c in names]):
                left = beside(narrow, order, fetched.rename_columns([n for n, _ in names]))
                if call.round == self.rounds - 1:
                    yield left.select([_name(ref) for ref in self.plan.output])
                else:
                    yield from self._to_holders(left, call.round + 1)

    def _to_holders(self, table: pa.Table, number: int) -> Iterator[Mail]:
        source = self._fetched[number - 1]
        segment = integers(table.column(_reference(source, IN)).combine_chunks())
        if len(segment):
            first = holder(self.plan, source, 0)
            for slot, rows in grouped(segment % self.plan.units):
                yield Mail(first + slot, MATCHES, table if rows is None else table.take(pa.array(rows)))


def _name(ref: ColumnRef) -> str:
    return f"{ref.alias}.{ref.column}"


def _reference(source: InputPlan, name: str) -> str:
    return f"{source.alias}.{name}"
