"""A join unit that is given tuples in the order in which it must process them, a run at a time.

    run       store r1 | probe s1 | store r2 | probe s2             s1 meets old tuples and r1; s2 meets old ones, r1 and r2

A run is one step of the join unit, only its inner order differs: a probe meets those of the run's stored tuples that stand
before it. So a run of one tuple is tuple-at-a-time processing, and longer runs give the same results.

After the run a stored tuple x is discarded if for every other alias y, with the highest event time of y processed here,

    y.ts - x.ts  >  hi(x, y) + lateness(y) + D

D being the longest that a tuple of y can be behind another in processing: the network's maximum delay, to which the
difference between the dispatchers' clocks must be added, since processing follows the clocks.

Implements: Lin, Ooi, Wang, Yu (2015), sections 3.2.1 (joiner) and 3.3 (theorem 1, chained index).
Departs from the paper: theorem 1 takes a tuple's time for that of its arrival; here it is event time, so the stream's
lateness comes on top. Its D is the network's delay alone, which does not suffice where clocks differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.kernels.instants import moved
from watersmeet.plan.model import TIME, Plan
from watersmeet.routing.biclique import Role
from watersmeet.routing.hypercube import Hypercube
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import Inbox, JoinUnit
from watersmeet.units.multiway import FanoutStats, Multiway
from watersmeet.units.ordering import Copy
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.side import Side
from watersmeet.units.state import Manifest, SegmentInfo
from watersmeet.units.watermark import NEVER, watermarks
from watersmeet.units.wide_rows import Bound


class NumberedStore(MemoryStore):
    """Segments are called by their number: merging breaks ties by id, and a simulation must repeat itself."""

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def write(self, segment: Segment) -> SegmentInfo:
        segment.id = f"{self._written:012}"
        self._written += 1
        return super().write(segment)


class OrderedUnit(JoinUnit):
    """`tables` says by side what the rows of copies are; without `max_delay_us` nothing is discarded."""

    def __init__(self, plan: Plan, unit: int, tables: Sequence[pa.Table], max_delay_us: int | None) -> None:
        super().__init__(plan, unit)
        self.tables, self.max_delay_us = tables, max_delay_us
        self.manifest, self.store = Manifest.fresh(plan), NumberedStore()
        self._maxima: dict[str, int] = {}
        self._rank: dict[tuple[str, Role], np.ndarray] = {}

    def process(self, run: Sequence[Copy]) -> Iterator[pa.Table]:
        """Store and probe in the order of the run; yields tables of results."""
        inbox, self._rank = Inbox(), {}
        places: dict[tuple[int, Role], list[int]] = {}
        for at, copy in enumerate(run):
            places.setdefault((copy.side, copy.role), []).append(at)
        for (side, role), ranks in places.items():
            table = self.tables[side].take(pa.array([run[at].row for at in ranks]))
            name = self.stage.sides[side].name
            inbox.take(name, role, table)
            self._rank[name, role] = np.array(ranks)
            self._saw(self.plan.input(name).stream, table)
        inbox.marks = self._marks()
        yield from self.step(inbox, self.manifest, self.store)

    @property
    def stored(self) -> dict[str, int]:
        """Rows stored now, by alias."""
        return self.manifest.rows()

    def _saw(self, stream: str, table: pa.Table) -> None:
        highest = int(integers(table.column(TIME).combine_chunks()).max())
        self._maxima[stream] = max(self._maxima.get(stream, NEVER), highest)

    def _marks(self) -> dict[str, int]:
        """Times below which no tuple will be processed here any more."""
        if self.max_delay_us is None:
            return dict.fromkeys(self.plan.join.streams, NEVER)
        known = watermarks(self.plan, self._maxima)
        return {s: moved(mark, -self.max_delay_us) for s, mark in known.items()}

    def _joins(
        self,
        inbox: Inbox,
        before: dict[str, int] | None,
        manifest: Manifest,
        old: Mapping[str, list[Segment]],
        new: dict[str, Segment | None],
        stats: FanoutStats,
    ) -> Iterator[tuple[Multiway, Iterator[Bound]]]:
        """In a grid any order will do; in a biclique probes meet what is old, and of the run what stands before them."""
        if isinstance(self.stage.routing, Hypercube):
            yield from super()._joins(inbox, before, manifest, old, new, stats)
            return
        for number, spec in enumerate(self.stage.sides):
            new[spec.name] = self.on_time(number, spec, inbox.tables, before, manifest)
        for number, spec in enumerate(self.stage.sides):
            probing = self.on_time(number, spec, inbox.probes, before, None)
            if probing is None:
                continue
            stored = self.stage.sides[1 - number]
            fresh = new[stored.name]
            for segments in (old[stored.name], [fresh] if fresh is not None else []):
                if not segments:
                    continue
                sides = [Side(s, [], probing) if s is spec else Side(s, segments, None) for s in self.stage.sides]
                join = Multiway(self.plan, sides, stats)
                found = join.probes(sides[number])
                yield join, found if segments is old[stored.name] else self._in_turn(found, stored.name, spec.name)

    def _in_turn(self, found: Iterable[Bound], stored: str, probing: str) -> Iterator[Bound]:
        """The combinations of a run's tuples in which the stored one stands before the probing one."""
        stored_rank, probing_rank = self._rank[stored, "store"], self._rank[probing, "probe"]
        for bound in found:
            keep = stored_rank[bound[stored]] < probing_rank[bound[probing]]
            if keep.any():
                yield {alias: idx[keep] for alias, idx in bound.items()}
