"""The tuples that can be in a combination with a new one: what a sweep goes through, instead of all that is stored.

    side a   [ old 0 ][ old 1 ][ new ]           new tuples of b stand between the bars; a window reaches so far to both sides
    times    .  .  . (. .  . .  . . )            old tuples of a outside the brackets meet no new one
    side b                |---|

    head = the first old tuple not before   min over sides x with new tuples of  (oldest new x) + lo(x, side)
    tail = behind the last one not after    max over them of                     (youngest new x) + hi(x, side)

Heads and tails are found by bisection in segments, whose tuples mostly lie in the order of time. So a batch costs its new tuples and those in their windows;
what lateness, a slower stream or a wider window of another pair retains besides costs nothing.

Invariant: every combination with a new member has its old members between the heads and tails of their sides, since the window graph is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from watersmeet.kernels.instants import FIRST, LAST, shift_instant
from watersmeet.operators.probing.side import VisibleSide
from watersmeet.query.window import WindowGraph
from watersmeet.storage.segment import Segment


@dataclass(frozen=True)
class Piece:
    """Rows of a segment, which begins at a row number of its side."""

    segment: Segment
    offset: int
    rows: slice | np.ndarray

    @property
    def size(self) -> int:
        return self.rows.stop - self.rows.start if isinstance(self.rows, slice) else len(self.rows)

    @property
    def row_idx(self) -> np.ndarray:
        """Their row numbers in the side."""
        if isinstance(self.rows, slice):
            return np.arange(self.offset + self.rows.start, self.offset + self.rows.stop)
        return self.rows + self.offset


@dataclass(frozen=True)
class Nearby:
    """The tuples of one side that a new tuple can meet, and its own new ones."""

    side: VisibleSide
    pieces: tuple[Piece, ...]
    is_new: bool
    """Whether this batch's tuples of the side count as new."""

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @cached_property
    def row_idx(self) -> np.ndarray:
        """Row numbers in the side, by position here."""
        return _concat([piece.row_idx for piece in self.pieces])

    @property
    def ts(self) -> np.ndarray:
        return _concat([piece.segment.ts[piece.rows] for piece in self.pieces])

    def codes(self, column: str, kind: str) -> np.ndarray:
        """Codes of a column of the side."""
        return _concat([piece.segment.codes(column, kind)[piece.rows] for piece in self.pieces])

    @property
    def new(self) -> np.ndarray:
        """Which of them make a combination new."""
        if not self.is_new:
            return np.zeros(self.size, np.bool_)
        return np.asarray(self.row_idx >= self.side.offsets[len(self.side.old)], np.bool_)


def find_nearby(
    windows: WindowGraph, sides: Sequence[VisibleSide], probing: VisibleSide | None = None
) -> tuple[Nearby, ...]:
    """By side what a sweep of a step goes through; at a unit that stores one side only, the probing tuples are the new ones."""
    driving = [s for s in sides if s.new is not None and s.new.rows and (probing is None or s is probing)]
    return tuple(
        Nearby(side, tuple(_cut(side, *_find_ends(windows, side, driving), whole=side in driving)), side in driving)
        for side in sides
    )


def _find_ends(windows: WindowGraph, side: VisibleSide, driving: Sequence[VisibleSide]) -> tuple[int, int]:
    """The first and the last time at which a tuple of a side can meet a new one of another."""
    first, last = LAST, FIRST
    for x in driving:
        if x is not side and x.new is not None:
            lo, hi = windows.spans[x.spec.reference, side.spec.reference]
            first, last = (
                min(first, int(shift_instant(x.new.min_ts, lo))),
                max(last, int(shift_instant(x.new.max_ts, hi))),
            )
    return first, last


def _cut(side: VisibleSide, first: int, last: int, *, whole: bool) -> Iterator[Piece]:
    """Pieces of the side's segments between two times; `whole`: this batch's tuples are all wanted."""
    for offset, segment in side.visible(True):
        if (whole and segment is side.new) or (first <= segment.min_ts and segment.max_ts <= last):
            yield Piece(segment, offset, slice(0, segment.rows))
        elif segment.min_ts <= last and first <= segment.max_ts:
            if segment.is_ordered:
                begin = int(np.searchsorted(segment.ts, first, side="left"))
                rows: slice | np.ndarray = slice(begin, int(np.searchsorted(segment.ts, last, side="right")))
            else:
                rows = np.flatnonzero((segment.ts >= first) & (segment.ts <= last))
            piece = Piece(segment, offset, rows)
            if piece.size:
                yield piece


def _concat(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.int64)
