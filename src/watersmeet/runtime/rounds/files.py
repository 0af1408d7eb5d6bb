"""Segments as Arrow files in the state folder; mail: tables as parts of files; and the orders of a job.

Where all tasks run on one machine and the folder lies on its disk, files are mapped into memory. Segments that lie elsewhere, or are shared by several hosts, are
copied once per host, see `storage.stores`, and mapped from there.

Everything that differs between batches is in the orders of a job, which travel as `runtime.spark.jobs` says, or through a file if they are long.

Invariant: a file is written once and never changed. Its length and checksum stand in the manifest, those of mail in the parcel. So what
is damaged or missing is an error that names the file, never a wrong result.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from watersmeet.columns.arrow import from_bytes
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.checkpoint import MAIL, SEGMENTS, StateFolder, map_file
from watersmeet.runtime.rounds.systems import Writer
from watersmeet.runtime.spark.jobs import orders_of_job
from watersmeet.storage.cache import CACHE
from watersmeet.storage.document import Document
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, info_of
from watersmeet.storage.stores import HOST_CACHE

_cached: dict[str, set[str]] = {}
"""Ids of segments that this process has in its cache, by the state folder they belong to."""


def forget_all_but(folder: StateFolder, live: set[str]) -> None:
    """Drop cached segments of a folder that are not live any more: other processes may have removed them."""
    held = _cached.setdefault(folder.uri, set())
    for id in held - live:
        CACHE.drop(id)
    held &= live


class FileStore:
    """A `SegmentStore` of one attempt of one batch. Files of earlier batches are deleted by the collection, not here."""

    def __init__(self, folder: StateFolder, attempt: str) -> None:
        self.folder, self.attempt = folder, attempt
        self._own: set[str] = set()
        self.fetched_bytes = 0
        """Of files that this host did not have."""

    def read(self, info: SegmentInfo) -> Segment:
        segment = CACHE.get(info.id)
        if segment is None:
            segment = Segment(info.id, self.table(info))
            self._cache(segment)
        return segment

    def _cache(self, segment: Segment) -> None:
        CACHE.put(segment)
        _cached.setdefault(self.folder.uri, set()).add(segment.id)

    def write(self, segment: Segment) -> SegmentInfo:
        blob = _ipc(segment.table)
        name = f"{self.attempt}-{segment.id}.arrow"
        file = self.folder.open_writer(SEGMENTS, name)
        file.write(blob)
        file.close()
        if not self.folder.is_here:
            HOST_CACHE.write(name, blob)
        self._cache(segment)
        self._own.add(name)
        return replace(info_of(segment), file=name, file_bytes=blob.size, checksum=zlib.crc32(blob))

    def remove(self, info: SegmentInfo) -> None:
        CACHE.drop(info.id)
        if info.file in self._own:
            self._delete(info.file)

    def keep(self, state: Manifest) -> None:
        """Delete what a turn has written and its state, which this is, does not name."""
        for name in self._own - {info.file for infos in state.segments.values() for info in infos}:
            self._delete(name)

    def _delete(self, name: str) -> None:
        self._own.remove(name)
        self.folder.delete(SEGMENTS, name)

    def table(self, info: SegmentInfo) -> pa.Table:
        """A segment's rows, from its file."""
        near = None if self.folder.is_here else HOST_CACHE.read(info.file, info.file_bytes, info.checksum)
        if near is not None:
            return from_bytes(near).combine_chunks()
        blob = self.folder.read_segment(info)
        if not self.folder.is_here:
            self.fetched_bytes += blob.size
            HOST_CACHE.write(info.file, blob)
        return from_bytes(blob).combine_chunks()


class Parcel(NamedTuple):
    """Where one mail lies: a range of a file of the attempt's."""

    to: int
    kind: str
    file: str
    begin: int
    bytes: int
    rows: int
    round: int
    """The round in which it is read."""
    checksum: int = 0
    """See `word_sum`."""


