"""Segments: immutable runs of one alias' tuples, each with its own indexes, built once.

    alias b   [ segment 17 ][ segment 18 ][ 19 ][20]        older -> newer; how a batch changes them: `storage.compaction`

Invariant: a segment's id never names other contents: ids are unique per attempt. What is derived of a segment is a function of its table.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3: the chained in-memory index.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import (
    code_together,
    codes,
    enlarge,
    floats,
    integers,
    row_widths,
    widest_value,
)
from watersmeet.expressions.evaluator import mask
from watersmeet.kernels import hash_window, key_range, nested_loop, sorted_window
from watersmeet.kernels.hashing import order_floats
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.types import Kind

P = ParamSpec("P")
V = TypeVar("V")
KeyColumns = tuple[tuple[str, Kind], ...]
"""(wire column, kind of its codes) of keys that are taken together."""
ZonedCondition = tuple[str, str]
"""A condition over a table's columns, and the time zone in which it is evaluated."""
CodedTest = tuple[str, Kind, tuple[tuple[int, int], ...]]
"""A column, how it is coded, and spans of codes of which one has the value's: a NULL's is in none."""


@dataclass(frozen=True)
class CodedCondition:
    """Ways to pass, each of tests that all hold."""

    ways: tuple[tuple[CodedTest, ...], ...]


RowGate = ZonedCondition | CodedCondition


