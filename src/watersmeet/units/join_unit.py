"""The join unit: one cell of a grid, or one unit of a biclique. One call of `step` per batch.

    inbox -> drop the late -> join new with old and new -> advance watermarks -> drop the dead, store the living

In a grid a unit stores every tuple that it gets, and all of them probe, a side's whole buffer after another's: a buffer waits
in the inbox until its turn has come (`driving`), and is gone when its results are. In a biclique it stores one side, and copies of the
other side's tuples come only to probe; what they meet among this batch's tuples follows one order for all units
(`multiway.Multiway.probes`), so of the two units where a pair could be made exactly one makes it.

Invariant: a tuple is late against the maxima of the batches before this one; expiry uses the maxima including it. The
step is deterministic in (inbox as a set, state): only ids of segments differ between attempts.
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.2.1 (joiner) and 3.2.3 (order-consistent protocol): a micro-batch is the
punctuation, so all of an earlier batch precedes, and inside a batch the order is (time, number of the side).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.plan import model
from watersmeet.plan.model import COUNTED, TIME, Plan
from watersmeet.routing.biclique import Role
from watersmeet.routing.hypercube import Hypercube
from watersmeet.units.codes import integers
from watersmeet.units.driving import DriverStats, Driving
from watersmeet.units.multiway import FanoutStats, Multiway
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.settle import Settler
from watersmeet.units.side import Side
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import NEVER, advance, cuts, watermarks
from watersmeet.units.wide_rows import Bound, in_blocks

ROWS_ONLY = "_row"
"""The only column of results of a query that selects no column of any stream."""


@dataclass
class Inbox:
    """One batch's messages to one unit: tables by side, punctuations by stream.

    `tables` are tuples to store, which also probe where a unit keeps all sides; `probes` are copies that only probe.
    `marks`, if given, are watermarks after this batch that the sender vouches for; then nothing in it is late. `cuts`
    are times, by alias, before which a ROWS window has left all tuples behind.
    """

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    probes: dict[str, list[pa.Table]] = field(default_factory=dict)
    punctuations: dict[str, Punctuation] = field(default_factory=dict)
    marks: dict[str, int] | None = None
    cuts: dict[str, int] = field(default_factory=dict)

    def take(self, side: str, role: Role, table: pa.Table) -> None:
        """Take a part of a side in."""
        (self.probes if role == "probe" else self.tables).setdefault(side, []).append(table)

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
    kernels: dict[str, int] = field(default_factory=dict)
    """New tuples that each kernel was given."""
    pruned: int = 0
    """New tuples that were dropped before a probe: they had no window partner in some stream."""
    drivers: list[str] = field(default_factory=list)
    """In which order the sides' new tuples were processed; 'a | b' if tuple by tuple."""
    policy: str = ""
    """What chose that order; nothing where a unit has one driver only."""
    sent: dict[str, list[int]] = field(default_factory=dict)
    """Shipments, rows and bytes by 'sender>receiver', between sites."""
    measured: dict[str, Any] = field(default_factory=dict)
    """By alias, what a site has seen of its stream, see `sites.measured`."""

    def include(self, later: StepReport) -> None:
        """Add a later step: flows add up, levels are the later one's."""
        flows = ((self.rows_in, later.rows_in), (self.late, later.late), (self.kernels, later.kernels))
        for mine, its in flows:
            for name, rows in its.items():
                mine[name] = mine.get(name, 0) + rows
        self.results += later.results
        self.pruned += later.pruned
        self.watermarks, self.retained, self.bytes = later.watermarks, later.retained, later.bytes
        if later.drivers:
            self.drivers, self.policy = later.drivers, later.policy
        for pair, amounts in later.sent.items():
            self.sent[pair] = [a + b for a, b in zip(self.sent.get(pair, (0, 0, 0)), amounts, strict=True)]
        self.measured |= later.measured


