"""The log of a folder of results, as Spark's file sink writes it and Spark's readers understand it.

    _spark_metadata/
        18            v1, then one line of JSON for every file of batch 18; a batch without files has `v1` alone
        19.compact    the same of batches 0 to 19; readers go on from here

Which batches are compacted is a matter of arithmetic for readers: with an interval of ten, 9, 19, 29 and so on. They take the interval from the two
newest compacted entries, or derive it from the only one; so do we, and keep the two newest.

Invariant: an entry appears whole or not at all, and is never replaced: `put` fails if the batch is there. It names files that are there and have the length that
their writers reported, and no others, so what attempts that failed have left is never read.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.checkpoint import OBJECT_STORES
from watersmeet.runtime.rounds.results.folder import LOG, REMEDY, SinkFolder
from watersmeet.runtime.rounds.results.parts import Part, find_parts
from watersmeet.runtime.rounds.systems import open_files

VERSION = "v1"
INTERVAL = 10
INTERVAL_SETTING = "spark.sql.streaming.fileSink.log.compactInterval"
"""Spark's setting of the interval, which its readers assume before anything is compacted."""
_BLOCK_BYTES = 32 * 2**20
"""What Hadoop says of local files; readers split files by their own settings."""


def interval_of(compacted: Sequence[int], default: int) -> int:
    """The interval that a log's compacted batches imply, as Spark derives it.

    >>> interval_of([], 10), interval_of([9], 10), interval_of([9, 19], 3), interval_of([11], 5), interval_of([19], 10)
    (10, 10, 10, 6, 20)
    """
    newest = sorted(compacted)[-2:]
    if len(newest) == 2:
        return newest[1] - newest[0]
    if not newest or newest[0] + 1 <= default:
        return newest[0] + 1 if newest else default
    size = newest[0] + 1
    return next((d for d in range(default, size // 2 + 1) if size % d == 0), size) if default < size // 2 else size


def is_compacted(batch: int, interval: int) -> bool:
    return (batch + 1) % interval == 0


def name_of(batch: int, interval: int) -> str:
    """The name of a batch's entry.

    >>> [name_of(batch, 10) for batch in (8, 9, 10)]
    ['8', '9.compact', '10']
    """
    return f"{batch}.compact" if is_compacted(batch, interval) else f"{batch}"


def needed_batches(batch: int, interval: int) -> range:
    """The batches whose entries name all files up to a batch.

    >>> list(needed_batches(3, 10)), list(needed_batches(11, 10)), list(needed_batches(19, 10))
    ([0, 1, 2, 3], [9, 10, 11], [19])
    """
    return range(max(0, (batch + 1) // interval * interval - 1), batch + 1)


@dataclass(frozen=True)
class SinkLog:
    """The log of one folder."""

    folder: SinkFolder
    default: int = INTERVAL
    """The interval before anything is compacted."""

    @property
    def interval(self) -> int:
        compacted = [int(n.removesuffix(".compact")) for n in self.folder.log_names() if n.endswith(".compact")]
        return interval_of(compacted, self.default)

    def put(self, batch: int, parts: Iterable[Part]) -> str:
        """Commit a batch: from now on readers see these files of it. The entry's mark, see `SinkFolder.mark`."""
        interval = self.interval
        name = name_of(batch, interval)
        lines = [*self._lines_before(batch, interval), *self.describe(list(parts))]
        blob = "\n".join([VERSION, *lines]).encode()
        self._create(name, blob)
        if is_compacted(batch, interval):
            self._forget(batch - interval)
        return self.folder.list_marks(name, blob, batch)[0]

    def list_files(self, batch: int) -> set[str]:
        """The names of the files, without folders, that the entry of a batch names."""
        lines = self.lines(self.folder.entry_of(batch) or f"{batch}")
        return {unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines}

    def _lines_before(self, batch: int, interval: int) -> list[str]:
        """The lines of all batches before one that is compacted; none of any other."""
        if not is_compacted(batch, interval) or batch == 0:
            return []
        return [line for b in needed_batches(batch - 1, interval) for line in self.lines(name_of(b, interval))]

    def needed_names(self) -> list[str]:
        """The entries that readers read: the newest compacted one, and what came after it."""
        numbers = {name: int(name.removesuffix(".compact")) for name in self.folder.log_names()}
        first = max((number for name, number in numbers.items() if name.endswith(".compact")), default=-1)
        return [name for name, number in numbers.items() if number >= first]

    def lines(self, name: str) -> list[str]:
        """The lines of an entry."""
        path = self.folder.path(LOG, name)
        try:
            version, *lines = self.folder.read_log(name).decode().split("\n")
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing, and the log goes on after it; {REMEDY}") from None
        if version != VERSION:
            raise CheckpointError(f"{path} is not an entry of the log of a folder of results; {REMEDY}")
        return [line for line in lines if line]

    def describe(self, parts: list[Part]) -> list[str]:
        """Lines about files, which must be there as their writers left them."""
        return [self._line(part, at) for part, at in zip(parts, find_parts(self.folder, parts), strict=True)]

    def _line(self, part: Part, modified_ms: int) -> str:
        status = {
            "path": self.folder.uri(part.path),
            "size": part.bytes,
            "isDir": False,
            "modificationTime": modified_ms,
            "blockReplication": 1,
            "blockSize": _BLOCK_BYTES,
            "action": "add",
        }
        return json.dumps(status, separators=(",", ":"))

    def _create(self, name: str, blob: bytes) -> None:
        """Write an entry that is not there; where files can be linked or renamed, it is written beside."""
        system, path = self.folder.system, self.folder.path(LOG, name)
        if system.type_name in OBJECT_STORES:
            files, root = open_files(self.folder.address)
            if not files.create(f"{root.rstrip('/')}/{LOG}/{name}", blob, durably=False):
                raise self._error_of_old(path)
            return
        system.create_dir(self.folder.path(LOG), recursive=True)
        beside = self.folder.path(LOG, f".{name}.{uuid.uuid4().hex}.tmp")
        _write(system, beside, blob)
        try:
            self._move(beside, path)
        finally:
            with suppress(FileNotFoundError):
                system.delete_file(beside)

    def _move(self, beside: str, path: str) -> None:
        if self.folder.is_local:
            try:
                os.link(beside, path)
                return
            except FileExistsError:
                raise self._error_of_old(path) from None
            except OSError:  # a file system without hard links
                pass
        self._refuse_old(path)
        self.folder.system.move(beside, path)

    def _refuse_old(self, path: str) -> None:
        if self.folder.system.get_file_info(path).type != pafs.FileType.NotFound:
            raise self._error_of_old(path)

    def _error_of_old(self, path: str) -> CheckpointError:
        return CheckpointError(
            f"{path} is there already: another query writes to {self.folder.address}; give each a folder of its own"
        )

    def _forget(self, before: int) -> None:
        """Delete entries of batches before one that is compacted, with the checksums that Hadoop may have put beside them."""
        for name in self.folder.log_names():
            if int(name.removesuffix(".compact")) < before:
                for file in (name, f".{name}.crc"):
                    with suppress(FileNotFoundError):
                        self.folder.system.delete_file(self.folder.path(LOG, file))


def _write(system: pafs.FileSystem, path: str, blob: bytes) -> None:
    with system.open_output_stream(path, compression=None) as file:
        file.write(blob)
