"""What sites exchange and keep, literally: tuples of a stream, rows that a head's tuples have become, values, and windows.

Times are *order times*: event time * number of streams + position of the stream. Their order is (ts, alias), strict between
tuples of different streams, so "older than the head" and "still in its window" are comparisons of integers.

Payloads do not move: a tuple travels as its number in the stream's table, and its bytes are counted as if it did.

Invariant: rows hold one tuple of every stream joined so far; their time is their head's, the youngest's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels import hash_window
from watersmeet.kernels.hash_window import pairs

EVER = np.iinfo(np.int64).max
NONE = np.empty(0, np.int64)


class Rows(NamedTuple):
    """Joined tuples: the head's order time, and by alias the tuples' numbers."""

    at: np.ndarray
    members: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.at)

    def take(self, idx: np.ndarray) -> Rows:
        return Rows(self.at[idx], {a: m[idx] for a, m in self.members.items()})


def together(parts: list[Rows]) -> Rows:
    """Rows of the same streams as one."""
    if len(parts) == 1:
        return parts[0]
    members = {a: np.concatenate([p.members[a] for p in parts]) for a in parts[0].members}
    return Rows(np.concatenate([p.at for p in parts]), members)


class Tuples(NamedTuple):
    """Tuples of a destination, for one join: their numbers, order times, last order times at which they may be met, keys."""

    pos: np.ndarray
    at: np.ndarray
    until: np.ndarray
    code: np.ndarray

    def __len__(self) -> int:
        return len(self.pos)

    def take(self, idx: np.ndarray) -> Tuples:
        return Tuples(*(column[idx] for column in self))

    def expire_at(self, until: np.ndarray) -> Tuples:
        """The same with other ends."""
        return Tuples(self.pos, self.at, until, self.code)

    def with_keys(self, code: np.ndarray) -> Tuples:
        """The same with other keys; those without one go."""
        return Tuples(self.pos, self.at, self.until, code).take(np.flatnonzero(code >= 0))


NOTHING = Tuples(NONE, NONE, NONE, NONE)


class Arrival(NamedTuple):
    """What an interval brings to a window: new tuples, and of a window of rows which tuples they have pushed out, and when."""

    tuples: Tuples
    expired: np.ndarray = NONE
    expired_at: np.ndarray = NONE


class Values:
    """An array of distinct values; `asked` says whose full tuples the other site has asked for."""

    def __init__(self) -> None:
        self.value, self.count, self.asked = NONE, NONE, np.zeros(0, bool)
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.value)

    def find(self, codes: np.ndarray) -> np.ndarray:
        """The entry of every code; -1 if there is none."""
        if len(self) == 0:
            return np.full(len(codes), -1)
        if self._sorted is None:
            order = np.argsort(self.value, kind="stable")
            self._sorted = self.value[order], order
        values, order = self._sorted
        at = np.minimum(np.searchsorted(values, codes), len(values) - 1)
        return np.where(values[at] == codes, order[at], -1)

    def add(self, codes: np.ndarray) -> np.ndarray:
        """Count tuples; the values that were not there, in the order in which they came: v_J."""
        at = self.find(codes)
        np.add.at(self.count, at[at >= 0], 1)
        new = codes[at < 0]
        values, first, counts = np.unique(new, return_index=True, return_counts=True)
        order = np.argsort(first)
        self.append(values[order], counts[order])
        return values[order]

    def subtract(self, codes: np.ndarray) -> None:
        """Tuples have gone."""
        np.subtract.at(self.count, self.find(codes), 1)

    def append(self, values: np.ndarray, counts: np.ndarray) -> None:
        """New entries, not asked for."""
        if len(values):
            self.value = np.concatenate([self.value, values])
            self.count = np.concatenate([self.count, counts])
            self.asked = np.concatenate([self.asked, np.zeros(len(values), bool)])
            self._sorted = None

    def drop_empty(self) -> None:
        """Entries that count nothing go."""
        some = self.count > 0
        if not some.all():
            self.value, self.count, self.asked = self.value[some], self.count[some], self.asked[some]
            self._sorted = None


def counts_bytes(counts: np.ndarray) -> int:
    """The size of a count vector: a byte for seven bits of each.

    >>> counts_bytes(np.array([0, 127, 128, 20_000]))
    7
    """
    return int(len(counts) + sum(np.count_nonzero(counts >= 1 << bits) for bits in (7, 14, 21, 28)))


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
        self._set(self.tuples.expire_at(until), self.sent)
        return at[here][self.sent[idx[here]]]

    def expire_next(self, at: np.ndarray) -> None:
        """The first tuples that have not expired do so at these times."""
        if len(at):
            first = int(np.searchsorted(self.tuples.until, EVER))
            until = self.tuples.until.copy()
            until[first : first + len(at)] = at
            self._set(self.tuples.expire_at(until), self.sent)

    def unsent(self, asked: np.ndarray) -> Tuples:
        """Algorithm 7: the tuples of a mask that were not sent before; they are from now on."""
        found = np.flatnonzero(asked & ~self.sent)
        self.sent[found] = True
        return self.tuples.take(found)

    def find_values(self, values: np.ndarray) -> np.ndarray:
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
