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
from operator import is_

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import large_type, table_widths
from watersmeet.columns.spark_types import arrow_type
from watersmeet.expressions.evaluator import quote
from watersmeet.kernels.hash_window import address
from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.kernels.registered.probe_trie import INDEX_FIELDS, Segments
from watersmeet.plan.model import TIME
from watersmeet.plan.types import Kind
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.plan import BATCH, RegistryPlan, wire_name
from watersmeet.registry.shared.gates import Gate, TextGate
from watersmeet.registry.shared.probe_trie import CodedColumn
from watersmeet.storage.segment import CodedCondition, RowGate, Segment


class StreamColumns:
    """The coded columns of one stream as a block numbers them; it is equal to itself alone, so that segments can keep what they lay out for it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.asked: list[tuple[str, Kind, RowGate | None, bool]] = []
        """What `Segment.code_column` takes."""
        self._stored: tuple[list[Segment], Laid] | None = None

    def lay_out(self, segments: Sequence[Segment]) -> Laid:
        """What stored segments add: found once, as long as they stay the same."""
        known = self._stored
        if known is None or len(known[0]) != len(segments) or not all(map(is_, known[0], segments)):
            known = self._stored = list(segments), _stack([lay_out(segment, self) for segment in segments])
        return known[1]


class Layout:
    """The coded columns of a block by stream; made once for all of its turns."""

    def __init__(
        self,
        plan: RegistryPlan,
        streams: Iterable[str],
        columns: Mapping[CodedColumn, int],
        probed: Collection[int] = (),
        shown: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """probed: the columns that are looked up by value; the others are only read. shown: by stream the columns that residuals and answers read, if these are not all."""
        self.width = max(columns.values(), default=0) + 1
        self.streams = {stream: StreamColumns() for stream in streams}
        self.shown: dict[str, list[str]] | None = None
        if shown is not None:
            self.shown = {
                s: sorted({TIME, *(wire_name(plan.streams[s], c) for c in shown.get(s, ()))}) for s in self.streams
            }
        for (stream, column, kind, gate), number in columns.items():
            mine, spec = self.streams[stream], plan.streams[stream]
            mine.numbers.append(number)
            mine.asked.append((wire_name(spec, column), kind, _put_names(gate, plan, spec), number in probed))


def _put_names(gate: Gate | None, plan: RegistryPlan, spec: StreamSpec) -> RowGate | None:
    """A gate over the wire columns of a stream."""
    if gate is None:
        return None
    if isinstance(gate, TextGate):
        return gate.template.format(*(quote(wire_name(spec, c)) for c in gate.columns)), plan.timezone
    return CodedCondition(
        tuple(tuple((wire_name(spec, c), kind, spans) for c, kind, spans in way) for way in gate.ways)
    )


@dataclass
class Laid:
    """What segments add: addresses by column and segment, and of times and batches."""

    codes: np.ndarray
    valid: np.ndarray
    index: np.ndarray
    place: np.ndarray
    """By segment the addresses of times and batches; the first and the last time; the rows, if they lie in the order of time."""
    kept: list[object]
    nbytes: int = 0
    """The columns are counted by themselves."""


_NOTHING = (0, 0, LAST, FIRST, 0)
_FEW = 16
"""So many tuples of a stream are cut out one by one."""
_OVERHEAD = 8
"""What a value counts beside its bytes, at most: `columns.arrow.row_widths` counts an offset for a text."""


def lay_out(segment: Segment, columns: StreamColumns) -> Laid:
    """What one segment adds."""
    found: Laid | None = segment.derived.get((lay_out, columns))
    if found is None:
        coded = [segment.code_column(*asked) for asked in columns.asked]
        batch = segment.codes(BATCH, "integer")
        place = (
            address(segment.ts), address(batch), segment.min_ts, segment.max_ts, segment.rows if segment.is_ordered else 0,
        )  # fmt: skip
        made = [c.addresses for c in coded]
        found = segment.derived[lay_out, columns] = Laid(
            np.array([[codes] for codes, _, _ in made], np.int64).reshape(-1, 1),
            np.array([[valid] for _, valid, _ in made], np.int64).reshape(-1, 1),
            np.array([[index] for _, _, index in made], np.int64).reshape(-1, 1, INDEX_FIELDS),
            np.array([place], np.int64),
            [*coded, batch, segment.ts],
        )
    return found


def _stack(laid: Sequence[Laid]) -> Laid:
    """What several segments add, which lie beside each other."""
    if not laid:
        none = np.empty((0, 0), np.int64)
        return Laid(none, none, none.reshape(0, 0, 1), none.reshape(0, len(_NOTHING)), [])
    return Laid(
        np.concatenate([one.codes for one in laid], axis=1),
        np.concatenate([one.valid for one in laid], axis=1),
        np.concatenate([one.index for one in laid], axis=1),
        np.concatenate([one.place for one in laid]),
        [part for one in laid for part in one.kept],
    )


class Visible:
    """Stored and new tuples of the streams of one block."""

    def __init__(
        self,
        plan: RegistryPlan,
        layout: Layout,
        old: Mapping[str, Sequence[Segment]],
        new: Mapping[str, Segment | None],
    ) -> None:
        self.plan, self.streams, self._shown = plan, list(layout.streams), layout.shown
        self.segments: list[Segment | None] = []
        self.stream_of: list[int] = []
        first = [0]
        for number, stream in enumerate(self.streams):
            mine = [*old.get(stream, ()), new.get(stream)]
            self.segments += mine
            self.stream_of += [number] * len(mine)
            first.append(len(self.segments))
        count = len(self.segments)
        self.codes, self.valid = np.zeros((layout.width, count), np.int64), np.zeros((layout.width, count), np.int64)
        self.index = np.zeros((layout.width, count, INDEX_FIELDS), np.int64)
        self._kept: list[Laid] = []
        self.first = np.array(first, np.int64)
        place, is_new = np.full((count, len(_NOTHING)), _NOTHING, np.int64), np.zeros(count, np.uint8)
        is_new[self.first[1:] - 1] = 1
        for number, (stream, columns) in enumerate(layout.streams.items()):
            stored, fresh = old.get(stream, ()), new.get(stream)
            if stored:
                self._put(first[number], columns, columns.lay_out(stored), place)
            if fresh is not None:
                self._put(first[number + 1] - 1, columns, lay_out(fresh, columns), place)
        ts, batch, lowest, highest, ordered = place.T.copy()
        self.ts, self.batch = ts, batch
        self.kernel = Segments(self.first, ts, lowest, highest, ordered, is_new, self.codes, self.valid, self.index)

    def _put(self, begin: int, columns: StreamColumns, laid: Laid, place: np.ndarray) -> None:
        """What segments beside each other add to its place."""
        self._kept.append(laid)
        here = slice(begin, begin + len(laid.place))
        place[here] = laid.place
        if columns.numbers:
            self.codes[columns.numbers, here] = laid.codes
            self.valid[columns.numbers, here] = laid.valid
            self.index[columns.numbers, here] = laid.index

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
            if bounds[end] > bounds[begin]:
                parts = [
                    (self._find_table(at), tuples[bounds[at] : bounds[at + 1]] & 0xFFFFFFFF)
                    for at in (begin + np.flatnonzero(np.diff(bounds[begin : end + 1]))).tolist()
                ]
                starts[stream] = int(bounds[begin])
                tables[stream] = _take(parts, parts[0][0].column_names if self._shown is None else self._shown[stream])
        return Taken(self.plan, tables, starts)

    def _find_table(self, at: int) -> pa.Table:
        segment = self.segments[at]
        assert segment is not None
        return segment.table


def _take(parts: Sequence[tuple[pa.Table, np.ndarray]], names: Sequence[str]) -> pa.Table:
    """Columns of some rows of tables, in one chunk, which is what residuals and answers read: a few are cut out, which costs less than to gather them."""
    if sum(len(rows) for _, rows in parts) > _FEW:
        return pa.concat_tables([t.select(names).take(pa.array(rows)) for t, rows in parts]).combine_chunks()
    whole = [(t.select(names).to_batches(), rows) for t, rows in parts]
    if any(len(batches) > 1 for batches, _ in whole):
        whole = [(t.select(names).combine_chunks().to_batches(), rows) for t, rows in parts]
    cut = [batches[0].slice(row, 1) for batches, rows in whole for row in rows.tolist()]
    return pa.Table.from_batches([pa.concat_batches(cut)])


class Taken:
    """Some tuples by stream; a tuple is named by its place among all of them."""

    def __init__(self, plan: RegistryPlan, tables: Mapping[str, pa.Table], starts: Mapping[str, int]) -> None:
        self.plan, self.tables, self.starts = plan, tables, starts

    @property
    def nbytes(self) -> int:
        """The bytes of all tuples at hand: at least those of each of them."""
        return sum(_OVERHEAD * t.num_rows * t.num_columns + t.get_total_buffer_size() for t in self.tables.values())

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
