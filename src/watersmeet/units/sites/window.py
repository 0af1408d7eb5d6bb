"""A site's window of a stream, or its copy of another site's, for one join.

    pos     4   5   7   8      tuples in the order in which they expire: a FIFO queue
    until  21  30  30  44
    sent    x       x          which of them the other site has

Invariant: tuples are in the order of (until, pos); `sent` is never taken back.
Implements: Tran and Lee (2010), section 3.2.1 (sent bits, algorithm 7) and 3.2.2 (FIFO queue, algorithm 8).
Departs from the paper: the queue is in the order of expiry, which is that of time for streams, but not for the windows of joined
tuples that a tree has. Under a window of rows `until` is not known before later tuples come; it is set then. Probing is by
the hash index of the engine, built when a changed window is probed.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels import hash_window
from watersmeet.kernels.expand import pairs
from watersmeet.units.sites.rows import EVER, NONE, NOTHING, Tuples

_LIMIT = 1 << 22


def among(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which codes are one of these ascending values.

    >>> among(np.array([5, 1, 9]), np.array([1, 5])).tolist()
    [True, True, False]
    """
    if len(values) == 0:
        return np.zeros(len(codes), bool)
    return values[np.minimum(np.searchsorted(values, codes), len(values) - 1)] == codes


class Window:
    """Tuples that can be probed."""

    def __init__(self, tuples: Tuples = NOTHING) -> None:
        self.tuples = tuples
        self.sent = np.zeros(len(tuples), bool)
        self._index: hash_window.HashIndex | None = None

    def __len__(self) -> int:
        return len(self.tuples)

    def insert(self, tuples: Tuples) -> None:
        """New ones, not sent."""
        if len(tuples) == 0:
            return
        both = Tuples(*(np.concatenate(columns) for columns in zip(self.tuples, tuples, strict=True)))
        sent = np.concatenate([self.sent, np.zeros(len(tuples), bool)])
        # What was here is in order: only from its last tuple on can something be out of it.
        last = max(len(self) - 1, 0)
        until, pos = both.until[last:], both.pos[last:]
        if np.any(until[1:] < until[:-1]) or np.any((until[1:] == until[:-1]) & (pos[1:] < pos[:-1])):
            order = np.lexsort((both.pos, both.until))
            both, sent = both.take(order), sent[order]
        self._set(both, sent)

    def remove_before(self, low: int) -> tuple[Tuples, np.ndarray]:
        """Drop what no head from `low` on can meet; which tuples, and which of them were sent."""
        n = int(np.searchsorted(self.tuples.until, low))
        gone, sent = Tuples(*(c[:n] for c in self.tuples)), self.sent[:n]
        if n:
            self._set(Tuples(*(c[n:] for c in self.tuples)), self.sent[n:])
        return gone, sent

    def remove_first(self, n: int) -> None:
        """Drop the n first of the queue."""
        self._set(Tuples(*(c[n:] for c in self.tuples)), self.sent[n:])

    def keep(self, mask: np.ndarray) -> None:
        """Drop the others."""
        if not mask.all():
            self._set(self.tuples.take(mask), self.sent[mask])

    def expire(self, pos: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Tuples of a window of rows are out of it from now on; when, for those of them that were sent."""
        if len(pos) == 0 or len(self) == 0:
            return NONE
        idx = np.minimum(np.searchsorted(self.tuples.pos, pos), len(self) - 1)
        here = self.tuples.pos[idx] == pos
        until = self.tuples.until.copy()
        until[idx[here]] = at[here]
        self._set(self.tuples.expiring(until), self.sent)
        return at[here][self.sent[idx[here]]]

    def expire_next(self, at: np.ndarray) -> None:
        """The first tuples that have not expired do so at these times."""
        if len(at):
            first = int(np.searchsorted(self.tuples.until, EVER))
            until = self.tuples.until.copy()
            until[first : first + len(at)] = at
            self._set(self.tuples.expiring(until), self.sent)

    def unsent(self, asked: np.ndarray) -> Tuples:
        """Algorithm 7: the tuples of a mask that were not sent before; they are from now on."""
        found = np.flatnonzero(asked & ~self.sent)
        self.sent[found] = True
        return self.tuples.take(found)

    def having(self, values: np.ndarray) -> np.ndarray:
        """Which tuples have one of these values."""
        return among(self.tuples.code, values)

    def join(self, codes: np.ndarray, lo: np.ndarray, hi: np.ndarray, limited: bool) -> tuple[np.ndarray, np.ndarray]:
        """(probe_idx, pos) of all pairs of equal keys, lo <= at <= hi < until; without limits, of all pairs."""
        if len(codes) == 0 or len(self) == 0:
            return NONE, NONE
        t = self.tuples
        if self._index is None:
            self._index = hash_window.build(t.code, t.at)
        if not limited:
            lo, hi = np.full(len(codes), -EVER), np.full(len(codes), EVER)
        found = list(pairs(*hash_window.probe(self._index, codes, lo, hi), self._index.rows, _LIMIT))
        if not found:
            return NONE, NONE
        probe_idx, row_idx = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if limited:
            lives = t.until[row_idx] > hi[probe_idx]
            probe_idx, row_idx = probe_idx[lives], row_idx[lives]
        return probe_idx, t.pos[row_idx]

    def _set(self, tuples: Tuples, sent: np.ndarray) -> None:
        self.tuples, self.sent, self._index = tuples, sent, None
