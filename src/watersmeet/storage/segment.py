"""Segments: immutable runs of one alias' tuples, each with its own indexes, built once; and where they live between batches.

    alias b   [ segment 17 ][ segment 18 ][ 19 ][20]        older -> newer; expiry drops whole segments

The bytes of a segment live wherever the runtime keeps state. What can be derived from them (codes, indexes) lives in a
cache of the process, keyed by segment id, and is lost without harm.

Invariant: a segment's id never names other contents: ids are unique per attempt. A store's `read` after `write` gives the same rows until
`remove`, whatever the process cache holds. Bytes from elsewhere are compared with the length and checksum that `write` has returned: what
differs is an error, and never read.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3, the chained in-memory index.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import codes, enlarge, floats, integers, is_fixed, mark_utc, row_widths
from watersmeet.errors import CheckpointError
from watersmeet.expressions.evaluator import mask
from watersmeet.kernels import hash_window, nested_loop, sorted_window
from watersmeet.kernels.hashing import code_together, order_floats
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.types import Kind
from watersmeet.storage.host_cache import HOST_CACHE

P = ParamSpec("P")
V = TypeVar("V")
KeyColumns = tuple[tuple[str, Kind], ...]
"""(wire column, kind of its codes) of keys that are taken together."""
ZonedCondition = tuple[str, str]
"""A condition over a table's columns, and the time zone in which it is evaluated."""

CACHE_BYTES = 256 * 2**20


@dataclass
class Coded:
    """A column that may hold NULLs as codes: where it is valid (None: everywhere), and the index of the valid rows."""

    codes: np.ndarray
    valid: np.ndarray | None
    index: hash_window.HashIndex | None

    @cached_property
    def hints(self) -> np.ndarray | None:
        """By group of the index a position to begin a search at; kernels move it."""
        return None if self.index is None else self.index.group_start.copy()

    @property
    def nbytes(self) -> int:
        index = 0 if self.index is None else self.index.nbytes
        return self.codes.nbytes + index + (0 if self.valid is None else self.valid.nbytes)


def _derived(make: Callable[Concatenate[Segment, P], V]) -> Callable[Concatenate[Segment, P], V]:
    """A method of a segment whose value is kept with it, by the arguments, which are positional."""

    @wraps(make)
    def look_up(segment: Segment, /, *args: P.args, **_: P.kwargs) -> V:
        key = (make, *args)
        if key not in segment.derived:
            segment.derived[key] = make(segment, *args)  # type: ignore[call-arg]
        found: V = segment.derived[key]
        return found

    return look_up


