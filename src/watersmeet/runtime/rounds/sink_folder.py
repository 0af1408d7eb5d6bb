"""A folder of results that Spark's file sink writes, and whether a checkpoint may go on writing to it.

    results/
        part-....parquet
        _spark_metadata/17        the files of batch 17: its being there is the commit

Spark's file sink skips batch numbers that its log already has, its readers see only files that the log names, and the log must hold
every batch from 0 on. So these are refused: a new checkpoint over old results (nothing would be written), a folder with files and no
log (they would vanish for readers), and a checkpoint that has written its batches elsewhere.

Invariant: nothing here writes. Both the command and `start()` ask here, before the query runs.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.folder import arrow_address

LOG = "_spark_metadata"
REMEDY = "go on with the checkpoint that wrote it, or begin anew with another folder as sink"


@dataclass(frozen=True)
class SinkFolder:
    """A folder of results, by its address."""

    address: str

    @cached_property
    def _opened(self) -> tuple[pafs.FileSystem, str] | None:
        """None: on a file system that Arrow does not know; then nothing can be said of it."""
        address = arrow_address(self.address)
        if address is None:
            return pafs.LocalFileSystem(), os.path.abspath(self.address.removeprefix("file:"))
        try:
            return pafs.FileSystem.from_uri(address)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return None

    @property
    def is_known(self) -> bool:
        return self._opened is not None

    def latest(self) -> int | None:
        """The latest batch of the log."""
        return max((int(n.removesuffix(".compact")) for n in self._log()), default=None)

    def mark(self, batch: int) -> str | None:
        """What tells the log's entry of a batch from those of others; None without one."""
        return next((self._digest(name) for name in (f"{batch}", f"{batch}.compact") if name in self._log()), None)

    def check_new(self, checkpoint: str) -> None:
        """Raise if a checkpoint that has run no batch may not begin to write here."""
        if self.latest() is not None:
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}: "
                f"Spark's file sink would skip the batches that it has; {REMEDY}"
            )
        files = [name for name in self._names() if not name.startswith(("_", "."))]
        if files and LOG not in self._names():
            raise CheckpointError(
                f"{self.address} holds {files[0]!r} and has no {LOG}: what was there would vanish for Spark's readers, which see "
                "only what a streaming query has logged; give an empty folder as sink"
            )

    def check_goes_on(self, batch: int, mark: str | None, checkpoint: str) -> None:
        """Raise if this is not where a checkpoint wrote its latest batch, which left this mark. The next one may be there, too."""
        latest = self.latest()
        if self.is_known and batch >= 0 and (latest is None or mark is None):
            raise CheckpointError(
                f"{self.address} is not where {checkpoint} has written its {batch + 1} batches, and Spark's file sink needs all of them "
                "in one folder: give that folder as sink, or start with a new checkpoint"
            )
        compacted = f"{batch + 1}.compact" in self._log() and f"{batch}" not in self._log()
        if latest is not None and (latest > batch + 1 or (self.mark(batch) != mark and not compacted)):
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}, up to batch {latest}; {REMEDY}"
            )

    def _log(self) -> list[str]:
        return [n for n in self._names(LOG) if n.removesuffix(".compact").isdigit()]

    def _names(self, *parts: str) -> list[str]:
        if self._opened is None:
            return []
        system, root = self._opened
        found = system.get_file_info(pafs.FileSelector("/".join((root, *parts)), allow_not_found=True))
        return sorted(f.base_name for f in found)

    def _digest(self, name: str) -> str:
        system, root = self._opened or (None, None)
        assert system is not None
        with system.open_input_stream(f"{root}/{LOG}/{name}", compression=None) as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
