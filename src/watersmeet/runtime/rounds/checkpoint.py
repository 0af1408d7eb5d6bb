"""The files of a checkpoint: the state folder, on any of the file systems of `rounds.systems`, and Spark's own logs beside it.

    metadata                  Spark's: the query's id
    offsets/17                what batch 17 reads
    commits/17                that it is over
    sources/0/17              what a source remembers: a file source, which files each of its offsets stands for
    watersmeet/
        intents/17.json       what batch 17 has decided to do
        manifests/17.json     what is true after batch 17: its being there is the commit
        segments/*.arrow      state; a file counts only if a manifest names it
        mail/*.arrow          messages between the rounds of one attempt
        letters/*             what other sites have sent and this one has not taken for good, and what it sends them, see `runtime.sites`
        upgrades/1.json       that the query was changed, and what the state was before, see `runtime.checkpoints.upgrade`
        progress/17.json      what batch 17 did, for who follows it from another process: on disks, and on Spark Connect

JSON files are sealed documents, see `storage.manifest`.

Spark plans a log that has lost its last file anew, from other input, and reports nothing. So intents and manifests record the
digests of the files that Spark would read again, and whoever goes on from one compares them.

Invariant: a JSON file is either whole or absent. Manifests and intents are created, and no batch replaces a manifest: a second driver in the same folder is stopped by it. Nothing here writes Spark's files; a
file of Spark's, once written, does not change, but for offsets where streams are added; a source's files before a `.compact` are not needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.systems import Files, Writer, open_files
from watersmeet.storage.document import REMEDY, Document, seal, unseal
from watersmeet.storage.segment import SegmentInfo, damage

D = TypeVar("D", bound=Document)
NAME = "watersmeet"
INTENTS, MANIFESTS, SEGMENTS, MAIL, PROGRESS = "intents", "manifests", "segments", "mail", "progress"
LETTERS, UPGRADES = "letters", "upgrades"
OBJECT_STORES = ("s3", "gcs", "abfs")
"""As Arrow calls them."""
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

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "is_shared": self.is_shared}

    @cached_property
    def _opened(self) -> tuple[Files, str]:
        return open_files(self.uri)

    @property
    def files(self) -> Files:
        return self._opened[0]

    @property
    def is_local(self) -> bool:
        return self.files.is_local

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
            self.make_folder(kind)

    def make_folder(self, kind: str) -> None:
        self.files.make_folder(self.path(kind))

    def numbers(self, kind: str) -> list[int]:
        """The batches that have a JSON file of a kind, in order."""
        names = [n.removesuffix(".json") for n in self.names(kind) if n.endswith(".json")]
        return sorted(int(n) for n in names if n.isdigit())

    def names(self, kind: str) -> list[str]:
        return list(self.lengths(kind))

    def lengths(self, kind: str) -> dict[str, int]:
        """The lengths of files by name."""
        return self.files.lengths(self.path(kind))

    def has(self, kind: str, number: int) -> bool:
        return self.files.has(self.path(kind, f"{number}.json"))

    def read(self, kind: str, name: str) -> pa.Buffer:
        return self.files.read(self.path(kind, name))

    def read_segment(self, info: SegmentInfo) -> pa.Buffer:
        """The bytes of a segment, mapped where they lie on the disk of the one machine that works here; an error if they are not what its manifest says."""
        try:
            path = self.path(SEGMENTS, info.file)
            blob = map_file(path) if self.is_here else self.files.read(path)
            problem = damage(blob, info)
        except FileNotFoundError:
            problem = "is missing"
        if problem is not None:
            raise CheckpointError(f"segment file {path} with {info.rows} rows {problem}; {REMEDY}")
        return blob

    def read_ranges(self, kind: str, name: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Parts of a file, by (begin, bytes)."""
        return self.files.read_ranges(self.path(kind, name), ranges)

    def open_writer(self, kind: str, name: str) -> Writer:
        """A new file that grows, and is there when it is closed."""
        return self.files.open_writer(self.path(kind, name))

    def write(self, kind: str, name: str, blob: bytes, *, durably: bool = False, is_new: bool = False) -> None:
        """Write a file all at once; one of that name is replaced or, if the file is to be new, an error."""
        path = self.path(kind, name)
        if not is_new:
            self.files.replace(path, blob, durably=durably)
        elif not self.files.create(path, blob, durably=durably):
            raise CheckpointError(
                f"{path} is there already: another driver runs with this checkpoint; stop one of them, or give each a checkpoint of its own"
            )

    def load(self, kind: str, name: int | str, of: type[D]) -> D:
        """The document of a batch or version, or one with a name of its own."""
        file = f"{name}.json"
        path = self.path(kind, file)
        try:
            blob = self.read(kind, file).to_pybytes()
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{path} is missing: the checkpoint and its state folder do not belong together; {REMEDY}"
            ) from error
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error}); {REMEDY}") from error
        return of.parse(unseal(blob, f"{kind}/{file}", path), path)

    def save(
        self, kind: str, name: int | str, document: Document, *, durably: bool = True, is_new: bool = False
    ) -> None:
        """Write a document; one of that name is replaced or, if it is to be new, an error."""
        blob = seal(document.to_json(), f"{kind}/{name}.json")
        self.write(kind, f"{name}.json", blob, durably=durably, is_new=is_new)

    def create(self, kind: str, name: int, document: Document) -> bool:
        """Write a document whose name nobody has taken; False if somebody has."""
        file = f"{name}.json"
        return self.files.create(self.path(kind, file), seal(document.to_json(), f"{kind}/{file}"), durably=True)

    def delete(self, kind: str, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        self.files.delete(self.path(kind, name))


def map_file(path: str) -> pa.Buffer:
    """A file of the machine's own disk, mapped into memory."""
    if os.path.getsize(path) == 0:
        return pa.py_buffer(b"")
    with pa.memory_map(path) as file:
        return file.read_buffer()


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


OFFSETS, COMMITS, SOURCES, METADATA = "offsets", "commits", "sources", "metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


@dataclass
class SparkLogs:
    """The logs of the query whose checkpoint a state folder lies in."""

    files: Files
    root: str
    _known: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, list[str]] = field(default_factory=dict)
    """By source the files that were there when it was looked at last, in order."""

    @classmethod
    def beside(cls, folder: StateFolder, *parts: str) -> SparkLogs:
        return cls(folder.files, folder.beside(*parts))

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def query_id(self) -> str | None:
        """The query's id; None if Spark has not begun."""
        blob = self.read(METADATA)
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
            lines = (self.read(f"{kind}/{found}") or b"").split(b"\n")
            if not re.fullmatch(rb"v\d+", lines[0]) or not _is_json(lines[1:2]):
                raise CheckpointError(f"{self.path(f'{kind}/{found}')} is not what Spark writes there; {REMEDY}")
        return found

    def digests(self, batch: int) -> dict[str, str]:
        """By name the digests of the files that Spark would read again after this batch."""
        names = [f"{OFFSETS}/{n}" for n in (batch - 1, batch) if n >= 0]
        names += [f"{SOURCES}/{s}/{name}" for s in self._names(SOURCES) for name in self._follow(s)]
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

    def _follow(self, source: str) -> list[str]:
        """A source's files that Spark would read again. On a disk those that have come since are found by name, as entries are numbered without gaps: Spark keeps hundreds of files, and a small batch would wait until all are listed."""
        live = list(self._seen.get(source, ())) if self.files.is_local else []
        if live and not self._has_entry(source, live[-1]):  # compacted and deleted since
            live = []
        while live and (found := self._find_next(source, live[-1])) is not None:
            live = [found] if found.endswith(".compact") else [*live, found]
        self._seen[source] = live or self._live(source)
        return self._seen[source]

    def _find_next(self, source: str, entry: str) -> str | None:
        """The entry after one, if it is there."""
        number = int(_number(entry)) + 1
        return next((name for name in (f"{number}", f"{number}.compact") if self._has_entry(source, name)), None)

    def _has_entry(self, source: str, name: str) -> bool:
        return self.files.has(self.path(f"{SOURCES}/{source}/{name}"))

    def _live(self, source: str) -> list[str]:
        """A source's latest compacted file and what came after it; all, if there is none."""
        entries = {name: _ENTRY.fullmatch(name) for name in self._names(f"{SOURCES}/{source}")}
        numbered = {name: (int(m[1]), m[2] is not None) for name, m in entries.items() if m}
        first = max((number for number, compact in numbered.values() if compact), default=-1)
        return sorted(
            (name for name, (number, _) in numbered.items() if number >= first), key=lambda name: numbered[name]
        )

    def _is_compacted(self, name: str) -> bool:
        kind, _, rest = name.partition("/")
        source, _, entry = rest.partition("/")
        return kind == SOURCES and any(
            other.endswith(".compact") and int(_number(other)) > int(_number(entry)) for other in self._live(source)
        )

    def _digest(self, name: str) -> str | None:
        blob = self.read(name)
        return None if blob is None else hashlib.sha256(blob).hexdigest()[:16]

    def _names(self, kind: str) -> list[str]:
        return [name for name in self.files.lengths(self.path(kind)) if not name.startswith(".")]

    def read(self, name: str) -> bytes | None:
        """A file of Spark's; None if it is not there."""
        try:
            return self.files.read(self.path(name)).to_pybytes()
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
