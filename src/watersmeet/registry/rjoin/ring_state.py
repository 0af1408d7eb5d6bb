"""What ring nodes keep: rows and tuples under keys.

Blocks of 64-bit columns that grow by half; a state may be that of any number of ring nodes, since everything lies under a key and
the ring says whose it is.

Invariant: `reserve` before a compiled loop stores; no table of slots is more than half full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels.registered import key_table, rewriting
from watersmeet.kernels.registered.rewriting import ENTRIES, ROWS, TUPLES
from watersmeet.registry.rjoin.catalogue import TemplateCatalogue

FEW = 1024


class Spent(NamedTuple):
    """What templates have tried and made, and how much they may (`kernels.registered.rewriting`)."""

    counts: np.ndarray
    limits: np.ndarray

    @classmethod
    def begin(cls, templates: int, tried: int = 2**62, made: int = 2**62) -> Spent:
        return cls(np.zeros((templates, 2), np.int64), np.array([tried, made], np.int64))


class RingState:
    """Rows, tuples and keys of some nodes."""

    def __init__(self, catalogue: TemplateCatalogue, entry_width: int = key_table.KEY_WIDTH) -> None:
        self.catalogue, self.lay = catalogue, catalogue.layout.array
        widths = int(self.lay[rewriting.ROW_WIDTH]), catalogue.tuple_width, entry_width
        self._blocks = [np.zeros((FEW, w), np.int64) for w in widths]
        self.counts = np.zeros(3, np.int64)
        self.slots = np.full(2 * FEW, -1, np.int64)
        self._order: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        return tuple(self._blocks)

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes) + sum(int(block.nbytes) for block in self._blocks)

    @property
    def rows(self) -> np.ndarray:
        """Posed and rewritten queries that wait."""
        return self._blocks[ROWS][: self.counts[ROWS]]

    @property
    def tuples(self) -> np.ndarray:
        return self._blocks[TUPLES][: self.counts[TUPLES]]

    def meet_tuples(self, tuples: np.ndarray, spent: Spent | None = None) -> np.ndarray:
        """Let tuples arrive, copies under one key each: the rows that they make of those that wait, unless that is more than may be spent."""
        self.reserve(0, len(tuples))
        where = self.blocks, self.slots, self.counts, self.catalogue.arrays, self.lay
        return rewriting.arrive_tuples(tuples, *where, *(spent or Spent.begin(len(self.catalogue))))

    def meet_rows(self, rows: np.ndarray, marks: np.ndarray, spent: Spent) -> np.ndarray:
        """Let rows arrive: those that they make with stored tuples. A row that no tuple of the watermarks or later can match does not wait."""
        self.reserve(len(rows), 0)
        if self._order is None:
            self._order = self._sort()
        where = self.blocks, self.slots, self.counts, self.catalogue.arrays, self.lay
        return rewriting.arrive_rows(rows, *where, *spent, marks, *self._order)

    def _sort(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The tuples by key and time: their places, where those of an entry begin, their times. It holds as long as no tuple comes."""
        tuples, entries = self.tuples, self._blocks[ENTRIES]
        of = rewriting.entries_of(self._blocks[TUPLES], int(self.counts[TUPLES]), self.slots, entries)
        places = np.lexsort((tuples[:, rewriting.TS], of))
        begin = np.searchsorted(of[places], np.arange(int(self.counts[ENTRIES]) + 1))
        return places, begin, tuples[places, rewriting.TS]

    def lay_down(self, rows: list[np.ndarray], tuples: list[np.ndarray]) -> None:
        """Take rows and tuples in without letting them meet: they have met before."""
        self.reserve(sum(map(len, rows)), sum(map(len, tuples)))
        for kind, parts in ((ROWS, rows), (TUPLES, tuples)):
            for part in parts:
                at = int(self.counts[kind])
                self._blocks[kind][at : at + len(part)] = part
                self.counts[kind] += len(part)
        rewriting.chain(self.blocks, self.slots, self.counts)

    def reserve(self, rows: int, tuples: int) -> None:
        """Room for so many more rows and tuples, each perhaps under a key of its own."""
        if tuples:
            self._order = None
        for block, more in ((ROWS, rows), (TUPLES, tuples), (ENTRIES, rows + tuples)):
            self._blocks[block] = grow(self._blocks[block], int(self.counts[block]), more)
        need = 2 * (int(self.counts[ENTRIES]) + rows + tuples)
        if need > len(self.slots):
            self.slots = np.full(round_up(need), -1, np.int64)
            key_table.rehash(self.slots, self._blocks[ENTRIES], int(self.counts[ENTRIES]))


def grow(block: np.ndarray, used: int, more: int) -> np.ndarray:
    """A block with room for so many more lines."""
    if used + more <= len(block):
        return block
    out = np.empty((max(used + more, len(block) + len(block) // 2), block.shape[1]), np.int64)
    out[:used] = block[:used]
    return out


def round_up(least: int) -> int:
    """The next power of two."""
    return 1 << max(least - 1, 1).bit_length()
