"""What a step can see, as the kernels take it: segments of all streams in one row of numbers, arrays by their addresses.

    stream    r              s         t
    segment   0  1  2        3  4      5          the last of a stream is its new one, perhaps empty
    tuple     segment << 32 | row

Invariant: the arrays behind all addresses live as long as this object does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import large_type, table_widths
from watersmeet.columns.spark_types import arrow_type
from watersmeet.expressions.evaluator import quote
from watersmeet.kernels.hash_window import address
from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.kernels.registered.probe_trie import INDEX_FIELDS, Segments
from watersmeet.plan.types import Kind
from watersmeet.registry.plan import BATCH, RegistryPlan, wire_name
from watersmeet.registry.shared.probe_trie import CodedColumn
from watersmeet.storage.segment import Segment, ZonedCondition


class Visible:
    """Stored and new tuples of the streams of one block."""

    def __init__(
        self,
        plan: RegistryPlan,
        streams: Sequence[str],
        columns: Mapping[CodedColumn, int],
        old: Mapping[str, Sequence[Segment]],
        new: Mapping[str, Segment | None],
        probed: Collection[int] = (),
    ) -> None:
        """probed: the columns that are looked up by value; the others are only read."""
        self.plan, self.streams = plan, list(streams)
        self.segments: list[Segment | None] = []
        self.stream_of: list[int] = []
        first, is_new = [0], list[bool]()
        for number, stream in enumerate(self.streams):
            fresh = new.get(stream)
            mine = [*old.get(stream, ()), fresh]
            self.segments += mine
            self.stream_of += [number] * len(mine)
            is_new += [*[False] * (len(mine) - 1), True]
            first.append(len(self.segments))
        self._kept: list[object] = []
        count, width = len(self.segments), max(columns.values(), default=0) + 1
        self.codes, self.valid = np.zeros((width, count), np.int64), np.zeros((width, count), np.int64)
        self.index = np.zeros((width, count, INDEX_FIELDS), np.int64)
        for (stream, column, kind, gate), number in columns.items():
            where, spec = self.streams.index(stream), plan.streams[stream]
            asked = (
                None if gate is None else (gate[0].format(*(quote(wire_name(spec, c)) for c in gate[1])), plan.timezone)
            )
            for at in range(first[where], first[where + 1]):
                self._lay(number, at, wire_name(spec, column), kind, asked, number in probed)
        ts = [0 if s is None else self._address(s.ts) for s in self.segments]
        self.first = np.array(first, np.int64)
        self.ts = np.array(ts, np.int64)
        self.batch = np.array(
            [0 if s is None else self._address(s.codes(BATCH, "integer")) for s in self.segments], np.int64
        )
        self.kernel = Segments(
            self.first,
            self.ts,
            np.array([LAST if s is None else s.min_ts for s in self.segments], np.int64),
            np.array([FIRST if s is None else s.max_ts for s in self.segments], np.int64),
            np.array([0 if s is None or not s.is_ordered else s.rows for s in self.segments], np.int64),
            np.array(is_new, np.uint8),
            self.codes,
            self.valid,
            self.index,
        )

    def new_rows(self, stream: int) -> np.ndarray:
        """The rows of a stream's new segment, by time."""
        last = self.segments[self.first[stream + 1] - 1]
        return np.empty(0, np.int64) if last is None else np.argsort(last.ts, kind="stable")

    def _lay(self, number: int, at: int, wire: str, kind: Kind, gate: ZonedCondition | None, is_probed: bool) -> None:
        segment = self.segments[at]
        if segment is None:
            return
        coded = segment.code_column(wire, kind, gate, is_probed)
        self._kept.append(coded)
        self.codes[number, at], self.valid[number, at], self.index[number, at] = coded.addresses

    def _address(self, array: np.ndarray) -> int:
        self._kept.append(array)
        return address(array)

    def take(self, tuples: np.ndarray) -> Taken:
        """The tuples at hand, each once; they are given in ascending order."""
        segment_of = tuples >> 32
        bounds = np.searchsorted(segment_of, np.arange(len(self.segments) + 1))
        tables: dict[str, pa.Table] = {}
        starts: dict[str, int] = {}
        for number, stream in enumerate(self.streams):
            begin, end = self.first[number], self.first[number + 1]
            parts = []
            for at in range(begin, end):
                segment = self.segments[at]
                if bounds[at + 1] > bounds[at] and segment is not None:
                    rows = tuples[bounds[at] : bounds[at + 1]] & 0xFFFFFFFF
                    parts.append(segment.table.take(pa.array(rows)))
            if parts:
                starts[stream] = int(bounds[begin])
                tables[stream] = pa.concat_tables([p.select(parts[0].column_names) for p in parts]).combine_chunks()
        return Taken(self.plan, tables, starts)


class Taken:
    """Some tuples by stream; a tuple is named by its place among all of them."""

    def __init__(self, plan: RegistryPlan, tables: Mapping[str, pa.Table], starts: Mapping[str, int]) -> None:
        self.plan, self.tables, self.starts = plan, tables, starts

    def widths(self) -> np.ndarray:
        """The bytes of every tuple at hand, by its place; a zero at the end is for no tuple."""
        out = np.zeros(sum(t.num_rows for t in self.tables.values()) + 1, np.int64)
        for stream, table in self.tables.items():
            out[self.starts[stream] : self.starts[stream] + table.num_rows] = table_widths(table)
        return out

    def column(self, stream: str, name: str) -> pa.Array:
        """A column of all of a stream's tuples at hand."""
        column = self.tables[stream].column(wire_name(self.plan.streams[stream], name))
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def at(self, stream: str, name: str, places: np.ndarray) -> pa.Array:
        """A column at places; NULL where there is no tuple."""
        if stream not in self.tables:
            kind = arrow_type(self.plan.streams[stream].schema[name])
            return pa.nulls(len(places), pa.null() if kind is None else large_type(kind))
        none = places < 0
        return self.column(stream, name).take(pa.array(places - self.starts[stream], mask=none if none.any() else None))
