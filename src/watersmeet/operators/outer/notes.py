"""Notes: who has met a partner, told to units that settle tuples for others.

    note     _ts   _h1   _h2                 the tuple's time, and 128 bits over what its partners depend on
    tuple    _ts   _h1   _h2   key  ...      as the units that settle it store it

Equal tuples have equal partners, so a note is of all of them, and a tuple needs no number that its copies agree on.

Invariant: a note and the tuples that it is of go to the same unit; the tuples come in the same batch, or came earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.columns.row_hash import by_hash, content_hashes
from watersmeet.kernels import hash_window
from watersmeet.plan.model import TIME
from watersmeet.storage.segment import Segment

H1, H2 = "_h1", "_h2"
_SEED = 0x5851F42D4C957F2D
_CHUNK = 131_072
"""So many tuples are compared with their notes at once."""


class Notes(NamedTuple):
    """Times and hashes."""

    ts: np.ndarray
    h1: np.ndarray
    h2: np.ndarray

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Notes:
        """Notes of tuples, of which these are the columns that their partners depend on, the time among them."""
        table = pa.table(dict(columns))
        return cls(integers(table.column(TIME).combine_chunks()), *content_hashes(table, (0, _SEED)))

    @classmethod
    def read(cls, tables: list[pa.Table]) -> Notes:
        """Notes that have come."""
        table = pa.concat_tables([_NOTHING, *tables])
        return cls(*(integers(table.column(name).combine_chunks()) for name in (TIME, H1, H2)))

    def by_unit(self, units: int, tuples: pa.Table | None = None) -> Iterator[tuple[int, pa.Table]]:
        """The notes for every unit, or the tuples that they are of, with their hashes."""
        rows = pa.table({TIME: pa.array(self.ts)}) if tuples is None else tuples
        rows = rows.append_column(H1, pa.array(self.h1)).append_column(H2, pa.array(self.h2))
        return by_hash(rows, self.h1, units)

    def find(self, segment: Segment) -> np.ndarray:
        """The rows of a segment, whose tuples have their hashes, that have a note; rows may be named twice."""
        asked = self._where((self.ts >= segment.min_ts) & (self.ts <= segment.max_ts))
        if not len(asked.ts):
            return np.empty(0, np.int64)
        index, h2, found = segment.index_by(H1), segment.codes(H2, "integer"), list[np.ndarray]()
        first, count = hash_window.probe(index, asked.h1, asked.ts, asked.ts)
        hits = np.flatnonzero(count)
        if count.max() > 1:
            hits = hits[_first_of_each(first[hits], asked.h2[hits])]
        for hit_idx, rows in hash_window.pairs(first[hits], count[hits], index.rows, _CHUNK):
            found.append(rows[h2[rows] == asked.h2[hits[hit_idx]]])
        return np.concatenate([np.empty(0, np.int64), *found])

    def _where(self, keep: np.ndarray) -> Notes:
        return self if keep.all() else Notes(self.ts[keep], self.h1[keep], self.h2[keep])


_NOTHING = pa.table({name: pa.array([], pa.int64()) for name in (TIME, H1, H2)})


def _first_of_each(first: np.ndarray, h2: np.ndarray) -> np.ndarray:
    """One of each pair: many equal notes of many equal tuples would be too many to compare."""
    order = np.lexsort((h2, first))
    first, h2 = first[order], h2[order]
    return order[np.append(True, (first[1:] != first[:-1]) | (h2[1:] != h2[:-1]))]
