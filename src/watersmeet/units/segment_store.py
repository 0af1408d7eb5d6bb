"""Where segments live between batches.

Invariant: `read` after `write` gives the same rows until `remove`, whatever the process cache holds. Bytes from elsewhere are compared
with the length and checksum that `write` has returned: what differs is an error, and never read.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

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
        return replace(info_of(segment), file_bytes=len(blob), checksum=zlib.crc32(blob))

    def remove(self, info: SegmentInfo) -> None:
        self.blobs.delete(info.id)
        HOST_CACHE.remove(info.id)
        CACHE.drop(info.id)

    def _decode(self, info: SegmentInfo) -> Segment:
        blob: bytes | pa.Buffer | None = HOST_CACHE.read(info.id, info.file_bytes, info.checksum)
        if blob is None:
            blob = self.blobs.get(info.id)
            problem = "is missing" if blob is None else damage(blob, info)
            if blob is None or problem is not None:
                raise CheckpointError(
                    f"corrupt checkpoint: segment {info.id} with {info.rows} rows {problem}; start with a new checkpoint folder"
                )
        return Segment(info.id, from_bytes(blob).combine_chunks())


def damage(blob: bytes | pa.Buffer, info: SegmentInfo) -> str | None:
    """What is wrong with the bytes of a segment; None: they are what was written."""
    if len(blob) != info.file_bytes:
        return f"is damaged: it has {len(blob)} bytes, not {info.file_bytes}"
    return None if zlib.crc32(blob) == info.checksum else "is damaged: its checksum is not what the manifest says"
