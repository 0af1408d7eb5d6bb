"""Which stored tuples are done, since they have met a partner or have left: a bit for each.

    segment 17   _ts  key  ...  _done         as it was written: who was done in the batch of the tuples
    segment 18   _ts  key  ...  _done
    bits         17: 0110 ...                 who is done now, of segments where that has changed

All bits of a side are one small segment, which is replaced when they change. A segment that is rewritten, since it is merged with others or some of its tuples are
dead, takes its bits along as its column.

Invariant: a tuple that is done stays done, whatever happens to the segment that it lies in. No segment has bits that is not stored, and none has them twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.contract import Turn
from watersmeet.plan.model import TIME
from watersmeet.storage.compaction import Settler
from watersmeet.storage.manifest import OTHER
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

DONE = "_done"
"""The column of stored tuples that is true where a tuple was done when its segment was written."""
BITS = f"{OTHER}done "
"""Kinds of bits, by side."""
_SEGMENT, _BITS = "segment", "done"


class DoneBits:
    """Who is done of the stored tuples of a side, in one turn."""

    def __init__(self, turn: Turn, side: str, stored: Sequence[Segment]) -> None:
        self.turn, self.kind, self.stored = turn, BITS + side, stored
        changed = self._read()
        parts = [_unpack(changed[s.id], s.rows) if s.id in changed else _column(s) for s in stored]
        self.done = np.concatenate([np.empty(0, bool), *parts])
        """By row of the stored segments, end to end; whoever settles tuples adds to it."""

    def settle(self, tuples: str, settler: Settler, new: Segment | None) -> None:
        """Change the stored segments, which have the kind `tuples`, as a batch does, and keep the bits of those that live on."""
        state, done = self.turn.state, self._by_segment()
        settler.store = _Rewriting(settler.store, done)
        state.segments[tuples] = settler.settle(state.segments.get(tuples, []), new)
        alive = {info.id for info in state.segments[tuples]}
        changed = [s for s in self.stored if s.id in alive and not np.array_equal(done[s.id], _column(s))]
        bits = [np.packbits(done[s.id], bitorder="little").tobytes() for s in changed]
        self._replace(pa.table({TIME: [s.max_ts for s in changed], _SEGMENT: [s.id for s in changed], _BITS: bits}))

    def _by_segment(self) -> dict[str, np.ndarray]:
        begins = np.cumsum([0, *(s.rows for s in self.stored)])
        return {s.id: self.done[begin : begin + s.rows] for s, begin in zip(self.stored, begins, strict=False)}

    def _read(self) -> dict[str, bytes]:
        """The bits of every segment that has some."""
        tables = [self.turn.store.read(info).table for info in self.turn.state.segments.get(self.kind, [])]
        pairs = (zip(t.column(_SEGMENT).to_pylist(), t.column(_BITS).to_pylist(), strict=True) for t in tables)
        return {id: bits for some in pairs for id, bits in some}

    def _replace(self, bits: pa.Table) -> None:
        """Write the bits, unless those that are there are the same."""
        state, store = self.turn.state, self.turn.store
        infos, new = state.segments.get(self.kind, []), Segment.of(bits)
        if [store.read(info).table for info in infos] != [new.table]:
            for info in infos:
                store.remove(info)
            state.segments[self.kind] = [store.write(new)] if new.rows else []


@dataclass(frozen=True)
class _Rewriting:
    """A store whose segments are read to be rewritten: their columns say who is done now."""

    store: SegmentStore
    done: Mapping[str, np.ndarray]

    def read(self, info: SegmentInfo) -> Segment:
        segment = self.store.read(info)
        return segment if info.id not in self.done else segment.with_column(DONE, pa.array(self.done[info.id]))

    def write(self, segment: Segment) -> SegmentInfo:
        return self.store.write(segment)

    def remove(self, info: SegmentInfo) -> None:
        self.store.remove(info)


def _column(segment: Segment) -> np.ndarray:
    return np.asarray(segment.column(DONE).to_numpy(zero_copy_only=False), bool)


def _unpack(bits: bytes, rows: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little").view(bool)
