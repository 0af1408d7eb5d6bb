"""What ring nodes keep: rows and tuples under keys, rates, candidates, and what DISTINCT has seen.

Blocks of 64-bit columns that grow by half; a unit may hold any number of ring nodes, since everything lies under a key and
the ring says whose it is.

Invariant: `reserve` before a compiled loop stores; no table of slots is more than half full.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.registered import key_table, rewriting, seen_rows
from watersmeet.kernels.registered.rewriting import ENTRIES, ROWS, TUPLES
from watersmeet.registry.rjoin.template_catalogue import Layout

_FEW = 1024


class RingState:
    """Rows, tuples and keys of some nodes."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.lay = layout, layout.array
        widths = (int(self.lay[rewriting.ROW_WIDTH]), int(self.lay[rewriting.TUPLE_WIDTH]), key_table.KEY_WIDTH)
        self._blocks = [np.zeros((_FEW, w), np.int64) for w in widths]
        self.counts = np.zeros(3, np.int64)
        self.order: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        """The tuples by key and time, if they have been sorted since the last one came: their places, where those of an entry
        begin, their times."""
        self.slots = np.full(2 * _FEW, -1, np.int64)
        self.candidates = _no_candidates(2 * _FEW)
        self.known = np.zeros(1, np.int64)
        self.seen = np.zeros((_FEW, seen_rows.SEEN_HEAD + layout.slots), np.int64)
        self.seen_slots = np.full(2 * _FEW, -1, np.int64)
        self.seen_count = np.zeros(1, np.int64)

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        return tuple(self._blocks)

    @property
    def rows(self) -> np.ndarray:
        """Posed and rewritten queries that wait."""
        return self._blocks[ROWS][: self.counts[ROWS]]

    @property
    def tuples(self) -> np.ndarray:
        return self._blocks[TUPLES][: self.counts[TUPLES]]

    def sort(self) -> None:
        """Sort the tuples by key and time: rows that come find theirs without walking the chain. As long as no tuple comes."""
        tuples, entries = self.tuples, self._blocks[ENTRIES]
        of = rewriting.entries_of(self._blocks[TUPLES], int(self.counts[TUPLES]), self.slots, entries)
        places = np.lexsort((tuples[:, rewriting.TS], of))
        begin = np.searchsorted(of[places], np.arange(int(self.counts[ENTRIES]) + 1))
        self.order = places, begin, tuples[places, rewriting.TS]

    def reserve(self, rows: int, tuples: int) -> None:
        """Room for so many more rows and tuples, each perhaps under a key of its own."""
        if tuples:
            self.order = None
        for block, more in ((ROWS, rows), (TUPLES, tuples), (ENTRIES, rows + tuples)):
            self._blocks[block] = _grown(self._blocks[block], int(self.counts[block]), more)
        need = 2 * (int(self.counts[ENTRIES]) + rows + tuples)
        if need > len(self.slots):
            self.slots = np.full(_power(need), -1, np.int64)
            key_table.rehash(self.slots, self._blocks[ENTRIES], int(self.counts[ENTRIES]))

    def reserve_candidates(self, more: int) -> None:
        need = 2 * (int(self.known[0]) + more)
        if need > len(self.candidates):
            larger = _no_candidates(_power(need))
            key_table.move_candidates(self.candidates, larger)
            self.candidates = larger

    def reserve_seen(self, more: int) -> None:
        self.seen = _grown(self.seen, int(self.seen_count[0]), more)
        need = 2 * (int(self.seen_count[0]) + more)
        if need > len(self.seen_slots):
            self.seen_slots = np.full(_power(need), -1, np.int64)
            seen_rows.refill(self.seen, int(self.seen_count[0]), self.seen_slots)

    def keep(self, rows: np.ndarray, tuples: np.ndarray) -> None:
        """Drop the other rows and tuples, and link the chains again."""
        self.order = None
        for block, kept in ((ROWS, rows), (TUPLES, tuples)):
            left = self._blocks[block][: self.counts[block]][kept]
            self._blocks[block] = _grown(np.zeros((_FEW, left.shape[1]), np.int64), 0, len(left))
            self._blocks[block][: len(left)] = left
            self.counts[block] = len(left)
        rewriting.chain(self.blocks, self.slots, self.counts)


def _grown(block: np.ndarray, used: int, more: int) -> np.ndarray:
    if used + more <= len(block):
        return block
    out = np.empty((max(used + more, len(block) + len(block) // 2), block.shape[1]), np.int64)
    out[:used] = block[:used]
    return out


def _power(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()


def _no_candidates(size: int) -> np.ndarray:
    out = np.zeros((size, key_table.CANDIDATE_WIDTH), np.int64)
    out[:, key_table.NODE] = -1
    return out
