"""Segments: immutable runs of one alias' tuples, each with its own indexes, built once; and how a batch changes them.

    alias b   [ segment 17 ][ segment 18 ][ 19 ][20]        older -> newer; expiry drops whole segments

    dead      whole segments go by their max ts; when dead rows inside the oldest live segments pass a tenth of the
              living, those segments are rewritten without them
    compact   four neighbours of one size class (powers of four) become one segment of the next, as long as its span
              stays within the archive period (a tenth of the alias' retention) and its size within 32 MB

Invariant: a segment's id never names other contents: ids are unique per attempt. Live rows are never lost; retained rows are at most 1.1 times the living; the
number of segments grows with the logarithm of the rows, up to the archive period.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.3: the chained in-memory index, the archive period, discarding whole sub-indexes.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from operator import is_
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import (
    block_bytes,
    code_together,
    codes,
    enlarge,
    floats,
    integers,
    row_widths,
    slice_by_bytes,
    widest_value,
)
from watersmeet.expressions.evaluator import mask
from watersmeet.kernels import hash_window, key_range, nested_loop, sorted_window
from watersmeet.kernels.hashing import order_floats
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.types import Kind
from watersmeet.query.window import UNBOUNDED

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


SEGMENT_BYTES = 32 * 2**20
MOST_SEGMENTS = 64
SLACK = 10
"""Dead rows may be a tenth of the living; an archive period is a tenth of the retention."""
FAN_IN = 4
Merge = Callable[[list[pa.Table]], Segment]


def compact(
    store: SegmentStore,
    infos: list[SegmentInfo],
    find_run: Callable[[list[SegmentInfo]], list[SegmentInfo]],
    merge: Merge,
) -> list[SegmentInfo]:
    """Segments in their order, where runs of them are merged to one as long as one is found."""
    while run := find_run(infos):
        whole = merge([store.read(info).table for info in run])
        for info in run:
            store.remove(info)
        at, merged = infos.index(run[0]), {info.id for info in run}
        left = [info for info in infos if info.id not in merged]
        infos = [*left[:at], store.write(whole), *left[at:]]
    return infos


def find_alike(infos: list[SegmentInfo]) -> list[SegmentInfo]:
    """FAN_IN segments or more of one size class, of the smallest that has so many, wherever they stand."""
    classes: dict[int, list[SegmentInfo]] = {}
    for info in infos:
        classes.setdefault(_size_class(info.rows), []).append(info)
    return next((same for _, same in sorted(classes.items()) if len(same) >= FAN_IN), [])


class Settler:
    """Applies one batch's changes to one alias' segments; `merge` makes one of several, by default with all their rows. Dead rows may be one of `slack` of the living."""

    def __init__(
        self, store: SegmentStore, cut_ts: int, retention_us: int, merge: Merge | None = None, slack: int = SLACK
    ) -> None:
        self.store, self.cut_ts, self.merge, self.slack = store, cut_ts, merge or concat, slack
        self.span_us = UNBOUNDED if retention_us >= UNBOUNDED else max(retention_us // SLACK, 1)

    def settle(self, infos: list[SegmentInfo], new: Segment | None) -> list[SegmentInfo]:
        """The live segments after the batch."""
        living = [i for i in infos if i.max_ts >= self.cut_ts]
        for dead in infos:
            if dead.max_ts < self.cut_ts:
                self.store.remove(dead)
        living = self._trim(living)
        if (new is None or not new.rows) and len(living) == len(infos) and all(map(is_, living, infos)):
            return list(infos)  # they have been compacted
        if new is not None and new.rows:
            alive = new if new.min_ts >= self.cut_ts else new.where(new.ts >= self.cut_ts)
            living += [self.store.write(piece) for piece in _pieces(alive)]
        return compact(self.store, sorted(living, key=lambda i: (i.max_ts, i.id)), self._find_run, self.merge)

    def _trim(self, infos: list[SegmentInfo]) -> list[SegmentInfo]:
        partly = [i for i in infos if i.min_ts < self.cut_ts]
        if not partly:
            return infos
        masks = {i.id: self.store.read(i).ts >= self.cut_ts for i in partly}
        dead = sum(int(np.count_nonzero(~m)) for m in masks.values())
        if dead * self.slack <= sum(i.rows for i in infos) - dead:
            return infos
        out = []
        for info in infos:
            if info.id in masks:
                segment = self.store.read(info).where(masks[info.id])
                self.store.remove(info)
                out.append(self.store.write(segment))
            else:
                out.append(info)
        return out

    def _find_run(self, infos: list[SegmentInfo]) -> list[SegmentInfo]:
        """The newest run of one size class that fits; with too many segments, the smallest neighbours that fit."""
        end = len(infos)
        while end >= FAN_IN:
            run = infos[end - FAN_IN : end]
            if len({_size_class(i.rows) for i in run}) == 1 and self._fits(run):
                return run
            end -= 1
        if len(infos) > MOST_SEGMENTS:
            neighbours = [infos[i : i + 2] for i in range(len(infos) - 1)]
            fitting = [pair for pair in neighbours if sum(i.bytes for i in pair) <= block_bytes(SEGMENT_BYTES)]
            return min(fitting, key=lambda pair: sum(i.rows for i in pair), default=[])
        return []

    def _fits(self, run: list[SegmentInfo]) -> bool:
        span = max(i.max_ts for i in run) - min(i.min_ts for i in run)
        return span <= self.span_us and sum(i.bytes for i in run) <= block_bytes(SEGMENT_BYTES)


def _size_class(rows: int) -> int:
    return int(math.log(max(rows, 1), FAN_IN))


def concat(tables: list[pa.Table]) -> Segment:
    """One segment of several tables."""
    return Segment.of(pa.concat_tables([t.select(tables[0].column_names) for t in tables]))


def _pieces(segment: Segment) -> list[Segment]:
    """A segment, cut where it is larger than a stored one may be."""
    if segment.rows == 0:
        return []
    if segment.table.nbytes <= block_bytes(SEGMENT_BYTES):
        return [segment]
    in_time = segment.table
    if not segment.is_ordered:
        in_time = in_time.take(pa.array(np.argsort(segment.ts, kind="stable")))
    return [Segment.of(block) for block in slice_by_bytes(in_time, SEGMENT_BYTES)]
