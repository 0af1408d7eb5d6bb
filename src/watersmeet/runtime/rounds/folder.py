"""The state folder under the checkpoint, on any file system that Arrow knows.

    watersmeet/
        intents/17.json       what batch 17 has decided to do
        manifests/17.json     what is true after batch 17: its being there is the commit
        segments/*.arrow      state; a file counts only if a manifest names it
        mail/*.arrow          messages between the rounds of one attempt

Invariant: a JSON file is either whole or absent: on file systems with rename it is written beside and renamed, object
stores make a file visible when it is complete. What happens to it later is found by its checksum, see `sealed`.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.sealed import REMEDY, seal, unseal

NAME = "watersmeet"
INTENTS, MANIFESTS, SEGMENTS, MAIL = "intents", "manifests", "segments", "mail"
_OBJECT_STORES = ("s3", "gcs", "abfs")
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class StateFolder:
    """A folder by its address; small, so that it travels to the workers, who open the file system themselves."""

    uri: str

    @classmethod
    def under(cls, checkpoint: str) -> StateFolder:
        return cls(f"{checkpoint.rstrip('/')}/{NAME}")

    @cached_property
    def _opened(self) -> tuple[pafs.FileSystem, str]:
        address = arrow_address(self.uri)
        if address is None:
            return pafs.LocalFileSystem(), os.path.abspath(self.uri.removeprefix("file:"))
        return pafs.FileSystem.from_uri(address)

    @property
    def system(self) -> pafs.FileSystem:
        return self._opened[0]

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, pafs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        return "/".join((self._opened[1], *parts))

    def beside(self, *parts: str) -> str:
        """The path of something of Spark's in the checkpoint."""
        return "/".join((self._opened[1].rpartition("/")[0], *parts))

    def prepare(self) -> None:
        for kind in (INTENTS, MANIFESTS, SEGMENTS, MAIL):
            self.system.create_dir(self.path(kind), recursive=True)

    def numbers(self, kind: str) -> list[int]:
        """The batches that have a JSON file of a kind, in order."""
        names = [n.removesuffix(".json") for n in self.names(kind) if n.endswith(".json")]
        return sorted(int(n) for n in names if n.isdigit())

    def names(self, kind: str) -> list[str]:
        return list(self.lengths(kind))

    def lengths(self, kind: str) -> dict[str, int]:
        """The lengths of files by name."""
        found = self.system.get_file_info(pafs.FileSelector(self.path(kind), allow_not_found=True))
        return {f.base_name: f.size for f in found}

    def has(self, kind: str, number: int) -> bool:
        info = self.system.get_file_info(self.path(kind, f"{number}.json"))
        return bool(info.type == pafs.FileType.File)

    def read(self, kind: str, name: str) -> bytes:
        with self.system.open_input_stream(self.path(kind, name), compression=None) as file:
            return file.read()

    def write(self, kind: str, name: str, blob: bytes, *, durably: bool = False) -> None:
        """Write a file all at once; one of that name is replaced."""
        path = self.path(kind, name)
        if self.system.type_name in _OBJECT_STORES:
            self._put(path, blob)
            return
        part = self.path(kind, f".{name}.{uuid.uuid4().hex}.part")
        self._put(part, blob)
        if durably and self.is_local:
            _sync(part)
        self.system.move(part, path)

    def _put(self, path: str, blob: bytes) -> None:
        with self.system.open_output_stream(path, compression=None) as file:
            file.write(blob)

    def read_json(self, kind: str, name: int | str) -> dict[str, Any]:
        """The content of a batch's or version's file, or of one with a name of its own."""
        name = f"{name}.json"
        path = self.path(kind, name)
        try:
            blob = self.read(kind, name)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{path} is missing: the checkpoint and its state folder do not belong together; {REMEDY}"
            ) from error
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error}); {REMEDY}") from error
        return unseal(blob, f"{kind}/{name}", path)

    def write_json(self, kind: str, name: int | str, content: dict[str, Any], *, durably: bool = True) -> None:
        """Write what a batch intends or has done, a version of a registry, or a file with a name of its own."""
        self.write(kind, f"{name}.json", seal(content, f"{kind}/{name}.json"), durably=durably)

    def delete(self, kind: str, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        try:
            self.system.delete_file(self.path(kind, name))
        except FileNotFoundError:
            return


def arrow_address(uri: str) -> str | None:
    """The address as Arrow writes it; None for a plain path.

    >>> arrow_address("s3a://bucket/ck"), arrow_address("hdfs://host:8020/ck"), arrow_address("/tmp/ck")
    ('s3://bucket/ck', 'hdfs://host:8020/ck', None)
    """
    scheme, colon, rest = uri.partition("://")
    return f"{_HADOOP_NAMES.get(scheme, scheme)}://{rest}" if colon else None


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
