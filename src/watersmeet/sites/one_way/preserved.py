"""Tuples of outer, semi and anti joins across sites: who has a partner is noted at the tuple's home, and who has none leaves there when no partner can come.

    a LEFT JOIN b     results arise wherever the plan lets them;  notes of a's tuples in them --> a's home
                      a tuple of a whose wait is over, and of which there is no note, leaves with NULLs

A tuple's wait is over when its own way is, and when all heads that could meet it have passed: both are known at its home by channels, which say up to which heads notes have been sent. Equal tuples have equal partners, so a
note is a hash of what conditions and windows look at (`operators.outer.notes`).

Invariant: a tuple leaves once: the spans of time in which waits end follow one another without gaps, and a semi join's tuple leaves with the first note of it.
Departs from the paper, which knows inner joins only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.clock import dead_before
from watersmeet.kernels.instants import LAST
from watersmeet.operators.outer.notes import H1, H2, Notes
from watersmeet.operators.outer.unmatched import Extend, Waiting
from watersmeet.operators.probing.multiway import Multiway
from watersmeet.operators.probing.side import Bound
from watersmeet.plan.model import TIME, Plan
from watersmeet.sites.one_way.at_unit import Span
from watersmeet.sites.one_way.kept import Kept
from watersmeet.storage.segment import Segment

MET = "met"
"""The item of letters that has notes, and the channel that says how far they are."""


def name_notes(stream: int) -> str:
    return f"@{stream} {MET}"


def flatten(plan: Plan) -> Plan:
    """The inner join that an outer, semi or anti join of two streams begins with; any other plan as it is."""
    return replace(plan.scope(plan.parts[0]), parts=()) if plan.parts else plan


def list_preserved(plan: Plan) -> list[int]:
    """The positions of the aliases whose tuples leave without a partner, or because they have one."""
    if not plan.parts:
        return []
    node = plan.parts[0].node
    return [plan.aliases.index(node.inputs[n].visible[0]) for n in node.preserved]


def find_fate(spans: Iterable[Span], stream: int) -> int:
    """Of tuples before this all partners have been noted."""
    marks = [LAST]
    for span in spans:
        for leg in (leg for leg in span.paths.all if stream in (leg.head, leg.to)):
            mark = max(span.since, span.frontiers.find_note_mark(leg, stream))
            if mark < span.until:
                marks.append(mark if leg.head == stream else dead_before(mark, leg.reach_us))
    return min(marks)


@dataclass(frozen=True)
class PreservedStream:
    """A stream whose tuples' partners are noted."""

    plan: Plan
    number: int

    @property
    def alias(self) -> str:
        return self.plan.aliases[self.number]

    @property
    def kind(self) -> str:
        return self.plan.parts[0].node.kind

    @cached_property
    def columns(self) -> list[str]:
        """What partners depend on."""
        return Waiting(flatten(self.plan), self.plan.stages[0], self.number).columns

    @cached_property
    def extend(self) -> Extend:
        """Tuples as results: NULL where the other's columns would be."""
        return Extend(self.plan, self.plan.stages[0].sides[self.number], None)

    def put_hashes(self, table: pa.Table) -> pa.Table:
        """New tuples with what notes of them will have."""
        notes = Notes.of({name: table.column(name) for name in self.columns})
        return table.append_column(H1, pa.array(notes.h1)).append_column(H2, pa.array(notes.h2))

    def note(self, join: Multiway, bound: Bound) -> pa.Table:
        """Notes of the tuples in combinations, each once."""
        member = join.members[self.alias]
        rows = np.unique(bound[self.alias])
        notes = Notes.of({name: member.take(name, rows) for name in self.columns})
        return pa.table({TIME: pa.array(notes.ts), H1: pa.array(notes.h1), H2: pa.array(notes.h2)})

    def take_notes(self, kept: Kept, tables: list[pa.Table]) -> Iterator[pa.Table]:
        """Keep notes that are new; a semi join's tuples leave with them."""
        name = name_notes(self.number)
        known = Notes.read([s.table for s in kept.segments(name)])
        seen = set(zip(known.ts.tolist(), known.h1.tolist(), known.h2.tolist(), strict=True))
        coming = Notes.read(tables)
        rows = zip(coming.ts.tolist(), coming.h1.tolist(), coming.h2.tolist(), strict=True)
        fresh = [row for row in dict.fromkeys(rows) if row not in seen]
        if not fresh:
            return
        table = pa.table(
            {n: pa.array(v, pa.int64()) for n, v in zip((TIME, H1, H2), zip(*fresh, strict=True), strict=True)}
        )
        kept.add(name, table)
        if self.kind == "semi":
            yield from self._find(kept, Notes.read([table]), is_noted=True)

    def leave(self, kept: Kept, begin: int, end: int) -> Iterator[pa.Table]:
        """Tuples of a span of time that have no partner."""
        if self.kind != "semi" and begin < end:
            notes = Notes.read([s.table for s in kept.segments(name_notes(self.number))])
            yield from self._find(kept, notes, is_noted=False, begin=begin, end=end)

    def _find(
        self, kept: Kept, notes: Notes, *, is_noted: bool, begin: int | None = None, end: int = LAST
    ) -> Iterator[pa.Table]:
        for segment in kept.segments(self.alias):
            found = np.zeros(segment.rows, bool)
            found[notes.find(segment)] = True
            wanted = found == is_noted
            if begin is not None:
                wanted &= (segment.ts >= begin) & (segment.ts < end)
            if wanted.any():
                yield self.extend(Segment.of(segment.table).table.filter(pa.array(wanted)))
