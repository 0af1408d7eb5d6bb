"""What a step can see, as the kernels take it: segments of all streams in one row of numbers, arrays by their addresses.

    stream    r              s         t
    segment   0  1  2        3  4      5          the last of a stream is its new one, perhaps empty
    tuple     segment << 32 | row

What a segment adds is found once and kept with it (`Laid`): a micro-batch of one tuple lays out the segment that is new, not those that are stored.

Invariant: the arrays behind all addresses live as long as this object does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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


class StreamColumns:
    """The coded columns of one stream as a block numbers them; it is equal to itself alone, so that segments can keep what they lay out for it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.asked: list[tuple[str, Kind, ZonedCondition | None, bool]] = []
        """What `Segment.code_column` takes."""


class Layout:
    """The coded columns of a block by stream; made once for all of its turns."""

    def __init__(
        self,
        plan: RegistryPlan,
        streams: Iterable[str],
        columns: Mapping[CodedColumn, int],
        probed: Collection[int] = (),
    ) -> None:
        """probed: the columns that are looked up by value; the others are only read."""
        self.width = max(columns.values(), default=0) + 1
        self.streams = {stream: StreamColumns() for stream in streams}
        for (stream, column, kind, gate), number in columns.items():
            mine, spec = self.streams[stream], plan.streams[stream]
            text = None if gate is None else gate[0].format(*(quote(wire_name(spec, c)) for c in gate[1]))
            mine.numbers.append(number)
            mine.asked.append(
                (wire_name(spec, column), kind, None if text is None else (text, plan.timezone), number in probed)
            )


@dataclass
class Laid:
    """What a segment adds: addresses by column, and of its times and batches."""

    codes: np.ndarray
    valid: np.ndarray
    index: np.ndarray
    place: tuple[int, int, int, int, int]
    """Addresses of times and batches; the first and the last time; the rows, if they lie in the order of time."""
    kept: list[object]
    nbytes: int = 0
    """The columns are counted by themselves."""


_NOTHING = (0, 0, LAST, FIRST, 0)


def _lay_out(segment: Segment, columns: StreamColumns) -> Laid:
    found: Laid | None = segment.derived.get((_lay_out, columns))
    if found is None:
        coded = [segment.code_column(*asked) for asked in columns.asked]
        batch = segment.codes(BATCH, "integer")
        place = (
            address(segment.ts), address(batch), segment.min_ts, segment.max_ts, segment.rows if segment.is_ordered else 0,
        )  # fmt: skip
        made = [c.addresses for c in coded]
        found = segment.derived[_lay_out, columns] = Laid(
            np.array([codes for codes, _, _ in made], np.int64),
            np.array([valid for _, valid, _ in made], np.int64),
            np.array([index for _, _, index in made], np.int64).reshape(-1, INDEX_FIELDS),
            place,
            [*coded, batch, segment.ts],
        )
    return found


class Visible:
    """Stored and new tuples of the streams of one block."""

    def __init__(
        self,
        plan: RegistryPlan,
        layout: Layout,
        old: Mapping[str, Sequence[Segment]],
        new: Mapping[str, Segment | None],
    ) -> None:
        self.plan, self.streams = plan, list(layout.streams)
        self.segments: list[Segment | None] = []
        self.stream_of: list[int] = []
        first, is_new = [0], list[bool]()
        for number, stream in enumerate(self.streams):
            mine = [*old.get(stream, ()), new.get(stream)]
            self.segments += mine
            self.stream_of += [number] * len(mine)
            is_new += [*[False] * (len(mine) - 1), True]
            first.append(len(self.segments))
        count, of = len(self.segments), list(layout.streams.values())
        self.codes, self.valid = np.zeros((layout.width, count), np.int64), np.zeros((layout.width, count), np.int64)
        self.index = np.zeros((layout.width, count, INDEX_FIELDS), np.int64)
        self._kept: list[Laid] = []
        places = [_NOTHING] * count
        for number, columns in enumerate(of):
            there = [at for at in range(first[number], first[number + 1]) if self.segments[at] is not None]
            laid = [_lay_out(segment, columns) for at in there if (segment := self.segments[at]) is not None]
            for at, one in zip(there, laid, strict=True):
                places[at] = one.place
            self._put(there, columns.numbers, laid)
        self.first = np.array(first, np.int64)
        ts, batch, lowest, highest, ordered = np.array(places, np.int64).reshape(-1, len(_NOTHING)).T.copy()
        self.ts, self.batch = ts, batch
        self.kernel = Segments(
            self.first, ts, lowest, highest, ordered, np.array(is_new, np.uint8), self.codes, self.valid, self.index
        )

    def _put(self, there: list[int], numbers: list[int], laid: list[Laid]) -> None:
        """The columns of a stream's segments to their places."""
        self._kept += laid
        if numbers and laid:
            rows, columns = np.array(numbers)[:, None], np.array(there)
            self.codes[rows, columns] = np.array([one.codes for one in laid]).T
            self.valid[rows, columns] = np.array([one.valid for one in laid]).T
            self.index[rows, columns] = np.array([one.index for one in laid]).transpose(1, 0, 2)

    def new_rows(self, stream: int) -> np.ndarray:
        """The rows of a stream's new segment, by time."""
        last = self.segments[self.first[stream + 1] - 1]
        return np.empty(0, np.int64) if last is None else np.argsort(last.ts, kind="stable")

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
