"""A join unit that is given tuples in the order in which it must process them, a run at a time.

    run       store r1 | probe s1 | store r2 | probe s2             s1 meets old tuples and r1; s2 meets old ones, r1 and r2

A run is one turn of the join, only its inner order differs: a probe meets those of the run's stored tuples that stand
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
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER, Clock, Promise, advance, watermarks
from watersmeet.dataflow.contract import PROBE, Inbox, Turn
from watersmeet.kernels.instants import add_span
from watersmeet.operators.join import JoinUnits, New, Old
from watersmeet.operators.probing.multiway import FanoutStats, Multiway
from watersmeet.operators.probing.side import Bound, VisibleSide
from watersmeet.plan.model import TIME, Plan
from watersmeet.routing.hypercube import Role
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import Segment, SegmentInfo
from watersmeet.storage.stores import MemoryStore
from watersmeet_lab.simulate.biclique.ordering import Copy


class NumberedStore(MemoryStore):
    """Segments are called by their number: merging breaks ties by id, and a simulation must repeat itself."""

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def write(self, segment: Segment) -> SegmentInfo:
        segment.id = f"{self._written:012}"
        self._written += 1
        return super().write(segment)


@dataclass(frozen=True)
class OrderedJoin(JoinUnits):
    """The join of one run; `ranks` are the places in it of a kind's tuples."""

    ranks: Mapping[str, np.ndarray]

    def _joins(self, turn: Turn, old: Old, new: New, stats: FanoutStats) -> Iterator[tuple[Multiway, Iterator[Bound]]]:
        """In a grid any order will do; in a biclique probes meet what is old, and of the run what stands before them."""
        specs = self.spec.sides
        if self.spec.routing.stores_all:
            yield from super()._joins(turn, old, new, stats)
            return
        for number, spec in enumerate(specs):
            new[spec.name] = self._on_time(turn, number, spec.name, stores=True)
        for number, spec in enumerate(specs):
            probing = self._on_time(turn, number, PROBE + spec.name, stores=False)
            if probing is None:
                continue
            stored = specs[1 - number].name
            fresh = new[stored]
            for segments in (old[stored], [fresh] if fresh is not None else []):
                if not segments:
                    continue
                sides = [VisibleSide(s, [], probing) if s is spec else VisibleSide(s, segments, None) for s in specs]
                join = Multiway(self.plan, sides, stats)
                found = join.probes(sides[number])
                yield join, found if segments is old[stored] else self._in_turn(found, stored, spec.name)

    def _in_turn(self, found: Iterable[Bound], stored: str, probing: str) -> Iterator[Bound]:
        """The combinations of a run's tuples in which the stored one stands before the probing one."""
        for bound in found:
            keep = self.ranks[stored][bound[stored]] < self.ranks[PROBE + probing][bound[probing]]
            if keep.any():
                yield {alias: idx[keep] for alias, idx in bound.items()}


class OrderedUnit:
    """`tables` says by side what the rows of copies are; without `max_delay_us` nothing is discarded."""

    def __init__(self, plan: Plan, unit: int, tables: Sequence[pa.Table], max_delay_us: int | None) -> None:
        self.plan, self.unit, self.tables, self.max_delay_us = plan, unit, tables, max_delay_us
        self.manifest, self.store = Manifest.fresh(Identity.of(plan)), NumberedStore()
        self._maxima: dict[str, int] = {}

    def process(self, run: Sequence[Copy]) -> Iterator[pa.Table]:
        """Store and probe in the order of the run; yields tables of results."""
        places: dict[tuple[int, Role], list[int]] = {}
        for at, copy in enumerate(run):
            places.setdefault((copy.side, copy.role), []).append(at)
        inbox: Inbox = {}
        ranks: dict[str, np.ndarray] = {}
        for (side, role), at_idx in places.items():
            table = self.tables[side].take(pa.array([run[at].row for at in at_idx]))
            name = self.plan.stages[0].sides[side].name
            kind = PROBE + name if role == "probe" else name
            inbox[kind], ranks[kind] = [table], np.array(at_idx)
            self._saw(self.plan.by_alias[name].stream, table)
        clock = Clock(self.plan.join.streams).with_promise(Promise(self._marks()))
        turn = Turn(self.unit, inbox, self.manifest, self.store, clock)
        found = OrderedJoin(self.plan, 0, 0, lambda tables: tables, ranks).step(turn)
        return (item for item in found if isinstance(item, pa.Table))

    @property
    def stored(self) -> dict[str, int]:
        """Rows stored now, by alias."""
        return self.manifest.rows()

    def _saw(self, stream: str, table: pa.Table) -> None:
        highest = int(integers(table.column(TIME).combine_chunks()).max())
        self._maxima = advance(self._maxima, {stream: highest})

    def _marks(self) -> dict[str, int]:
        """Times below which no tuple will be processed here any more."""
        if self.max_delay_us is None:
            return dict.fromkeys(self.plan.join.streams, NEVER)
        known = watermarks(self.plan.join.streams, self._maxima)
        return {s: add_span(mark, -self.max_delay_us) for s, mark in known.items()}