class PostOffice:
    """Mail of one task in one file, which grows as it is posted, and is complete when it is closed; mail of up to `holds` bytes is held instead."""

    def __init__(self, folder: StateFolder, attempt: str, holds: int = 0) -> None:
        self.folder, self.holds = folder, holds
        self._held: list[pa.Buffer] = []
        self.name = f"{attempt}-{uuid.uuid4().hex}.arrow"
        self.parcels: list[Parcel] = []
        self._file: Writer | None = None
        self._end = 0
        self._last: tuple[pa.Table, int, int, int] | None = None
        """The table that was written last, where it lies, and its checksum."""

    def post(self, message: Message, round: int) -> None:
        """Post for a round; a table that goes to several units in a row is written once."""
        if self._last is None or self._last[0] is not message.table:
            blob = _ipc(message.table)
            self._last = message.table, self._end, blob.size, word_sum(blob)
            self._write(blob)
            self._end += blob.size
        table, begin, size, checksum = self._last
        self.parcels.append(Parcel(message.to, message.kind, self.name, begin, size, table.num_rows, round, checksum))

    def _write(self, blob: pa.Buffer) -> None:
        if self._file is None and self._end + blob.size <= self.holds:
            self._held.append(blob)
            return
        if self._file is None:
            self._file = self.folder.open_writer(MAIL, self.name)
            for earlier in self._held:
                self._file.write(earlier)
            self._held.clear()
            self.holds = 0
        self._file.write(blob)

    @property
    def held(self) -> bytes | None:
        """What a file of that name would have; None if there is one, or nothing is held."""
        return b"".join(memoryview(blob) for blob in self._held) if self.holds else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._last = None


def post_all(folder: StateFolder, attempt: str, messages: Iterable[Message]) -> list[Parcel]:
    """Mail from the driver, for the first round if messages do not say for which."""
    post = PostOffice(folder, attempt)
    for message in messages:
        post.post(message, message.round or 0)
    post.close()
    return post.parcels


def open_held(parcel: Parcel, mail: bytes | None) -> Message:
    """The message of a parcel, from mail that is here."""
    assert mail is not None
    table = from_bytes(pa.py_buffer(mail).slice(parcel.begin, parcel.bytes))
    return Message(parcel.to, parcel.kind, table, parcel.round)


def open_parcels(folder: StateFolder, parcels: Iterable[Parcel]) -> Iterable[tuple[Parcel, pa.Table]]:
    """The tables of parcels; a file is opened once, or asked once for all its parts."""
    by_file: dict[str, list[Parcel]] = {}
    for parcel in parcels:
        by_file.setdefault(parcel.file, []).append(parcel)
    for name, parts in sorted(by_file.items()):
        path = folder.path(MAIL, name)
        try:
            found = (
                _map_parts(path, parts) if folder.is_local else folder.read_ranges(MAIL, name, [p[3:5] for p in parts])
            )
        except FileNotFoundError:
            raise CheckpointError(
                f"mail file {path} is missing: the checkpoint must be in a folder that all of Spark's workers share, and nobody else may change it"
            ) from None
        yield from ((p, from_bytes(_check_blob(blob, p, path))) for p, blob in zip(parts, found, strict=True))


SAMPLED, MOST_SAMPLED = 3, 2**20
"""So many rows are shown of a parcel, if that has no more bytes than so many."""


def sample_rows(folder: StateFolder, parcels: Iterable[Parcel]) -> list[dict[str, Any]]:
    """A few rows of the smallest parcel, as JSON has them: instants in microseconds."""
    smallest = min((p for p in parcels if p.rows and p.bytes <= MOST_SAMPLED), key=lambda p: p.bytes, default=None)
    if smallest is None:
        return []
    [(_, table)] = open_parcels(folder, [smallest])
    some = table.slice(0, SAMPLED)
    instants = [n for n, field in enumerate(some.schema) if pa.types.is_timestamp(field.type)]
    for n in instants:
        some = some.set_column(n, some.schema.names[n], some.column(n).cast(pa.int64()))
    return list(some.to_pylist())


def _map_parts(path: str, parts: Iterable[Parcel]) -> list[pa.Buffer]:
    whole = map_file(path)
    return [whole.slice(min(p.begin, whole.size), p.bytes) for p in parts]


def _check_blob(blob: pa.Buffer, parcel: Parcel, path: str) -> pa.Buffer:
    if blob.size != parcel.bytes or word_sum(blob) != parcel.checksum:
        raise CheckpointError(
            f"mail file {path} is damaged: a table's length or checksum is not what its sender says; nobody else may change the checkpoint's files"
        )
    return blob


