"""What sites exchange: tuples of a stream, and rows that a head's tuples have become.

Times are *order times*: event time * number of streams + position of the stream. Their order is (ts, alias), strict between
tuples of different streams, so "older than the head" and "still in its window" are comparisons of integers.

Payloads do not move: a tuple travels as its number in the stream's table, and its bytes are counted as if it did.

Invariant: rows hold one tuple of every stream joined so far; their time is their head's, the youngest's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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

    def expiring(self, until: np.ndarray) -> Tuples:
        """The same with other ends."""
        return Tuples(self.pos, self.at, until, self.code)

    def keyed(self, code: np.ndarray) -> Tuples:
        """The same with other keys; those without one go."""
        return Tuples(self.pos, self.at, self.until, code).take(np.flatnonzero(code >= 0))


NOTHING = Tuples(NONE, NONE, NONE, NONE)


class Arrival(NamedTuple):
    """What an interval brings to a window: new tuples, and of a window of rows which tuples they have pushed out, and when."""

    tuples: Tuples
    expired: np.ndarray = NONE
    expired_at: np.ndarray = NONE
