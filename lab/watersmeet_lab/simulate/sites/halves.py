"""The two halves of a one-way join, at the source's site and at the destination's, and what they say to each other.

    source half          destination half
    probe(rows)          arrive(tuples)        once per interval: what the head's tuples have become, and S_2's new tuples
    receive(message)     receive(message)      what the other half has shipped

Halves share nothing; all that one knows of the other it has been told, and is counted. A half that has nothing to ship ships
nothing, but SM-S1 always answers: the source could not tell "no new tuples" from a late answer.

Messages of a line arrive in the order in which they were sent. `low` is the order time before which no head is under way any more:
windows drop what died before it.

Invariant: Done(tick, rows) comes at most once per interval, and holds every pair of the interval's rows with a tuple of S_2 that is
older than the head and alive at its time.
Implements: Tran and Lee (2010), section 3.1. N_1 is the source's site, N_2 the destination's.
Departs from the paper: keys that are NULL join nothing and are dropped where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from watersmeet_lab.simulate.sites.window import NONE, Arrival, Rows, Tuples, Window

NUMBER_BYTES = 8


class Sent(NamedTuple):
    """A message to the other half; `nbytes` as if its tuples and values travelled."""

    kind: str
    tick: int
    payload: Any
    rows: int
    nbytes: int


class Done(NamedTuple):
    """Results of an interval, where they arise."""

    tick: int
    rows: Rows


Out = Iterator[Sent | Done]


@dataclass(frozen=True)
class Joint:
    """What both halves know of a one-way join beforehand."""

    codes: Callable[[Rows], np.ndarray] = field(repr=False)
    """Keys of the source's rows."""
    lowest: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    """For heads' order times, the earliest order time that they can meet."""
    extend: Callable[[Rows, np.ndarray, np.ndarray], Rows] = field(repr=False)
    """Rows of pairs (row_idx, tuples' numbers)."""
    row_bytes: int
    """Of the source's rows: F_1."""
    tuple_bytes: int
    """Of the destination's tuples: F_2."""
    key_bytes: int
    counted: bool = False
    """Whether the destination's window is one of rows."""
    limited: bool = True
    """Constraint 3."""
    joining: bool = True
    """Whether results are made; without, only what is shipped can be counted."""

    def join(self, rows: Rows, window: Window) -> Rows:
        """The T_2-limit join."""
        if not self.joining:
            return rows.take(NONE)
        row_idx, pos = window.join(self.codes(rows), self.lowest(rows.at), rows.at - 1, self.limited)
        return self.extend(rows, row_idx, pos)

    def rows(self, kind: str, tick: int, rows: Rows) -> Sent:
        return Sent(kind, tick, rows, len(rows), len(rows) * self.row_bytes)

    def keys(self, kind: str, tick: int, keys: np.ndarray) -> Sent:
        return Sent(kind, tick, keys, len(keys), len(keys) * self.key_bytes)

    def tuples(self, kind: str, tick: int, tuples: Tuples) -> Sent:
        return Sent(kind, tick, tuples, len(tuples), len(tuples) * (self.tuple_bytes + self._number))

    @property
    def _number(self) -> int:
        return NUMBER_BYTES if self.counted else 0


class Source:
    """The half at N_1."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        """The rows of an interval; never empty."""
        raise NotImplementedError

    def receive(self, message: Sent, low: int) -> Out:
        """A message of the destination."""
        raise NotImplementedError

    def oldest(self) -> int | None:
        """The first interval whose results are still to come from here."""
        return None


class Destination:
    """The half at N_2, which has the window W_2."""

    def __init__(self, joint: Joint) -> None:
        self.joint, self.window = joint, Window()

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        """The tuples of an interval, perhaps none."""
        self._update(arrival, low)
        yield from ()

    def receive(self, message: Sent) -> Out:
        """A message of the source."""
        raise NotImplementedError

    def oldest(self) -> int | None:
        """The first interval whose results are still to come from here."""
        return None

    def _update(self, arrival: Arrival, low: int) -> tuple[Tuples, np.ndarray, np.ndarray]:
        """W_2 takes and drops tuples: which have gone, which of these were sent, and when sent tuples leave a window of rows."""
        self.window.insert(arrival.tuples)
        times = self.window.expire(arrival.expired, arrival.expired_at)
        return *self.window.remove_before(low), times
