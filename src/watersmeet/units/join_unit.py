"""The join unit: one cell of the grid. One call of `step` per batch.

    inbox -> drop the late -> join new with old and new -> advance watermarks -> drop the dead, store the living

Invariant: a tuple is late against the maxima of the batches before this one; expiry uses the maxima including it. The
step is deterministic in (inbox as a set, state): only ids of segments differ between attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import COUNTED, TIME, InputPlan, Plan
from watersmeet.units.codes import integers
from watersmeet.units.multiway import FanoutStats, Multiway
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.settle import Settler
from watersmeet.units.side import Side
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import NEVER, advance, cuts, watermarks

ROWS_ONLY = "_row"
"""The only column of results of a query that selects no column of any stream."""


@dataclass
class Inbox:
    """One batch's messages to one unit: wire tables by alias, punctuations by stream.

    `marks`, if given, are watermarks after this batch that the sender vouches for; then nothing in it is late. `cuts`
    are times, by alias, before which a ROWS window has left all tuples behind.
    """

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    punctuations: dict[str, Punctuation] = field(default_factory=dict)
    marks: dict[str, int] | None = None
    cuts: dict[str, int] = field(default_factory=dict)

    def punctuate(self, stream: str, punctuation: Punctuation) -> None:
        self.punctuations.setdefault(stream, Punctuation()).include(punctuation)


@dataclass
class StepReport:
    """What a step did, for progress and tests."""

    rows_in: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    results: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)
    retained: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def include(self, later: StepReport) -> None:
        """Add a later step: flows add up, levels are the later one's."""
        for mine, its in ((self.rows_in, later.rows_in), (self.late, later.late)):
            for name, rows in its.items():
                mine[name] = mine.get(name, 0) + rows
        self.results += later.results
        self.watermarks, self.retained, self.bytes = later.watermarks, later.retained, later.bytes


class JoinUnit:
    """The unit with number `unit` of a plan's grid."""

    def __init__(self, plan: Plan, unit: int) -> None:
        self.plan, self.unit = plan, unit
        self.report = StepReport()

    def step(self, inbox: Inbox, manifest: Manifest, store: SegmentStore) -> Iterator[pa.Table]:
        """Yields tables of results; when exhausted, manifest and store hold the state after the batch."""
        self.report = StepReport()
        before = watermarks(self.plan, manifest.maxima) if inbox.marks is None else None
        self._count_timeless(inbox, manifest)
        new = {i.alias: self._on_time(i, inbox, before, manifest) for i in self.plan.inputs}
        sides = {}
        for source in self.plan.inputs:
            old = [store.read(info) for info in manifest.segments[source.alias]]
            sides[source.alias] = Side(source, old, new[source.alias])
        stats = FanoutStats(manifest.fanout)
        join = Multiway(self.plan, sides, stats)
        for bound in join.combinations():
            table = self._result(join, bound)
            self.report.results += table.num_rows
            yield table
        manifest.fanout = stats.memory()
        manifest.maxima = advance(manifest.maxima, {s: p.max_ts for s, p in inbox.punctuations.items()})
        self._settle(manifest, store, new, inbox)

    def _count_timeless(self, inbox: Inbox, manifest: Manifest) -> None:
        """A NULL time is late; the source task counted it, and one unit books it."""
        if self.unit == 0:
            for stream, punctuation in inbox.punctuations.items():
                self._book_late(manifest, stream, punctuation.null_times)

    def _on_time(
        self, source: InputPlan, inbox: Inbox, marks: dict[str, int] | None, manifest: Manifest
    ) -> Segment | None:
        tables = [t for t in inbox.tables.pop(source.alias, []) if t.num_rows]
        if not tables:
            return None
        table = pa.concat_tables(tables).combine_chunks()
        self.report.rows_in[source.alias] = table.num_rows
        if marks is None:
            return Segment.of(table)
        late = integers(table.column(TIME).combine_chunks()) < marks[source.stream]
        if late.any():
            if self.plan.grid.is_primary(source.position, self.unit):
                counted = np.asarray(table.column(COUNTED).to_numpy(), bool) if COUNTED in table.column_names else False
                self._book_late(manifest, source.stream, int(np.count_nonzero(late & ~np.asarray(counted))))
            table = table.filter(pa.array(~late))
        return Segment.of(table) if table.num_rows else None

    def _book_late(self, manifest: Manifest, stream: str, rows: int) -> None:
        if rows:
            manifest.late[stream] = manifest.late.get(stream, 0) + rows
            self.report.late[stream] = self.report.late.get(stream, 0) + rows

    def _result(self, join: Multiway, bound: dict[str, np.ndarray]) -> pa.Table:
        if not self.plan.output:
            return pa.table({ROWS_ONLY: pa.nulls(len(next(iter(bound.values()))), pa.bool_())})
        return pa.table({f"o{n}": join.column(bound, ref) for n, ref in enumerate(self.plan.output)})

    def _settle(self, manifest: Manifest, store: SegmentStore, new: dict[str, Segment | None], inbox: Inbox) -> None:
        marks = watermarks(self.plan, manifest.maxima) if inbox.marks is None else inbox.marks
        for alias, cut in cuts(self.plan, marks).items():
            settler = Settler(store, max(cut, inbox.cuts.get(alias, NEVER)), self.plan.join.windows.retention_us(alias))
            manifest.segments[alias] = settler.settle(manifest.segments[alias], new[alias])
        self.report.watermarks = marks
        self.report.retained = manifest.rows()
        self.report.bytes = manifest.bytes()
