"""A node's state between rounds: segments, and what a process has made of them.

    segments by kind    <stream>              tuples that lie under keys of the node, or that rows of it name
                        :passing <stream>     tuples of this batch that are dead when it ends: they meet rows until then
                        :rewritten            rows that wait
                        :rates                how busy its keys are

Another process may run the node's next round; it reads the segments that it has not seen. If one has gone, all are read anew.

Invariant: what is in memory is what the segments say, under the numbers of `Templates.generation`. Segments on disk may hold rows that
are out of force; they are left out when read, and dropped when segments are settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernels.instants import LAST, shift
from watersmeet.kernels.registered.rewriting import (
    ALIAS,
    ALIASES,
    AT_TS,
    BIND,
    BOUND,
    HI,
    INFO,
    KEY,
    LEVEL,
    TEMPLATE,
    TUPLE_KEY,
    VALUE_LEVEL,
    WAIT,
)
from watersmeet.plan.model import TIME
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.placement import CIRCLE, Places, find_arc
from watersmeet.registry.plan import BATCH
from watersmeet.registry.rjoin.contents import Contents
from watersmeet.registry.rjoin.covering import Covering
from watersmeet.registry.rjoin.ring_state import RingState
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.template import retention_us
from watersmeet.storage.compaction import Settler
from watersmeet.storage.manifest import OTHER, REWRITTEN, Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

INDEXED = "_indexed"
"""Whether a tuple lies under keys of the node that stores it; otherwise rows that it stores have it."""
RATES, _PASSING = f"{OTHER}rates", f"{OTHER}passing "
VERSION_OF_ROWS = "rows of version"
"""In the manifest: the registry's version whose rows are stored."""


def kind_of_dead(stream: str) -> str:
    """The kind of a stream's tuples that are dead when the batch ends."""
    return _PASSING + stream


