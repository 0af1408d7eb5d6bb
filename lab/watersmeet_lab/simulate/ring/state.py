"""What the nodes of a simulated ring keep: rows and tuples under keys, rates, candidates, and what DISTINCT has seen.

Invariant: as for `RingState`.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.registered import rewriting
from watersmeet.kernels.registered.rewriting import ROWS, TUPLES
from watersmeet.registry.rjoin.ring_state import FEW, RingState, grow, round_up
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.kernels import arrivals, candidates, seen_rows


class SimulatedState(RingState):
    """Rows, tuples and keys of all nodes, and what each knows of others' keys."""

    def __init__(self, catalogue: RingCatalogue) -> None:
        super().__init__(catalogue, candidates.RATED_WIDTH)
        self.candidates = _no_candidates(2 * FEW)
        self.known = np.zeros(1, np.int64)
        self.seen = np.zeros((FEW, seen_rows.SEEN_HEAD + catalogue.layout.slots), np.int64)
        self.seen_slots = np.full(2 * FEW, -1, np.int64)
        self.seen_count = np.zeros(1, np.int64)

    def walk_rows(self, rows: np.ndarray, now: int, delta: int, marks: np.ndarray) -> np.ndarray:
        """As `meet_rows`, along the chains of keys: tuples may come between any two rows."""
        self.reserve(len(rows), 0)
        where = self.blocks, self.slots, self.counts, self.catalogue.arrays, self.lay
        return arrivals.walk_rows(rows, *where, now, delta, marks)

    def reserve_candidates(self, more: int) -> None:
        need = 2 * (int(self.known[0]) + more)
        if need > len(self.candidates):
            larger = _no_candidates(round_up(need))
            candidates.move_candidates(self.candidates, larger)
            self.candidates = larger

    def reserve_seen(self, more: int) -> None:
        self.seen = grow(self.seen, int(self.seen_count[0]), more)
        need = 2 * (int(self.seen_count[0]) + more)
        if need > len(self.seen_slots):
            self.seen_slots = np.full(round_up(need), -1, np.int64)
            seen_rows.refill(self.seen, int(self.seen_count[0]), self.seen_slots)

    def keep(self, rows: np.ndarray, tuples: np.ndarray) -> None:
        """Drop the other rows and tuples, and link the chains again."""
        for block, kept in ((ROWS, rows), (TUPLES, tuples)):
            left = self._blocks[block][: self.counts[block]][kept]
            self._blocks[block] = grow(np.zeros((FEW, left.shape[1]), np.int64), 0, len(left))
            self._blocks[block][: len(left)] = left
            self.counts[block] = len(left)
        rewriting.chain(self.blocks, self.slots, self.counts)


def _no_candidates(size: int) -> np.ndarray:
    out = np.zeros((size, candidates.CANDIDATE_WIDTH), np.int64)
    out[:, candidates.NODE] = -1
    return out