def _derive(make: Callable[Concatenate[Segment, P], V]) -> Callable[Concatenate[Segment, P], V]:
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
    _weighed: tuple[int, int] = field(default=(0, 0), init=False, repr=False, compare=False)
    """How many of these have been weighed, and their bytes."""

    @classmethod
    def of(cls, table: pa.Table) -> Segment:
        """A new segment with an id of its own."""
        return cls(name_anew(), enlarge(table).combine_chunks())

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

    @_derive
    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a wire column; kind 'double' gives doubles, '-float' codes of their negatives, 'width' bytes."""
        column = self.column(name)
        if kind == "width":
            return np.zeros(self.rows, np.int64) + row_widths(column)
        if kind == "-float":
            return order_floats(-floats(column))
        return floats(column) if kind == "double" else codes(column, kind)  # type: ignore[arg-type]

    @_derive
    def widest(self, name: str) -> np.int64:
        """The bytes of the widest value of a wire column."""
        return np.int64(widest_value(self.column(name)))

    @_derive
    def index(self, columns: KeyColumns) -> hash_window.HashIndex:
        """The index by keys, and time."""
        return hash_window.build(self.key(columns), self.ts)

    @_derive
    def time_index(self) -> nested_loop.TimeIndex:
        return nested_loop.build(self.ts)

    @_derive
    def sorted_index(self, name: str, kind: str) -> sorted_window.SortedIndex:
        """The index by the codes of a wire column, then by time."""
        return sorted_window.build(self.codes(name, kind), self.ts)

    @_derive
    def steps(self, name: str, kind: str, second: str, second_kind: str) -> sorted_window.Steps | None:
        """A second wire column along the sorted index of the first; None if it does not rise with it."""
        return sorted_window.steps(self.sorted_index(name, kind), self.codes(second, second_kind))

    @_derive
    def key_range_index(self, columns: KeyColumns, name: str, kind: str) -> key_range.KeyRangeIndex:
        """The index by keys, then by the codes of a wire column, then by time."""
        return key_range.build(self.key(columns), self.codes(name, kind), self.ts)

    @_derive
    def key_range_steps(
        self, columns: KeyColumns, name: str, kind: str, second: str, second_kind: str
    ) -> sorted_window.Steps | None:
        """A second wire column along that index; None if it does not rise with the first inside every key."""
        return key_range.steps(self.key_range_index(columns, name, kind), self.codes(second, second_kind))

    def index_by(self, name: str) -> hash_window.HashIndex:
        """The index by a column of hashes, and time."""
        return self.index(((name, "integer"),))

    @_derive
    def code_column(self, name: str, kind: Kind, gate: RowGate | None, is_probed: bool = True) -> hash_window.Coded:
        """A wire column by codes, indexed by code and time if it is probed; NULLs, and rows that do not pass a gate, count as invalid."""
        column = self.column(name)
        if column.null_count == 0 and gate is None:
            found = codes(column, kind)
            return hash_window.Coded(found, None, hash_window.build(found, self.ts) if is_probed else None)
        if gate is not None:
            column = pc.if_else(pa.array(self._test_gate(gate)), column, pa.scalar(None, column.type))
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.uint8)
        rows = np.flatnonzero(present)
        coded = hash_window.Coded(np.zeros(self.rows, np.int64), present, None)
        if len(rows):
            coded.codes[rows] = codes(column.drop_null(), kind)
        if len(rows) and is_probed:
            index = hash_window.build(coded.codes[rows], self.ts[rows])
            coded.index = index._replace(rows=rows[index.rows])
        return coded

    @_derive
    def _test_gate(self, gate: RowGate) -> np.ndarray:
        """Where a condition over the table's columns holds."""
        if not isinstance(gate, CodedCondition):
            return mask(self.table, gate[0], *gate)
        return np.logical_or.reduce([np.logical_and.reduce([self._test(*test) for test in way]) for way in gate.ways])

    def _test(self, name: str, kind: Kind, spans: Sequence[tuple[int, int]]) -> np.ndarray:
        """Where the codes of a column lie in one of some spans."""
        coded = self.code_column(name, kind, None, False)
        found = np.logical_or.reduce([(coded.codes >= low) & (coded.codes <= high) for low, high in spans])
        return found if coded.valid is None else found & (coded.valid != 0)

    @_derive
    def find_nulls(self, *names: str) -> np.ndarray | None:
        """The rows in which one of some columns is NULL; None: there is none."""
        null = [pc.is_null(self.column(name)) for name in names if self.column(name).null_count]
        return (
            np.logical_or.reduce([np.asarray(c.to_numpy(zero_copy_only=False), bool) for c in null]) if null else None
        )

    def key(self, columns: KeyColumns) -> np.ndarray:
        """One code for the keys of several classes."""
        return code_together([self.codes(name, kind) for name, kind in columns])

    @cached_property
    def table_bytes(self) -> int:
        return int(self.table.nbytes)

    @property
    def nbytes(self) -> int:
        """With all that is derived; what was weighed before does not change."""
        if self._weighed[0] != len(self.derived):
            self._weighed = len(self.derived), sum(d.nbytes for d in self.derived.values() if d is not None)
        return self.table_bytes + self._weighed[1]

    def with_column(self, name: str, values: pa.Array) -> Segment:
        """A new segment with a column more, or with another one of this name; what is derived from the others holds for it."""
        at = self.table.schema.get_field_index(name)
        table = self.table.append_column(name, values) if at < 0 else self.table.set_column(at, name, values)
        return Segment(name_anew(), table, self.derived)

    def where(self, keep: np.ndarray) -> Segment:
        """A new segment with the rows of a mask."""
        return Segment.of(self.table.filter(pa.array(keep)))


def name_anew() -> str:
    """An id that nothing else has."""
    return os.urandom(16).hex()


def weigh_indexes(segments: Sequence[Segment]) -> float:
    """How many times their own bytes segments take with their indexes."""
    own = sum(s.table_bytes for s in segments)
    return sum(s.nbytes for s in segments) / own if own else 1.0


def key_columns(plan: Plan, keys: Mapping[int, str], classes: Iterable[int]) -> KeyColumns:
    """The columns of some classes, of which `keys` has the names."""
    return tuple((keys[c], plan.classes[c].kind) for c in classes)


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
    return SegmentInfo(segment.id, segment.rows, segment.table_bytes, segment.min_ts, segment.max_ts)


def damage(blob: bytes | pa.Buffer, info: SegmentInfo) -> str | None:
    """What is wrong with the bytes of a segment; None: they are what was written."""
    if len(blob) != info.file_bytes:
        return f"is damaged: it has {len(blob)} bytes, not {info.file_bytes}"
    return None if zlib.crc32(blob) == info.checksum else "is damaged: its checksum is not what the manifest says"
