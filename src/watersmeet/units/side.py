"""One side of a join inside a step: its live segments and its new tuples, addressed by one row number.

    segments   [ old 0 ][ old 1 ][ new ]
    row_idx     0 ..  5  6 ..  9  10 ..

A side is one alias or, in a pipeline, several whose tuples are bound together already; `Member` is one alias of it.

Invariant: row numbers are stable within a step; nothing is copied that no result needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.plan import model
from watersmeet.plan.model import TIME, InputPlan
from watersmeet.units.segment import Segment


class Side:
    """The tuples of one side that a step can see."""

    def __init__(self, spec: model.Side, old: list[Segment], new: Segment | None) -> None:
        self.spec = spec
        self.old = old
        self.new = new
        self.segments = old if new is None else [*old, new]
        self.offsets = np.cumsum([0, *(s.rows for s in self.segments)])
        self._arrays: dict[tuple[str, str], np.ndarray] = {}

    @cached_property
    def new_idx(self) -> np.ndarray:
        """The row numbers of this batch's tuples."""
        return np.arange(self.offsets[len(self.old)], self.offsets[-1])

    def admit(self, new: Segment | None) -> None:
        """Take this batch's tuples in; row numbers given out so far stay what they are."""
        assert self.new is None
        if new is None:
            return
        self.new = new
        self.__dict__.pop("new_idx", None)
        self.segments = [*self.segments, new]
        self.offsets = np.append(self.offsets, self.offsets[-1] + new.rows)
        for (name, kind), array in self._arrays.items():
            self._arrays[name, kind] = np.concatenate([array, new.codes(name, kind) if name else new.ts])

    def visible(self, with_new: bool) -> list[tuple[int, Segment]]:
        """The segments that may be probed, each with its first row number."""
        segments = self.segments if with_new else self.old
        return [(int(self.offsets[i]), s) for i, s in enumerate(segments) if s.rows]

    def ts(self) -> np.ndarray:
        """The side's time: that of its reference."""
        return self._cached("", "", [s.ts for s in self.segments])

    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a column for all rows; kind 'double' gives doubles."""
        return self._cached(name, kind, None)

    def _cached(self, name: str, kind: str, parts: list[np.ndarray] | None) -> np.ndarray:
        if (name, kind) not in self._arrays:
            arrays = parts if parts is not None else [s.codes(name, kind) for s in self.segments]
            self._arrays[name, kind] = (
                arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.empty(0, np.int64)])
            )
        return self._arrays[name, kind]

    def widest(self, name: str) -> int:
        """The bytes of the widest value of a column."""
        return max((s.widest(name) for s in self.segments), default=0)

    def take(self, name: str, row_idx: np.ndarray) -> pa.Array:
        """The values of a column at these rows; costs what it returns, not what is stored."""
        if len(self.segments) == 1 or len(row_idx) == 0:
            return self.segments[0].column(name).take(pa.array(row_idx))
        lowest, highest = np.searchsorted(self.offsets, (row_idx.min(), row_idx.max()), side="right") - 1
        if lowest == highest:
            return self.segments[lowest].column(name).take(pa.array(row_idx - self.offsets[lowest]))
        segment_of = np.searchsorted(self.offsets, row_idx, side="right") - 1
        # What one probe found comes segment by segment, and need not be sorted.
        if np.all(segment_of[1:] >= segment_of[:-1]):
            return self._pieces(name, row_idx, segment_of)
        order = np.argsort(segment_of, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return self._pieces(name, row_idx[order], segment_of).take(pa.array(back))

    def _pieces(self, name: str, row_idx: np.ndarray, segment_of: np.ndarray) -> pa.Array:
        """The values at rows that stand segment by segment."""
        pieces, begin = [], 0
        for i, end in enumerate(np.cumsum(np.bincount(segment_of, minlength=len(self.segments)))):
            if end > begin:
                pieces.append(self.segments[i].column(name).take(pa.array(row_idx[begin:end] - self.offsets[i])))
            begin = end
        return pa.concat_arrays(pieces)


@dataclass(frozen=True)
class Member:
    """One alias of a side: its wire columns under the names that the side has for them."""

    side: Side
    source: InputPlan

    @property
    def keys(self) -> dict[int, str]:
        """Class number to wire column, of the keys that the side has."""
        spec, alias = self.side.spec, self.source.alias
        return {c: name for c, name in self.source.keys.items() if self._has(spec, alias, name)}

    @staticmethod
    def _has(spec: model.Side, alias: str, name: str) -> bool:
        return len(spec.aliases) == 1 or (alias, name) in spec.carried

    def ts(self) -> np.ndarray:
        return self.side.ts() if self.side.spec.reference == self.source.alias else self.codes(TIME, "integer")

    def codes(self, name: str, kind: str) -> np.ndarray:
        return self.side.codes(self.side.spec.column(self.source.alias, name), kind)

    def widest(self, name: str) -> int:
        return self.side.widest(self.side.spec.column(self.source.alias, name))

    def take(self, name: str, row_idx: np.ndarray) -> pa.Array:
        return self.side.take(self.side.spec.column(self.source.alias, name), row_idx)