class JoinUnit:
    """The unit with number `unit` of a plan, in the stage that the number belongs to."""

    def __init__(self, plan: Plan, unit: int) -> None:
        self.plan, self.unit, self.stage = plan, unit, plan.stage_of(unit)
        self.report = StepReport()

    @property
    def is_last(self) -> bool:
        """Whether its results are the query's, not those of a stage before the last."""
        return self.stage is self.plan.stages[-1]

    def step(self, inbox: Inbox, manifest: Manifest, store: SegmentStore) -> Iterator[pa.Table]:
        """Yields tables of results; when exhausted, manifest and store hold the state after the batch."""
        self.report = StepReport()
        before = watermarks(self.plan, manifest.maxima) if inbox.marks is None else None
        self._count_timeless(inbox, manifest)
        new: dict[str, Segment | None] = {}
        joins: dict[int, Multiway] = {}
        stats = FanoutStats(manifest.fanout)
        old = {s.name: [store.read(i) for i in manifest.segments.get(s.name, [])] for s in self.stage.sides}
        for join, combinations in self._joins(inbox, before, manifest, old, new, stats):
            for table in self._results(join, combinations):
                self.report.results += table.num_rows if self.is_last else 0
                yield table
            joins |= {id(join): join}
        for join in joins.values():
            self._book_kernel(join)
        manifest.fanout = stats.memory()
        manifest.maxima = advance(manifest.maxima, {s: p.max_ts for s, p in inbox.punctuations.items()})
        self._settle(manifest, store, new, inbox)

    def _joins(
        self,
        inbox: Inbox,
        before: dict[str, int] | None,
        manifest: Manifest,
        old: Mapping[str, list[Segment]],
        new: dict[str, Segment | None],
        stats: FanoutStats,
    ) -> Iterator[tuple[Multiway, Iterator[Bound]]]:
        """The joins of the step: one over all sides, driver by driver, or one for each side that probes the other's."""
        specs = self.stage.sides

        def consume(number: int) -> Segment | None:
            new[specs[number].name] = self.on_time(number, specs[number], inbox.tables, before, manifest)
            return new[specs[number].name]

        if isinstance(self.stage.routing, Hypercube):
            join = Multiway(self.plan, [Side(s, old[s.name], None) for s in specs], stats)
            buffered = [sum(t.num_rows for t in inbox.tables.get(s.name, [])) for s in specs]
            driving = Driving(join, buffered, DriverStats(manifest.driving), self.report)
            yield from ((join, found) for found in driving.turns(consume))
            manifest.driving = driving.stats.memory()
            return
        for number in range(len(specs)):
            consume(number)
        for number, spec in enumerate(specs):
            probing = self.on_time(number, spec, inbox.probes, before, None)
            if probing is not None:
                sides = [Side(s, [], probing) if s is spec else Side(s, old[s.name], new[s.name]) for s in specs]
                join = Multiway(self.plan, sides, stats)
                yield join, join.probes(sides[number])

    def _count_timeless(self, inbox: Inbox, manifest: Manifest) -> None:
        """A NULL time is late; the source task counted it, and one unit books it."""
        if self.unit == 0:
            for stream, punctuation in inbox.punctuations.items():
                self._book_late(manifest, stream, punctuation.null_times)

    def on_time(
        self,
        number: int,
        spec: model.Side,
        tables: dict[str, list[pa.Table]],
        marks: dict[str, int] | None,
        manifest: Manifest | None,
    ) -> Segment | None:
        """A side's new tuples, less the late ones, which a manifest books. Results of an earlier stage are never late."""
        arrived = [t for t in tables.pop(spec.name, []) if t.num_rows]
        if not arrived:
            return None
        table = pa.concat_tables(arrived).combine_chunks()
        self.report.rows_in[spec.name] = self.report.rows_in.get(spec.name, 0) + table.num_rows
        if marks is None or len(spec.aliases) > 1:
            return Segment.of(table)
        stream = self.plan.input(spec.name).stream
        late = integers(table.column(TIME).combine_chunks()) < marks[stream]
        if late.any():
            if manifest is not None and self.stage.is_primary(number, self.unit):
                counted = np.asarray(table.column(COUNTED).to_numpy(), bool) if COUNTED in table.column_names else False
                self._book_late(manifest, stream, int(np.count_nonzero(late & ~np.asarray(counted))))
            table = table.filter(pa.array(~late))
        return Segment.of(table) if table.num_rows else None

    def _book_late(self, manifest: Manifest, stream: str, rows: int) -> None:
        if rows:
            manifest.late[stream] = manifest.late.get(stream, 0) + rows
            self.report.late[stream] = self.report.late.get(stream, 0) + rows

    def _book_kernel(self, join: Multiway) -> None:
        rows = sum(len(side.new_idx) for side in join.sides)
        if rows:
            self.report.kernels[join.kernel_name] = self.report.kernels.get(join.kernel_name, 0) + rows
        self.report.pruned += join.pruned

    def _results(self, join: Multiway, combinations: Iterator[Bound]) -> Iterator[pa.Table]:
        stages = self.plan.stages
        side = None if self.is_last else stages[stages.index(self.stage) + 1].sides[0]
        for bound in combinations:
            yield from combined(self.plan, join, bound, side)

    def _settle(self, manifest: Manifest, store: SegmentStore, new: dict[str, Segment | None], inbox: Inbox) -> None:
        marks = watermarks(self.plan, manifest.maxima) if inbox.marks is None else inbox.marks
        cut_of = cuts(self.plan, marks)
        for spec in self.stage.sides:
            cut = max(cut_of[spec.name], inbox.cuts.get(spec.name, NEVER))
            settler = Settler(store, cut, self.plan.retention_us(self.stage, spec))
            manifest.segments[spec.name] = settler.settle(manifest.segments.get(spec.name, []), new[spec.name])
        self.report.watermarks = marks
        self.report.retained = {a: n for a, n in manifest.rows().items() if a in new}
        self.report.bytes = manifest.bytes()


def combined(plan: Plan, join: Multiway, bound: Bound, side: model.Side | None) -> Iterator[pa.Table]:
    """Combinations as results, or as tuples of a side that is to be joined with others, in blocks."""
    if side is not None:
        for block in in_blocks(join.members, bound, side.carried):
            yield pa.table({side.column(a, name): join.members[a].take(name, block[a]) for a, name in side.carried})
    elif not plan.output:
        yield pa.table({ROWS_ONLY: pa.nulls(len(next(iter(bound.values()))), pa.bool_())})
    else:
        for block in join.blocks(bound, plan.output):
            yield pa.table({f"o{n}": join.column(block, ref) for n, ref in enumerate(plan.output)})
