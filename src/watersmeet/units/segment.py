"""Segments: immutable runs of one alias' tuples, each with its own indexes, built once.

    alias b   [ segment 17 ][ segment 18 ][ 19 ][20]        older -> newer; expiry drops whole segments

The bytes of a segment live wherever the runtime keeps state. What can be derived from them (codes, indexes) lives in a
cache of the process, keyed by segment id, and is lost without harm.

Invariant: a segment's id never names other contents: ids are unique per attempt.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3, the chained in-memory index.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels import hash_window, nested_loop, sorted_window
from watersmeet.kernels.hashing import order_floats
from watersmeet.plan.encoding import Kind
from watersmeet.plan.model import TIME, Plan
from watersmeet.routing.hypercube import dimension_code
from watersmeet.units.blocks import enlarge, is_fixed, row_widths
from watersmeet.units.codes import codes, floats, integers
from watersmeet.units.evaluator import in_utc, mask

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


@dataclass
class Segment:
    """One alias' tuples as a table of one chunk, with what is derived from them."""

    id: str
    table: pa.Table
    _codes: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    _indexes: dict[tuple[int, ...], hash_window.HashIndex | nested_loop.TimeIndex] = field(default_factory=dict)
    _sorted: dict[tuple[str, str], sorted_window.SortedIndex] = field(default_factory=dict)
    _steps: dict[tuple[str, str, str, str], sorted_window.Steps | None] = field(default_factory=dict)
    _by_hash: dict[str, hash_window.HashIndex] = field(default_factory=dict)
    _coded: dict[tuple[str, str, ZonedCondition | None], Coded] = field(default_factory=dict)
    _passed: dict[ZonedCondition, np.ndarray] = field(default_factory=dict)

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

    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a wire column; kind 'double' gives doubles, '-float' codes of their negatives, 'width' bytes."""
        if (name, kind) not in self._codes:
            column = self.column(name)
            if kind == "width":
                self._codes[name, kind] = np.zeros(self.rows, np.int64) + row_widths(column)
            elif kind == "-float":
                self._codes[name, kind] = order_floats(-floats(column))
            else:
                self._codes[name, kind] = floats(column) if kind == "double" else codes(column, kind)  # type: ignore[arg-type]
        return self._codes[name, kind]

    def widest(self, name: str) -> int:
        """The bytes of the widest value of a wire column."""
        kind = self.table.schema.field(name).type
        if is_fixed(kind):
            return int(row_widths(pa.nulls(0, kind)))
        return int(self.codes(name, "width").max(initial=0))

    def index(
        self, plan: Plan, keys: Mapping[int, str], classes: tuple[int, ...]
    ) -> hash_window.HashIndex | nested_loop.TimeIndex:
        """The index by these classes, whose columns `keys` names, and time; by time alone if there are none."""
        if classes not in self._indexes:
            self._indexes[classes] = (
                hash_window.build(self.key(plan, keys, classes), self.ts) if classes else nested_loop.build(self.ts)
            )
        return self._indexes[classes]

    def sorted_index(self, name: str, kind: str) -> sorted_window.SortedIndex:
        """The index by the codes of a wire column, then by time."""
        if (name, kind) not in self._sorted:
            self._sorted[name, kind] = sorted_window.build(self.codes(name, kind), self.ts)
        return self._sorted[name, kind]

    def steps(self, name: str, kind: str, second: str, second_kind: str) -> sorted_window.Steps | None:
        """A second wire column along the sorted index of the first; None if it does not rise with it."""
        key = (name, kind, second, second_kind)
        if key not in self._steps:
            self._steps[key] = sorted_window.steps(self.sorted_index(name, kind), self.codes(second, second_kind))
        return self._steps[key]

    def index_by(self, name: str) -> hash_window.HashIndex:
        """The index by a column of hashes, and time."""
        if name not in self._by_hash:
            self._by_hash[name] = hash_window.build(self.codes(name, "integer"), self.ts)
        return self._by_hash[name]

    def coded(self, name: str, kind: Kind, gate: ZonedCondition | None = None) -> Coded:
        """A wire column by codes, indexed by code and time; NULLs, and rows that do not pass a gate, count as invalid."""
        if (name, kind, gate) not in self._coded:
            column = self.column(name)
            if column.null_count == 0 and gate is None:
                found = Coded(codes(column, kind), None, None)
                found.index = hash_window.build(found.codes, self.ts)
            else:
                if gate is not None:
                    column = pc.if_else(pa.array(self._passing(gate)), column, pa.scalar(None, column.type))
                present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.uint8)
                rows = np.flatnonzero(present)
                found = Coded(np.zeros(self.rows, np.int64), present, None)
                if len(rows):
                    found.codes[rows] = codes(column.drop_null(), kind)
                    index = hash_window.build(found.codes[rows], self.ts[rows])
                    found.index = index._replace(rows=rows[index.rows])
            self._coded[name, kind, gate] = found
        return self._coded[name, kind, gate]

    def _passing(self, gate: ZonedCondition) -> np.ndarray:
        """Where a condition over the table's columns holds."""
        if gate not in self._passed:
            self._passed[gate] = mask(self.table, gate[0], *gate)
        return self._passed[gate]

    def key(self, plan: Plan, keys: Mapping[int, str], classes: tuple[int, ...]) -> np.ndarray:
        """One code for the keys of several classes."""
        return dimension_code(classes, {c: self.codes(keys[c], plan.classes[c].kind) for c in classes})

    @property
    def nbytes(self) -> int:
        indexes = (*self._indexes.values(), *self._sorted.values(), *self._by_hash.values())
        derived = (*self._codes.values(), *indexes, *self._steps.values(), *self._coded.values())
        return int(self.table.nbytes) + sum(d.nbytes for d in derived if d is not None)

    def where(self, keep: np.ndarray) -> Segment:
        """A new segment with the rows of a mask."""
        return Segment.of(self.table.filter(pa.array(keep)))


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_bytes(blob: bytes | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream; instants are UTC, whatever the session was that wrote it."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return enlarge(in_utc(reader.read_all()))


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