def word_sum(blob: pa.Buffer) -> int:
    """The sum of a blob's 64-bit words: mail is read seconds after it was written, and this costs a fifth of a CRC.

    >>> word_sum(pa.py_buffer(b"12345678" + b"\\x01")) - word_sum(pa.py_buffer(b"12345678"))
    1
    """
    whole = blob.size & ~7
    words = np.frombuffer(blob, np.uint64, whole // 8)
    rest = int.from_bytes(memoryview(blob)[whole:], "little")
    return (int(words.sum(dtype=np.uint64)) + rest) & (2**64 - 1)


def _ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


_FILE = "file"
INLINE_BYTES = 256 * 2**10
"""Longer orders go through a file."""


@dataclass
class Orders(Document):
    """What one job of one attempt has to do."""

    attempt: str
    job: int
    """Counts the attempt's jobs, so that reports do not mix."""
    round: int = 0
    direct: bool = True
    """Whether results leave as rows; otherwise they are posted to the end of the batch."""
    states: dict[int, str] = field(default_factory=dict)
    """The units' manifests as JSON."""
    shares: list[list[Parcel]] = field(default_factory=list)
    """Parcels by task."""
    seen: dict[str, int] = field(default_factory=dict)
    decisions: dict[str, Any] = field(default_factory=dict)
    """What the batch has decided, by name, see `dataflow.contract.Flows`."""
    holds: int = 0
    """Up to so many bytes of mail a source task puts into its report."""
    reads: bool = True
    """Whether source tasks that are given splits of files read them; else they only say which these are."""
    watches_keys: bool = False
    weighs: bool = False
    """Whether source tasks say how wide tuples are."""
    writes: bool = True
    """Whether tasks that write results as files do so: not if the sink has the batch."""
    was: list[str] = field(default_factory=list)
    """The aliases whose payloads followed later in the batch before, where stored tuples are to be turned."""
    batch: int = 0
    maxima: dict[str, int] = field(default_factory=dict)
    """Highest event times before the batch: source tasks tell what is late, and a unit that runs for the first time has no manifest to say so."""

    def report_name(self, partition: int) -> str:
        return f"{self.attempt}.{self.job}.{partition}"

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        raw["states"] = {int(unit): state for unit, state in raw["states"].items()}
        raw["shares"] = [[Parcel(*p) for p in share] for share in raw["shares"]]
        return raw

    def text(self, folder: StateFolder) -> str:
        """The orders as a short text."""
        said = self.to_json()
        if len(said) <= INLINE_BYTES:
            return said
        name = f"{self.attempt}.{self.job}.orders"
        folder.save(MAIL, name, self, durably=False)
        return json.dumps({_FILE: name})

    @classmethod
    def read(cls, folder: StateFolder, text: str | None = None) -> Orders:
        """The orders of such a text; without one, of the job that this task belongs to."""
        text = orders_of_job() if text is None else text
        if text.startswith(f'{{"{_FILE}"'):
            return folder.load(MAIL, json.loads(text)[_FILE], cls)
        return cls.parse(text, "the orders of this job")


def this_task() -> tuple[int, int]:
    """This task's partition, and its attempt, a number that no other task of the application has; zeros where the driver does what tasks do."""
    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())


@dataclass
class TaskReport(Document):
    """What a task of a job has done; the driver reads it when the job is over."""

    units: list[UnitReport] = field(default_factory=list)
    mail: list[Parcel] = field(default_factory=list)
    adopted: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    """(unit, alias, segment) of segments that units get without a turn."""
    heavy: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)
    """(side, rows, frequent keys) of rows that entered."""
    entered: dict[str, list[int]] = field(default_factory=dict)
    """By alias: tuples, their bytes without payload, bytes of payload."""
    splits: list[tuple[int, str]] = field(default_factory=list)
    """(alias, file) of what a task was to read itself."""
    unread: str = ""
    """Why it has not read these; see `runtime.rounds.splits`."""
    rows: dict[int, int] = field(default_factory=dict)
    """By alias the rows that it has read."""
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    """What these brought, as `dataflow.clock.Seen` has it."""

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        raw["rows"] = {int(position): rows for position, rows in raw["rows"].items()}
        raw["units"] = [UnitReport(*u) for u in raw["units"]]
        raw["mail"] = [Parcel(*p) for p in raw["mail"]]
        return raw


class UnitReport(NamedTuple):
    """What a unit's turn has left."""

    unit: int
    state: str
    """Its manifest as JSON."""
    counts: Mapping[str, Any]
    """See `dataflow.report.Report`."""