@dataclass
class Segment:
    """One alias' tuples as a table of one chunk, with what is derived from them."""

    id: str
    table: pa.Table
    derived: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Codes and indexes, by what they are of."""

    @classmethod
    def of(cls, table: pa.Table) -> Segment:
        """A new segment with an id of its own."""
        return cls(uuid.uuid4().hex, enlarge(table).combine_chunks())

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def ts(self) -> np.ndarray:
        return integers(self.column(TIME))

    @cached_property
    def min_ts(self) -> int:
        return int(self.ts.min())

    @cached_property
    def max_ts(self) -> int:
        return int(self.ts.max())

    @cached_property
    def times(self) -> np.ndarray:
        """The event times in order."""
        return self.ts if self.is_ordered else np.sort(self.ts)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether the rows lie in the order of their event times."""
        return bool(np.all(self.ts[1:] >= self.ts[:-1]))

    def column(self, name: str) -> pa.Array:
        chunked = self.table.column(name)
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()

    @_derived
    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a wire column; kind 'double' gives doubles, '-float' codes of their negatives, 'width' bytes."""
        column = self.column(name)
        if kind == "width":
            return np.zeros(self.rows, np.int64) + row_widths(column)
        if kind == "-float":
            return order_floats(-floats(column))
        return floats(column) if kind == "double" else codes(column, kind)  # type: ignore[arg-type]

    def widest(self, name: str) -> int:
        """The bytes of the widest value of a wire column."""
        kind = self.table.schema.field(name).type
        if is_fixed(kind):
            return int(row_widths(pa.nulls(0, kind)))
        return int(self.codes(name, "width").max(initial=0))

    @_derived
    def index(self, columns: KeyColumns) -> hash_window.HashIndex:
        """The index by keys, and time."""
        return hash_window.build(self.key(columns), self.ts)

    @_derived
    def time_index(self) -> nested_loop.TimeIndex:
        return nested_loop.build(self.ts)

    @_derived
    def sorted_index(self, name: str, kind: str) -> sorted_window.SortedIndex:
        """The index by the codes of a wire column, then by time."""
        return sorted_window.build(self.codes(name, kind), self.ts)

    @_derived
    def steps(self, name: str, kind: str, second: str, second_kind: str) -> sorted_window.Steps | None:
        """A second wire column along the sorted index of the first; None if it does not rise with it."""
        return sorted_window.steps(self.sorted_index(name, kind), self.codes(second, second_kind))

    def index_by(self, name: str) -> hash_window.HashIndex:
        """The index by a column of hashes, and time."""
        return self.index(((name, "integer"),))

    @_derived
    def code_column(self, name: str, kind: Kind, gate: ZonedCondition | None) -> Coded:
        """A wire column by codes, indexed by code and time; NULLs, and rows that do not pass a gate, count as invalid."""
        column = self.column(name)
        if column.null_count == 0 and gate is None:
            found = codes(column, kind)
            return Coded(found, None, hash_window.build(found, self.ts))
        if gate is not None:
            column = pc.if_else(pa.array(self._test_gate(gate)), column, pa.scalar(None, column.type))
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.uint8)
        rows = np.flatnonzero(present)
        coded = Coded(np.zeros(self.rows, np.int64), present, None)
        if len(rows):
            coded.codes[rows] = codes(column.drop_null(), kind)
            index = hash_window.build(coded.codes[rows], self.ts[rows])
            coded.index = index._replace(rows=rows[index.rows])
        return coded

    @_derived
    def _test_gate(self, gate: ZonedCondition) -> np.ndarray:
        """Where a condition over the table's columns holds."""
        return mask(self.table, gate[0], *gate)

    def key(self, columns: KeyColumns) -> np.ndarray:
        """One code for the keys of several classes."""
        return code_together([self.codes(name, kind) for name, kind in columns])

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes) + sum(d.nbytes for d in self.derived.values() if d is not None)

    def where(self, keep: np.ndarray) -> Segment:
        """A new segment with the rows of a mask."""
        return Segment.of(self.table.filter(pa.array(keep)))


def key_columns(plan: Plan, keys: Mapping[int, str], classes: Iterable[int]) -> KeyColumns:
    """The columns of some classes, of which `keys` has the names."""
    return tuple((keys[c], plan.classes[c].kind) for c in classes)


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(blob: bytes | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream; instants are UTC, whatever the session was that wrote it."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return enlarge(mark_utc(reader.read_all()))


class SegmentCache:
    """Segments that this process has seen lately, up to a number of bytes."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, id: str) -> Segment | None:
        with self._lock:
            segment = self._segments.get(id)
            if segment is not None:
                self._segments.move_to_end(id)
            return segment

    def put(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.id] = segment
            total = sum(s.nbytes for s in self._segments.values())
            while total > self.limit and len(self._segments) > 1:
                _, oldest = self._segments.popitem(last=False)
                total -= oldest.nbytes

    def drop(self, id: str) -> None:
        with self._lock:
            self._segments.pop(id, None)


CACHE = SegmentCache()


@dataclass
class SegmentInfo:
    """A live segment, as the manifest knows it."""

    id: str
    rows: int
    bytes: int
    min_ts: int
    max_ts: int
    file: str = ""
    """The name of its file, where segments are files."""
    file_bytes: int = 0
    """The length of its file or blob."""
    checksum: int = 0
    """CRC-32 of these bytes."""


class SegmentStore(Protocol):
    """What a unit asks of its runtime."""

    def read(self, info: SegmentInfo) -> Segment: ...
    def write(self, segment: Segment) -> SegmentInfo: ...
    def remove(self, info: SegmentInfo) -> None: ...


def info_of(segment: Segment) -> SegmentInfo:
    """The manifest's entry of a segment."""
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
