"""Where segments lie between batches: in this process, or as bytes in durable state, with caches of the process and of the host in front.

The bytes of a segment live wherever the runtime keeps state. What can be derived from them (codes, indexes) lives in a cache of the process, keyed by segment id,
and is lost without harm. Spark gives a unit's task to any worker process of the host. Without a cache on the host's disk every change of process would fetch
the unit's segments through Spark's state server, which costs more than the join.

Invariant: a store's `read` after `write` gives the same rows until `remove`, whatever caches hold. Bytes from elsewhere are compared with the length and checksum that
`write` has returned: what differs is an error, and never read. The host's cache is only a copy. A file counts only if it has the length and the checksum that the manifest
says, is a plain file of this user's that nobody else may write, and lies in a folder of this user and this boot of the machine that
nobody else may enter. Anything else is ignored. Files are renamed into place when complete, and may be deleted at any time.
"""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes, to_bytes
from watersmeet.errors import CheckpointError
from watersmeet.storage.cache import CACHE
from watersmeet.storage.segment import Segment, SegmentInfo, damage, info_of

LIMIT_BYTES = 2 * 2**30
PRUNE_EVERY = 256


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "boot"


class HostCache:
    """Files by segment id, up to a number of bytes."""

    def __init__(self, root: Path | None = None, limit: int = LIMIT_BYTES) -> None:
        owner = os.getuid() if hasattr(os, "getuid") else 0
        self.folder = root or Path(tempfile.gettempdir()) / f"watersmeet-{owner}-{_boot()}"
        self.limit = limit
        self._writes = 0
        self._usable = self._prepare()

    def _prepare(self) -> bool:
        """A folder that is ours alone; without one the cache stays empty."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _is_ours(self.folder.lstat(), stat.S_IFDIR, 0o077)
        except OSError:
            return False

    def write(self, id: str, blob: bytes | pa.Buffer) -> None:
        """Keep a copy; failing to is no error."""
        if not self._usable:
            return
        self._writes += 1
        if self._writes % PRUNE_EVERY == 0:
            self._prune()
        part = self.folder / f"{id}.{os.getpid()}.part"
        try:
            part.write_bytes(blob)
            part.rename(self.folder / id)
        except OSError:
            part.unlink(missing_ok=True)

    def read(self, id: str, size: int, checksum: int) -> pa.Buffer | None:
        """The bytes of a segment, mapped rather than read; None if they are not here as they should be."""
        if not self._usable:
            return None
        try:
            blob = self._map_file(self.folder / id, size)
        except (OSError, ValueError):
            return None
        if blob is not None and zlib.crc32(blob) == checksum:
            return blob
        self.remove(id)
        return None

    def _map_file(self, path: Path, size: int) -> pa.Buffer | None:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            found = os.fstat(file)
            if not _is_ours(found, stat.S_IFREG, 0o022) or found.st_size != size:
                return None
            return pa.py_buffer(mmap.mmap(file, size, access=mmap.ACCESS_READ))
        finally:
            os.close(file)

    def remove(self, id: str) -> None:
        if not self._usable:
            return
        try:
            (self.folder / id).unlink(missing_ok=True)
        except OSError:
            return

    def _prune(self) -> None:
        """Forget the oldest files beyond the limit."""
        try:
            files = sorted(
                ((e.stat().st_mtime, e.stat().st_size, e.path) for e in os.scandir(self.folder)), reverse=True
            )
        except OSError:
            return
        total = 0
        for _, size, path in files:
            total += size
            if total > self.limit:
                Path(path).unlink(missing_ok=True)


def _is_ours(found: os.stat_result, kind: int, others: int) -> bool:
    """Whether this is of the kind and this user's, and none of these rights are given to others."""
    mine = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and found.st_mode & others == 0)
    return mine and stat.S_IFMT(found.st_mode) == kind


HOST_CACHE = HostCache()


class MemoryStore:
    """Segments in this process, for runs that end with it."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self._lent: dict[str, Segment] = {}

    def read(self, info: SegmentInfo) -> Segment:
        found = self.segments.get(info.id)
        return self._lent[info.id] if found is None else found

    def write(self, segment: Segment) -> SegmentInfo:
        self.segments[segment.id] = segment
        return info_of(segment)

    def remove(self, info: SegmentInfo) -> None:
        del self.segments[info.id]

    def lend(self) -> None:
        """Keep what is there now to be read by other units, whoever removes it."""
        self._lent = dict(self.segments)

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
