"""Where segments live between batches.

Invariant: `read` after `write` gives the same rows until `remove`, whatever the process cache holds.
"""

from __future__ import annotations

from typing import Protocol

from watersmeet.errors import CheckpointError
from watersmeet.units.host_cache import HOST_CACHE
from watersmeet.units.segment import CACHE, Segment, from_bytes, to_bytes
from watersmeet.units.state import SegmentInfo


class SegmentStore(Protocol):
    """What a unit asks of its runtime."""

    def read(self, info: SegmentInfo) -> Segment: ...
    def write(self, segment: Segment) -> SegmentInfo: ...
    def remove(self, info: SegmentInfo) -> None: ...


def info_of(segment: Segment) -> SegmentInfo:
    """What a manifest says of a segment, wherever it is stored."""
    return SegmentInfo(segment.id, segment.rows, int(segment.table.nbytes), segment.min_ts, segment.max_ts)


class MemoryStore:
    """Segments in this process, for runs that end with it."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}

    def read(self, info: SegmentInfo) -> Segment:
        return self.segments[info.id]

    def write(self, segment: Segment) -> SegmentInfo:
        self.segments[segment.id] = segment
        return info_of(segment)

    def remove(self, info: SegmentInfo) -> None:
        del self.segments[info.id]

    def copy(self, ids: set[str] | None = None) -> MemoryStore:
        """A store of the same segments, or of these; what is written or removed in one is not in the other."""
        out = MemoryStore()
        out.segments = {id: s for id, s in self.segments.items() if ids is None or id in ids}
        return out


class Blobs(Protocol):
    """Durable bytes by id."""

    def get(self, id: str) -> bytes | None: ...
    def put(self, id: str, blob: bytes) -> None: ...
    def delete(self, id: str) -> None: ...


class BlobStore:
    """Segments as Arrow IPC bytes in durable state, with the caches of the process and of the host in front."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs

    def read(self, info: SegmentInfo) -> Segment:
        segment = CACHE.get(info.id)
        if segment is None:
            segment = self._decode(info)
            CACHE.put(segment)
        return segment

    def write(self, segment: Segment) -> SegmentInfo:
        blob = to_bytes(segment.table)
        self.blobs.put(segment.id, blob)
        HOST_CACHE.write(segment.id, blob)
        CACHE.put(segment)
        return info_of(segment)

    def remove(self, info: SegmentInfo) -> None:
        self.blobs.delete(info.id)
        HOST_CACHE.remove(info.id)
        CACHE.drop(info.id)

    def _decode(self, info: SegmentInfo) -> Segment:
        near = HOST_CACHE.read(info.id)
        if near is not None and near.num_rows == info.rows:
            return Segment(info.id, near.combine_chunks())
        remedy = "start with a new checkpoint folder"
        blob = self.blobs.get(info.id)
        if blob is None:
            raise CheckpointError(f"corrupt checkpoint: segment {info.id} with {info.rows} rows is missing; {remedy}")
        try:
            table = from_bytes(blob)
        except Exception as error:
            raise CheckpointError(
                f"corrupt checkpoint: segment {info.id} cannot be read ({error}); {remedy}"
            ) from error
        if table.num_rows != info.rows:
            raise CheckpointError(
                f"corrupt checkpoint: segment {info.id} has {table.num_rows} rows, not {info.rows}; {remedy}"
            )
        return Segment(info.id, table.combine_chunks())
