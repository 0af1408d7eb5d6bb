"""The files of a checkpoint: the state folder, on any file system that Arrow knows, and Spark's own logs beside it.

    metadata                  Spark's: the query's id
    offsets/17                what batch 17 reads
    commits/17                that it is over
    sources/0/17              what a source remembers: a file source, which files each of its offsets stands for
    watersmeet/
        intents/17.json       what batch 17 has decided to do
        manifests/17.json     what is true after batch 17: its being there is the commit
        segments/*.arrow      state; a file counts only if a manifest names it
        mail/*.arrow          messages between the rounds of one attempt
        progress/17.json      what batch 17 did, where the client is another process than the one that runs batches (Spark Connect)

JSON files are sealed documents, see `storage.manifest`.

Spark plans a log that has lost its last file anew, from other input, and reports nothing. So intents and manifests record the
digests of the files that Spark would read again, and whoever goes on from one compares them.

Invariant: a JSON file is either whole or absent: on file systems with rename it is written beside and renamed, object
stores make a file visible when it is complete. Nothing here writes Spark's files; a
file of Spark's, once written, does not change; a source's files before a `.compact` are not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError
from watersmeet.storage.manifest import REMEDY, Document, seal, unseal

D = TypeVar("D", bound=Document)
NAME = "watersmeet"
INTENTS, MANIFESTS, SEGMENTS, MAIL, PROGRESS = "intents", "manifests", "segments", "mail", "progress"
OBJECT_STORES = ("s3", "gcs", "abfs")
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class StateFolder:
    """A folder by its address; small, so that it travels to the workers, who open the file system themselves."""

    uri: str
    is_shared: bool = False
    """Whether several hosts work in it."""

    @classmethod
    def under(cls, checkpoint: str) -> StateFolder:
        return cls(f"{absolute(checkpoint).rstrip('/')}/{NAME}")

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

    @property
    def is_here(self) -> bool:
        """Whether it is on the disk of the one machine that works in it."""
        return self.is_local and not self.is_shared

    def path(self, *parts: str) -> str:
        return "/".join((self._opened[1], *parts))

    def beside(self, *parts: str) -> str:
        """The path of something of Spark's in the checkpoint."""
        return "/".join((self._opened[1].rpartition("/")[0], *parts))

    def prepare(self, *more: str) -> None:
        """Make the folders that every query needs, and more."""
        for kind in (INTENTS, MANIFESTS, SEGMENTS, MAIL, *more):
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
        if self.system.type_name in OBJECT_STORES:
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

    def load(self, kind: str, name: int | str, of: type[D]) -> D:
        """The document of a batch or version, or one with a name of its own."""
        file = f"{name}.json"
        path = self.path(kind, file)
        try:
            blob = self.read(kind, file)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{path} is missing: the checkpoint and its state folder do not belong together; {REMEDY}"
            ) from error
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error}); {REMEDY}") from error
        return of.parse(unseal(blob, f"{kind}/{file}", path), path)

    def save(self, kind: str, name: int | str, document: Document, *, durably: bool = True) -> None:
        """Write a document; one of that name is replaced."""
        self.write(kind, f"{name}.json", seal(document.to_json(), f"{kind}/{name}.json"), durably=durably)

    def create(self, kind: str, name: int, document: Document) -> bool:
        """Write a document whose name nobody has taken; False if somebody has. On a local disk, or where files are never replaced by a rename, one of two writers wins."""
        if self.has(kind, name):
            return False
        if not self.is_local:
            self.save(kind, name, document)
            return True
        part, blob = f".{name}.{uuid.uuid4().hex}.part", seal(document.to_json(), f"{kind}/{name}.json")
        self._put(self.path(kind, part), blob)
        _sync(self.path(kind, part))
        try:
            os.link(self.path(kind, part), self.path(kind, f"{name}.json"))
        except FileExistsError:
            return False
        finally:
            self.delete(kind, part)
        return True

    def delete(self, kind: str, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        try:
            self.system.delete_file(self.path(kind, name))
        except FileNotFoundError:
            return


def absolute(address: str) -> str:
    """A relative path as one of this process's own: Spark's JVM and its workers may run in another folder.

    >>> absolute("/tmp/ck"), absolute("s3a://bucket/ck"), absolute("ck") == os.path.abspath("ck")
    ('/tmp/ck', 's3a://bucket/ck', True)
    """
    return address if ":" in address or os.path.isabs(address) else os.path.abspath(address)


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


OFFSETS, COMMITS, SOURCES, METADATA = "offsets", "commits", "sources", "metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


@dataclass
class SparkLogs:
    """The logs of the query whose checkpoint a state folder lies in."""

    system: pafs.FileSystem
    root: str
    _known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: StateFolder, *parts: str) -> SparkLogs:
        return cls(folder.system, folder.beside(*parts))

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def query_id(self) -> str | None:
        """The query's id; None if Spark has not begun."""
        blob = self._read(METADATA)
        if blob is None:
            return None
        try:
            return str(json.loads(blob)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path(METADATA)} does not name a query of Spark's ({error}); {REMEDY}"
            ) from error

    def latest(self, kind: str) -> int | None:
        """The latest batch of a log; its entry is whole as far as one can see."""
        found = max((int(name) for name in self._names(kind) if name.isdigit()), default=None)
        if found is not None:
            lines = (self._read(f"{kind}/{found}") or b"").split(b"\n")
            if not re.fullmatch(rb"v\d+", lines[0]) or not _is_json(lines[1:2]):
                raise CheckpointError(f"{self.path(f'{kind}/{found}')} is not what Spark writes there; {REMEDY}")
        return found

    def digests(self, batch: int) -> dict[str, str]:
        """By name the digests of the files that Spark would read again after this batch."""
        names = [f"{OFFSETS}/{n}" for n in (batch - 1, batch) if n >= 0]
        names += [f"{SOURCES}/{s}/{name}" for s in self._names(SOURCES) for name in self._live(s)]
        found = {name: known for name in names if (known := self._known.get(name) or self._digest(name)) is not None}
        self._known = found
        return dict(found)

    def check(self, recorded: Mapping[str, str]) -> None:
        """Raise if a recorded file is gone or another."""
        for name, digest in recorded.items():
            found = self._digest(name)
            if found is None and not self._is_compacted(name):
                raise CheckpointError(f"{self.path(name)} is missing from Spark's own logs of the checkpoint; {REMEDY}")
            if found not in (None, digest):
                raise CheckpointError(
                    f"{self.path(name)} is not the file that the state folder beside it was written with; {REMEDY}"
                )

    def _live(self, source: str) -> list[str]:
        """A source's latest compacted file and what came after it; all, if there is none."""
        entries = {name: _ENTRY.fullmatch(name) for name in self._names(f"{SOURCES}/{source}")}
        numbered = {name: (int(m[1]), m[2] is not None) for name, m in entries.items() if m}
        first = max((number for number, compact in numbered.values() if compact), default=-1)
        return sorted(name for name, (number, _) in numbered.items() if number >= first)

    def _is_compacted(self, name: str) -> bool:
        kind, _, rest = name.partition("/")
        source, _, entry = rest.partition("/")
        return kind == SOURCES and any(
            other.endswith(".compact") and int(_number(other)) > int(_number(entry)) for other in self._live(source)
        )

    def _digest(self, name: str) -> str | None:
        blob = self._read(name)
        return None if blob is None else hashlib.sha256(blob).hexdigest()[:16]

    def _names(self, kind: str) -> list[str]:
        found = self.system.get_file_info(pafs.FileSelector(self.path(kind), allow_not_found=True))
        return [f.base_name for f in found if not f.base_name.startswith(".")]

    def _read(self, name: str) -> bytes | None:
        try:
            with self.system.open_input_stream(self.path(name), compression=None) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self.path(name)} cannot be read ({error}); {REMEDY}") from error


def _number(entry: str) -> str:
    """The number of a log's entry.

    >>> _number("19.compact"), _number("20")
    ('19', '20')
    """
    return entry.partition(".")[0]


def _is_json(lines: list[bytes]) -> bool:
    try:
        return bool(lines) and isinstance(json.loads(lines[0]), dict)
    except ValueError:
        return False
