"""A folder of results by its address, and which checkpoint may write to it.

    results/
        part-17-....parquet
        _spark_metadata/17        the files of batch 17: its being there is the commit

Spark's readers see only files that the log names, and the log must hold every batch from 0 on. So these are refused: a new checkpoint over old results,
a folder with files and no log (they would vanish for readers), and a checkpoint that has written its batches elsewhere.

Invariant: the checks only read; both the command and `start()` ask them before the query runs.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.rounds.checkpoint import arrow_address

LOG = "_spark_metadata"
REMEDY = "go on with the checkpoint that wrote it, or begin anew with another folder as sink"
_NO_HOST = re.compile(r"([A-Za-z][\w+.-]+):/(?!/)")
"""An address that names a file system and no host, as `hdfs:/x`."""
_LEGAL = "/,;:$&+=@!~'()*"
"""What stands as it is in the path of a URI, besides letters, digits and `_.-`."""


@dataclass(frozen=True)
class SinkFolder:
    """A folder of results, by its address; small, so that it travels to the workers, who open the file system themselves."""

    address: str
    option: str = "sink"
    """What users give it by."""

    @cached_property
    def _opened(self) -> tuple[pafs.FileSystem, str] | None:
        """None: on a file system that Arrow does not know; then nothing can be said of it."""
        local = _local_path(self.address)
        if local is not None:
            return pafs.LocalFileSystem(), local
        try:
            return pafs.FileSystem.from_uri(arrow_address(_NO_HOST.sub(r"\1:///", self.address)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return None

    @property
    def is_known(self) -> bool:
        return self._opened is not None

    def require(self) -> None:
        """Raise if Arrow cannot write here."""
        if self._opened is None:
            raise OptionError(
                f"{self.option}={self.address!r}: Arrow, which writes the files, cannot open this file system; give a folder that it can, "
                "such as a path, s3a://, gs://, abfss:// or hdfs://, or a function (rows, batch_id)"
            )

    @property
    def system(self) -> pafs.FileSystem:
        self.require()
        assert self._opened is not None
        return self._opened[0]

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, pafs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        assert self._opened is not None
        return "/".join((self._opened[1].rstrip("/"), *parts))

    def uri(self, name: str) -> str:
        """A file's address as Hadoop writes it.

        >>> SinkFolder("/a b").uri("p=%41/x"), SinkFolder("s3a://bucket/out/").uri("x"), SinkFolder("hdfs:/out").uri("x")
        ('file:///a%20b/p=%2541/x', 's3a://bucket/out/x', 'hdfs:///out/x')
        """
        local = _local_path(self.address)
        scheme, _, rest = _NO_HOST.sub(r"\1:///", self.address).partition("://")
        host, slash, below = ("", "/", local[1:]) if local is not None else rest.partition("/")
        whole = f"{slash or '/'}{below.strip('/')}/{name}".replace("//", "/")
        return f"{'file' if local is not None else scheme}://{host}{quote(whole, safe=_LEGAL)}"

    def latest(self) -> int | None:
        """The latest batch of the log."""
        return max((int(n.removesuffix(".compact")) for n in self.log_names()), default=None)

    def mark(self, batch: int) -> str | None:
        """What tells the log's entry of a batch from those of others; None without one."""
        marks = self._marks(batch)
        return marks[0] if marks else None

    def _marks(self, batch: int) -> list[str]:
        """The marks of a batch's entry."""
        found = self.entry_of(batch)
        return [] if found is None else self.list_marks(found, self.read_log(found), batch)

    def list_marks(self, name: str, blob: bytes, batch: int) -> list[str]:
        """The marks of an entry: of a compacted one that of the batch's own lines, since others may be merged later, and that of all, which earlier versions took."""
        lines = blob.decode().split("\n")
        own = "\n".join([lines[0], *(line for line in lines[1:] if self.is_of(line, batch))]).encode()
        return [hashlib.sha256(b).hexdigest()[:16] for b in ((own, blob) if name.endswith(".compact") else (blob,))]

    @staticmethod
    def is_of(line: str, batch: int) -> bool:
        """Whether a line of the log names a file of a batch."""
        return re.search(rf"[/\"]part-{batch}-[^/\"]*\"", line) is not None

    def check_new(self, checkpoint: str) -> None:
        """Raise if a checkpoint that has run no batch may not begin to write here."""
        if self.latest() is not None:
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}: "
                f"batches that its log has would be skipped; {REMEDY}"
            )
        files = [name for name in self._names() if not name.startswith(("_", "."))]
        if files and LOG not in self._names():
            raise CheckpointError(
                f"{self.address} holds {files[0]!r} and has no {LOG}: what was there would vanish for Spark's readers, which see "
                f"only what a streaming query has logged; give an empty folder as {self.option}="
            )

    def check_goes_on(self, batch: int, mark: str | None, checkpoint: str) -> None:
        """Raise if this is not where a checkpoint wrote its latest batch, which left this mark. The next one may be there, too."""
        latest = self.latest()
        if self.is_known and batch >= 0 and (latest is None or mark is None):
            raise CheckpointError(
                f"{self.address} is not where {checkpoint} has written its {batch + 1} batches, and the log of a folder of results needs all of them: "
                f"give that folder as {self.option}=, a function, or start with a new checkpoint"
            )
        names, marks = self.log_names(), self._marks(batch)
        other = mark not in marks if marks else mark is not None
        compacted = f"{batch + 1}.compact" in names and f"{batch}" not in names
        if latest is not None and (latest > batch + 1 or (other and not compacted)):
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}, up to batch {latest}; {REMEDY}"
            )

    def log_names(self) -> list[str]:
        """The entries of the log."""
        return [n for n in self._names(LOG) if n.removesuffix(".compact").isdigit()]

    def entry_of(self, batch: int) -> str | None:
        """The name of a batch's entry; None without one."""
        names = self.log_names()
        return next((name for name in (f"{batch}", f"{batch}.compact") if name in names), None)

    def read_log(self, name: str) -> bytes:
        with self.system.open_input_stream(self.path(LOG, name), compression=None) as file:
            return file.read()

    def _names(self, *parts: str) -> list[str]:
        if self._opened is None:
            return []
        found = self.system.get_file_info(pafs.FileSelector(self.path(*parts), allow_not_found=True))
        return sorted(f.base_name for f in found)


def _local_path(address: str) -> str | None:
    """The path of a folder of this machine; None if the address names another file system.

    >>> _local_path("/a/b"), _local_path("file:/a/b"), _local_path("file:///a/b"), _local_path("s3://a/b")
    ('/a/b', '/a/b', '/a/b', None)
    """
    if address.startswith("file:"):
        return os.path.abspath(re.sub(r"^//[^/]*(?=/)", "", address.removeprefix("file:")))
    return None if "://" in address or _NO_HOST.match(address) else os.path.abspath(address)
