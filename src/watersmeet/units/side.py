"""One alias inside a step: its live segments and its new tuples, addressed by one row number.

    segments   [ old 0 ][ old 1 ][ new ]
    row_idx     0 ..  5  6 ..  9  10 ..

Invariant: row numbers are stable within a step; nothing is copied that no result needs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import InputPlan
from watersmeet.units.segment import Segment


class Side:
    """The tuples of one alias that a step can see."""

    def __init__(self, source: InputPlan, old: list[Segment], new: Segment | None) -> None:
        self.source = source
        self.old = old
        self.new = new
        self.segments = old if new is None else [*old, new]
        self.offsets = np.cumsum([0, *(s.rows for s in self.segments)])
        self._arrays: dict[tuple[str, str], np.ndarray] = {}

    @property
    def new_idx(self) -> np.ndarray:
        """The row numbers of this batch's tuples."""
        return np.arange(self.offsets[len(self.old)], self.offsets[-1])

    def visible(self, with_new: bool) -> list[tuple[int, Segment]]:
        """The segments that may be probed, each with its first row number."""
        segments = self.segments if with_new else self.old
        return [(int(self.offsets[i]), s) for i, s in enumerate(segments) if s.rows]

    def ts(self) -> np.ndarray:
        return self._cached("", "", [s.ts for s in self.segments])

    def codes(self, name: str, kind: str) -> np.ndarray:
        """Codes of a wire column for all rows; kind 'double' gives doubles."""
        return self._cached(name, kind, None)

    def _cached(self, name: str, kind: str, parts: list[np.ndarray] | None) -> np.ndarray:
        if (name, kind) not in self._arrays:
            arrays = parts if parts is not None else [s.codes(name, kind) for s in self.segments]
            self._arrays[name, kind] = (
                arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.empty(0, np.int64)])
            )
        return self._arrays[name, kind]

    def take(self, name: str, row_idx: np.ndarray) -> pa.Array:
        """The values of a wire column at these rows; costs what it returns, not what is stored."""
        if len(self.segments) == 1 or len(row_idx) == 0:
            return self.segments[0].column(name).take(pa.array(row_idx))
        segment_of = np.searchsorted(self.offsets, row_idx, side="right") - 1
        order = np.argsort(segment_of, kind="stable")
        ends = np.cumsum(np.bincount(segment_of, minlength=len(self.segments)))
        pieces, begin = [], 0
        for i, end in enumerate(ends):
            if end > begin:
                pieces.append(self.segments[i].column(name).take(pa.array(row_idx[order[begin:end]] - self.offsets[i])))
            begin = end
        if len(pieces) == 1:
            return pieces[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))
