"""The tuples themselves: rows name them by id, and take them along when they leave for another node.

    rows to node 3    (r 17, s 40)  (r 17, s 41)  (r 18, s 40)
    tuples to it      r: 17, 18     s: 40, 41                      each once, however many rows have it

Invariant: whoever holds a row holds the tuples that it names. Ids tell tuples apart within a state; equal ids are equal tuples.
Departs from Idreos, Liarou, Koubarakis (2008), section 3: rewritten queries carry the values of their SELECT; here thousands of queries
share a row, each with its own SELECT and conditions, so a row carries which tuples it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered.rewriting import AT_NUMBERS, BOUND, ROW_WIDTH
from watersmeet.registry.rjoin.catalogue import Layout
from watersmeet.registry.rjoin.index import ID
from watersmeet.storage.segment import Segment


@dataclass
class StreamTuples:
    """Some of a stream's tuples, and their places among all ids at hand."""

    table: pa.Table
    places: np.ndarray


class Contents:
    """The tuples at hand in one turn of a node, by stream."""

    def __init__(self) -> None:
        self._segments: list[tuple[str, Segment]] = []

    def add(self, stream: str, segment: Segment) -> None:
        self._segments.append((stream, segment))
        self.__dict__.pop("_ids", None)

    @cached_property
    def _ids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ids in ascending order, and of every one its segment and row."""
        ids = [np.zeros(0, np.int64), *(s.codes(ID, "integer") for _, s in self._segments)]
        sizes = [len(i) for i in ids]
        known, first = np.unique(np.concatenate(ids), return_index=True)
        segment = np.repeat(np.arange(len(ids)), sizes)[first]
        return known, segment - 1, first - np.cumsum([0, *sizes])[segment]

    def holds(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are at hand."""
        return np.isin(ids, self._ids[0])

    def find_tuples(self, layout: Layout, *rows: np.ndarray) -> dict[str, StreamTuples]:
        """The tuples that rows name, by stream."""
        known, segments, row = self._ids
        named = np.zeros(len(known), np.bool_)
        for part in rows:
            ids, bound = ids_of(layout, part)
            named[np.searchsorted(known, ids[bound])] = True
        places = np.flatnonzero(named)
        parts: dict[str, list[StreamTuples]] = {}
        for number in np.unique(segments[places]).tolist():
            stream, segment = self._segments[number]
            mine = places[segments[places] == number]
            parts.setdefault(stream, []).append(StreamTuples(segment.table.take(pa.array(row[mine])), mine))
        return {stream: _join(pieces) for stream, pieces in parts.items()}

    def take(self, ids: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Some columns of one stream's tuples, by their ids."""
        known, segments, row = self._ids
        places = np.searchsorted(known, ids)
        of, parts, order = segments[places], [], []
        for number in np.unique(of).tolist():
            mine = np.flatnonzero(of == number)
            parts.append(self._segments[number][1].table.select(list(columns)).take(pa.array(row[places[mine]])))
            order.append(mine)
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))

    def places(
        self, layout: Layout, rows: np.ndarray, taken: Mapping[str, StreamTuples], first: Mapping[str, int]
    ) -> np.ndarray:
        """By row and alias where its tuple lies: that of a stream's n-th tuple taken is first + n; -1 without a tuple."""
        known, *_ = self._ids
        place = np.full(len(known), -1, np.int64)
        for stream, part in taken.items():
            place[part.places] = first[stream] + np.arange(len(part.places))
        ids, bound = ids_of(layout, rows)
        out = np.full(ids.shape, -1, np.int64)
        out[bound] = place[np.searchsorted(known, ids[bound])]
        return out


def ids_of(layout: Layout, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By row and alias the id of its tuple, and whether it has one."""
    lay = layout.array
    bound = (rows[:, BOUND, None] >> np.arange(layout.aliases)) & 1
    return rows[:, lay[AT_NUMBERS] : lay[ROW_WIDTH]], bound.astype(np.bool_)


def _join(pieces: list[StreamTuples]) -> StreamTuples:
    names = pieces[0].table.column_names
    table = pa.concat_tables([p.table.select(names) for p in pieces]).combine_chunks()
    return StreamTuples(table, np.concatenate([p.places for p in pieces]))
