"""A plan at one unit of a site: its names, what the unit keeps of its streams, what it sends.

Invariant: what plans keep has names of their own; plans share the windows of streams that arrive, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.kernels.instants import LAST
from watersmeet.operators.outer.notes import H1, H2
from watersmeet.plan.model import Plan
from watersmeet.sites.frontiers import Frontiers
from watersmeet.sites.one_way import kept
from watersmeet.sites.one_way.kept import NUMBER, find_between
from watersmeet.sites.one_way.rows_windows import name_ends
from watersmeet.sites.paths import Leg, Paths
from watersmeet.storage.segment import Segment, key_columns

if TYPE_CHECKING:
    from watersmeet.sites.one_way.unit import SiteUnit

BATCH_BITS = 32
"""A tuple's number: its batch, and so many bits for its row."""


@dataclass(frozen=True)
class Span:
    """A plan, and the heads that it holds for: those from `since` on that are before `until`."""

    plan: Plan
    paths: Paths
    frontiers: Frontiers
    prefix: str
    """What the names of its channels, and of all that it keeps, begin with."""
    before: Mapping[str, int]
    """By stream how far the site knew it to be after the batch before, as far as the plan was known then."""
    units: int
    since: int = NEVER
    until: int = LAST


class PlanAtUnit:
    """One plan in one unit's turn."""

    def __init__(self, unit: SiteUnit, span: Span) -> None:
        self.unit, self.span, self.turn, self.kept = unit, span, unit.turn, unit.kept
        self.plan, self.paths, self.frontiers = span.plan, span.paths, span.frontiers
        self.site = span.frontiers.site

    def name(self, name: str) -> str:
        return f"{self.span.prefix}{name}"

    def inbox(self, kind: str) -> list[pa.Table]:
        return self.turn.inbox.pop(self.name(kind), [])

    def window(self, n: int) -> str:
        """The name of a stream's window at its home."""
        return self.paths.name(n) if n < self.paths.arriving else self.name(kept.window(n))

    def between(self, name: str, begin: int, end: int) -> Iterator[Segment]:
        """The stored tuples of a span of time."""
        for segment in self.kept.segments(name):
            yield from find_between(segment, begin, end)

    def as_shipped(self, n: int, table: pa.Table) -> pa.Table:
        """A stream's tuples as they travel: those of ROWS windows with their numbers, by which their ends follow."""
        return table if n in self.paths.counted else _drop_number(table)

    def ends_at(self, n: int) -> str:
        """The name of the ends of a stream's tuples here: of its own, or of those of the copy."""
        return name_ends(n) if self.paths.homes[n] == self.site else self.name(name_ends(n))

    def is_complete(self, n: int) -> bool:
        """Whether all rows of a stream that arise in this batch are there."""
        return self.turn.round >= self.paths.complete(n, self.span.units)

    def send(self, site: int, kind: str, table: pa.Table) -> None:
        self.unit.send(site, self.name(kind), table)

    def key_codes(self, n: int, segment: Segment, classes: tuple[int, ...]) -> np.ndarray:
        """Codes of a stored stream's keys."""
        if not classes:
            return np.zeros(segment.rows, np.int64)
        return segment.key(key_columns(self.plan, self.paths.sides[n].keys, classes))

    def row_codes(self, leg: Leg, rows: Segment) -> np.ndarray:
        """Codes of rows' keys."""
        if not leg.classes:
            return np.zeros(rows.rows, np.int64)
        return rows.key(key_columns(self.plan, leg.flow.keys, leg.classes))

    def store(self, name: str, tables: list[pa.Table]) -> None:
        """Rows of a level that have arisen, into their window."""
        rows = pa.concat_tables(tables)
        numbers = [s.codes(NUMBER, "integer") for s in self.kept.segments(name)]
        first = max([self.turn.batch << BATCH_BITS, *(int(n.max()) + 1 for n in numbers)])
        self.kept.add(name, number_rows(rows, first))


def number_rows(table: pa.Table, first: int) -> pa.Table:
    """Rows with numbers, by which sites know what they have sent."""
    return table.append_column(NUMBER, pa.array(np.arange(first, first + table.num_rows), pa.int64()))


def without_number(segment: Segment) -> Segment:
    """Tuples without what only their home needs; what is derived of the other columns holds."""
    return Segment(segment.id, _drop_number(segment.table), segment.derived)


def _drop_number(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in (NUMBER, H1, H2) if name in table.column_names])