@dataclass
class RingMemory:
    """One node's state in this process."""

    templates: Templates
    unit: int
    generation: int = -1
    batch: int = -1
    """Of this batch the attribute level has the tuples."""
    applied: set[str] = field(default_factory=set)
    """The segments that it has."""
    is_whole: bool = False
    """Whether the last turn came to its end; what a broken one left in memory is forgotten."""
    stands_for: dict[str, Any] | None = None
    places: Places = ()
    """Of the ring whose keys it has."""

    def recall(self, manifest: Manifest, store: SegmentStore, batch: int) -> None:
        """Become what the segments say."""
        wanted = {i.id: (kind, i) for kind, i in self._kinds(manifest)}
        templates = self.templates
        was_whole, self.is_whole = self.is_whole, False
        if (
            not was_whole
            or self.generation != templates.generation
            or batch != self.batch
            or self.stands_for != templates.stands_for
            or self.places != templates.index.places
            or not self.applied <= set(wanted)
        ):
            self.generation, self.batch, self.stands_for = templates.generation, batch, templates.stands_for
            self.places = templates.index.places
            self.forget()
        rows: list[np.ndarray] = []
        tuples: list[np.ndarray] = []
        for id, (kind, info) in wanted.items():
            if id not in self.applied:
                self.applied.add(id)
                segment = store.read(info)
                if kind == REWRITTEN:
                    found = templates.read_rows(segment.table)
                    rows.append(found[templates.in_force(found, batch)])
                else:
                    tuples.append(self._index(kind.removeprefix(_PASSING), segment))
        if rows or tuples:
            self.state.lay_down(rows, tuples)

    def forget(self) -> None:
        """Have nothing, and know that."""
        self.is_whole, self.applied, self.contents = False, set(), Contents()
        self.state = RingState(self.templates.catalogue)
        self.covering = Covering(self.templates, self.state, self.contents)

    def _kinds(self, manifest: Manifest) -> Iterator[tuple[str, SegmentInfo]]:
        for kind, infos in manifest.segments.items():
            if kind == REWRITTEN or kind.removeprefix(_PASSING) in self.templates.index.streams:
                yield from ((kind, info) for info in infos)

    def _index(self, stream: str, segment: Segment) -> np.ndarray:
        """Take a segment of tuples in; their copies under keys of this node."""
        self.contents.add(stream, segment)
        table = segment.table.filter(segment.table.column(INDEXED))
        index, templates = self.templates.index, self.templates
        batch = table.column(BATCH).to_numpy()
        block = index.block(stream, table, batch, templates.mask)
        return index.copies(block, templates.mask, self.unit, self.batch)

    def weigh_arc(self) -> list[int]:
        """How much lies under keys of the node: rows, and tuples at value level; and the key that divides it best, the node's place if there is none."""
        low, place = find_arc(self.places, self.unit)
        tuples = self.state.tuples
        held = np.concatenate([self.state.rows[:, KEY], tuples[tuples[:, LEVEL] == VALUE_LEVEL, TUPLE_KEY]])
        if not len(held):
            return [0, place]
        beyond = held.view(np.uint64) - np.uint64(low)
        middle = np.partition(beyond, (len(held) - 1) // 2)[(len(held) - 1) // 2]
        if middle == beyond.max():  # a key that is heavy by itself cannot be divided
            below = beyond[beyond < middle]
            return [len(held), (low + int(below.max())) % CIRCLE if len(below) else place]
        return [len(held), (low + int(middle)) % CIRCLE]

    def store_tuples(self, manifest: Manifest, store: SegmentStore, stream: str, table: pa.Table, cut: int) -> None:
        """Store tuples that are in memory already: those that outlive the batch, and those that do not."""
        whole = Segment.of(table)
        for kind, keep in ((stream, whole.ts >= cut), (kind_of_dead(stream), whole.ts < cut)):
            if keep.any():
                info = store.write(whole if keep.all() else whole.where(keep))
                manifest.segments.setdefault(kind, []).append(info)
                self.applied.add(info.id)

    def store_rows(self, manifest: Manifest, store: SegmentStore, rows: np.ndarray) -> None:
        """Store rows that are in memory already."""
        if len(rows):
            info = store.write(Segment.of(self._add_times(rows)))
            manifest.segments.setdefault(REWRITTEN, []).append(info)
            self.applied.add(info.id)

    def settle(
        self,
        manifest: Manifest,
        store: SegmentStore,
        marks: Mapping[str, int],
        cuts: Mapping[str, int],
        batch: int,
    ) -> None:
        """Before a batch: drop what is dead or out of force, and merge what is small."""
        streams = self.templates.index.streams
        for kind in [k for k in manifest.segments if k in streams or k.startswith(_PASSING)]:
            held = manifest.segments[kind]
            if kind in cuts:
                settler = Settler(store, cuts[kind], retention_us(self.templates.hull, kind))
                manifest.segments[kind] = settler.settle(held, None)
            else:  # tuples that have passed, and streams that no query reads any more
                for info in held:
                    store.remove(info)
                del manifest.segments[kind]
        manifest.segments |= {s: [] for s in streams if s not in manifest.segments}
        version = (self.templates.stands_for or {}).get("version")
        is_old, manifest.extra[VERSION_OF_ROWS] = manifest.extra.get(VERSION_OF_ROWS) != version, version
        held = manifest.segments.get(REWRITTEN, [])
        rows = [i for info in held if (i := self._in_force(info, store, batch, is_old)) is not None]
        first = min((marks[s] for s in cuts), default=LAST)
        widest = max(self.templates.hull.values(), default=UNBOUNDED)
        manifest.segments[REWRITTEN] = Settler(store, first, widest).settle(rows, None)

    def _in_force(self, info: SegmentInfo, store: SegmentStore, batch: int, is_old: bool) -> SegmentInfo | None:
        """A segment of rows as wide as this process writes them and, if they are of an older version, without those that no
        living query needs."""
        segment = store.read(info)
        is_wide = {*segment.table.column_names, "next"} == {*self.templates.catalogue.layout.names, TIME}
        if is_wide and not is_old:
            return info
        rows = self.templates.read_rows(segment.table)
        rows = rows[self.templates.in_force(rows, batch)]
        if is_wide and len(rows) == info.rows:
            return info
        store.remove(info)
        return store.write(Segment.of(self._add_times(rows))) if len(rows) else None

    def _add_times(self, rows: np.ndarray) -> pa.Table:
        """Rows with the last event time of a tuple that can match them."""
        cat, lay = self.templates.catalogue.arrays, self.templates.catalogue.layout.array
        template, last = rows[:, TEMPLATE], np.full(len(rows), LAST, np.int64)
        waits = cat[BIND][rows[:, WAIT], ALIAS]
        aliases = cat[INFO][template, ALIASES]
        for b in range(self.templates.catalogue.layout.aliases):
            bound = ((rows[:, BOUND] >> b) & 1).astype(np.bool_)
            hi = cat[HI][template, np.where(bound, b * aliases + waits, 0)]
            last = np.where(bound & (hi < UNBOUNDED), np.minimum(last, shift(rows[:, lay[AT_TS] + b], hi)), last)
        return self.templates.write_rows(rows).append_column(TIME, pa.array(last))
