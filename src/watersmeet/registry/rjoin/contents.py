"""The tuples themselves: rows name them by id, and take them along when they leave for another node.

    rows to node 3    (r 17, s 40)  (r 17, s 41)  (r 18, s 40)
    tuples to it      r: 17, 18     s: 40, 41                      each once, however many rows have it

Invariant: whoever holds a row holds the tuples that it names. Ids tell tuples apart within a state; equal ids are equal tuples.
Departs from Idreos, Liarou, Koubarakis (2008), section 3: rewritten queries carry the values of their SELECT; here thousands of queries
share a row, each with its own SELECT and conditions, so a row carries which tuples it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered import key_table, rewriting
from watersmeet.registry.rjoin.index import ID
from watersmeet.registry.rjoin.template_catalogue import Layout
from watersmeet.storage.segment import Segment


@dataclass
class StreamTuples:
    """Some of a stream's tuples, and their entries."""

    table: pa.Table
    entries: np.ndarray


class Contents:
    """The tuples at hand in one turn of a node, by stream."""

    def __init__(self) -> None:
        self._segments: list[tuple[str, Segment]] = []

    def add(self, stream: str, segment: Segment) -> None:
        self._segments.append((stream, segment))
        self.__dict__.pop("_ids", None)

    def holds(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are at hand."""
        known = self._ids.known
        at = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
        return known[at] == ids if len(known) else np.zeros(len(ids), np.bool_)

    def find_tuples(self, layout: Layout, *rows: np.ndarray) -> dict[str, StreamTuples]:
        """The tuples that rows name, by stream."""
        found = self._ids
        marks = np.zeros(max(len(found.known), 1), np.uint8)
        for part in rows:
            if len(part):
                lines = np.ascontiguousarray(part)
                rewriting.mark_bound(lines, layout.aliases, layout.array, found.slots, found.entries, marks)
        entries = np.flatnonzero(marks[: len(found.known)])
        parts: dict[str, list[StreamTuples]] = {}
        segment = found.segment[entries]
        for number in np.unique(segment).tolist():
            stream, source = self._segments[number]
            mine = entries[segment == number]
            parts.setdefault(stream, []).append(StreamTuples(source.table.take(pa.array(found.row[mine])), mine))
        return {stream: _join(pieces) for stream, pieces in parts.items()}

    def places(
        self, layout: Layout, rows: np.ndarray, taken: Mapping[str, StreamTuples], first: Mapping[str, int]
    ) -> np.ndarray:
        """By row and alias where its tuple lies: that of a stream's n-th tuple taken is first + n; -1 without a tuple."""
        found = self._ids
        place = np.full(max(len(found.known), 1), -1, np.int64)
        for stream, part in taken.items():
            place[part.entries] = first[stream] + np.arange(len(part.entries))
        lines = np.ascontiguousarray(rows)
        return rewriting.place_bound(lines, layout.aliases, layout.array, found.slots, found.entries, place)

    @cached_property
    def _ids(self) -> _Ids:
        return _Ids.of([s.codes(ID, "integer") for _, s in self._segments])


@dataclass
class _Ids:
    """A key table of ids: in ascending order, and of every one its segment and row."""

    known: np.ndarray
    segment: np.ndarray
    row: np.ndarray
    slots: np.ndarray
    entries: np.ndarray

    @classmethod
    def of(cls, ids: list[np.ndarray]) -> _Ids:
        none = np.zeros(0, np.int64)
        known, first = np.unique(np.concatenate([*ids, none]), return_index=True)
        segment = np.repeat(np.arange(len(ids)), [len(i) for i in ids]) if ids else none
        row = np.concatenate([*(np.arange(len(i)) for i in ids), none])
        entries = np.full((max(len(known), 1), key_table.KEY_WIDTH), -1, np.int64)
        entries[: len(known), key_table.KEY] = known
        slots = np.full(1 << (2 * max(len(known), 2)).bit_length(), -1, np.int64)
        key_table.rehash(slots, entries, len(known))
        return cls(known, segment[first], row[first], slots, entries)


def _join(pieces: list[StreamTuples]) -> StreamTuples:
    names = pieces[0].table.column_names
    table = pa.concat_tables([p.table.select(names) for p in pieces]).combine_chunks()
    return StreamTuples(table, np.concatenate([p.entries for p in pieces]))
