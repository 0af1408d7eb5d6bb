"""Segments on this host's disk: what one worker process wrote, the next one maps into memory.

Spark gives a unit's task to any worker process of the host. Without this cache every change of process would fetch the
unit's segments through Spark's state server, which costs more than the join.

Invariant: only a copy. An id names one content for ever, so a file is either right, absent, or refused: files live in
a folder of this user and this boot of the machine, are renamed into place when complete, and are forgotten at will.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa

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
            status = self.folder.stat()
            mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            return mine and not self.folder.is_symlink() and status.st_mode & 0o077 == 0
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

    def path(self, id: str) -> str | None:
        """The file of an id, if it is here."""
        file = self.folder / id
        return str(file) if self._usable and file.exists() else None

    def read(self, id: str) -> pa.Table | None:
        """The table of a segment, mapped rather than read; None if it is not here."""
        try:
            with pa.memory_map(str(self.folder / id)) as source, pa.ipc.open_stream(source) as reader:
                return reader.read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def remove(self, id: str) -> None:
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


HOST_CACHE = HostCache()
