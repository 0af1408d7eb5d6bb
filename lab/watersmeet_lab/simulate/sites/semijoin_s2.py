"""SM-S2: the source knows the destination's values, asks for the tuples of a value once, and is told of later ones.

Invariant: V_2 and M_2 hold the same values in the same order; M_2 has all tuples of W_2 of the values that were asked for.
Implements: Tran and Lee (2010), algorithm 4 with 7 and 9: mixed window M_2, vectors v_J and v_C, set s_F.
Departs from the paper: Temp is joined with M_2 instead of delta W'_2, and a value is asked for once. If the answer takes longer than an
interval, the next interval's delta W'_2 lacks the tuples that the first has asked for, and its results would be lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet_lab.simulate.sites.halves import NUMBER_BYTES, Destination, Done, Joint, Out, Sent, Source
from watersmeet_lab.simulate.sites.window import Arrival, Rows, Tuples, Values, Window, counts_bytes, together


class Update(NamedTuple):
    """v_J, v_C, s_F, and of a window of rows when sent tuples leave it."""

    new: np.ndarray
    counts: np.ndarray
    full: Tuples
    times: np.ndarray

    def make_message(self, joint: Joint, tick: int) -> Sent:
        full = joint.tuples("", tick, self.full)
        nbytes = (
            len(self.new) * joint.key_bytes + counts_bytes(self.counts) + full.nbytes + len(self.times) * NUMBER_BYTES
        )
        return Sent("update", tick, self, len(self.new) + full.rows, nbytes)


class MixedSource(Source):
    """SM-S2: M_2 is here, values of which some have full tuples."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.values, self.window = Values(), Window()
        self.waiting: dict[int, tuple[int, list[Rows], Rows]] = {}
        """By interval: whose answer it waits for, what it has joined, and Temp."""
        self._asked_last = -1
        self._full = np.zeros(0, bool)
        """Entries whose full tuples are here; `values.asked` says of which they have been asked for."""

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        codes = self.joint.codes(rows)
        entry = self.values.find(codes)
        some = np.zeros(len(rows), bool)
        full = some.copy()
        known = entry >= 0
        some[known] = True
        full[known] = self._full[entry[known]]
        joined = [self.joint.join(rows.take(np.flatnonzero(full)), self.window)]
        partial = np.flatnonzero(some & ~full)
        if len(partial) == 0:
            yield Done(tick, joined[0])
            return
        wanted = np.unique(entry[partial])
        wanted = wanted[~self.values.asked[wanted]]
        if len(wanted):
            self.values.asked[wanted] = True
            self._asked_last = tick
            yield self.joint.keys("ask", tick, self.values.value[wanted])
        self.waiting[tick] = self._asked_last, joined, rows.take(partial)

    def receive(self, message: Sent, low: int) -> Out:
        if message.kind == "update":
            self._update(message.payload)
            return
        asked, tuples = message.payload
        self.window.insert(tuples)
        at = self.values.find(asked)
        self._full[at[at >= 0]] = True
        for tick in [t for t, (answer, _, _) in self.waiting.items() if answer <= message.tick]:
            _, joined, temp = self.waiting.pop(tick)
            yield Done(tick, together([*joined, self.joint.join(temp, self.window)]))

    def oldest(self) -> int | None:
        return min(self.waiting, default=None)

    def _update(self, update: Update) -> None:
        """Algorithm 9, lines 24 to 40: the oldest c + q - p tuples of every value have gone."""
        self.values.append(update.new, np.zeros(len(update.new), np.int64))
        self._full = np.concatenate([self._full, np.zeros(len(update.new), bool)])
        self.window.expire_next(update.times)  # of tuples that were here before; those that come know theirs
        self.window.insert(update.full)
        excess = self.values.count.copy()
        np.add.at(excess, self.values.find(update.full.code), 1)
        excess -= update.counts
        entry = self.values.find(self.window.tuples.code)
        self.window.keep(_rank(entry) >= excess[entry])
        self.values.count = update.counts.copy()
        self._full = self._full[self.values.count > 0]
        self.values.drop_empty()


class MirroringDestination(Destination):
    """SM-S2: V_2 is here, and told to N_1."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.values = Values()

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        gone, _, times = self._update(arrival, low)
        tuples = arrival.tuples
        if len(tuples) == len(gone) == len(times) == 0:
            return
        entry = self.values.find(tuples.code)
        known = np.zeros(len(tuples), bool)
        known[entry >= 0] = self.values.asked[entry[entry >= 0]]
        new = self.values.add(tuples.code)
        self.values.subtract(gone.code)
        # As the window has them: one that has come may be out of a window of rows already.
        asked = np.isin(self.window.tuples.pos, tuples.pos[known])
        self.window.sent |= asked
        full = self.window.tuples.take(np.flatnonzero(asked))
        yield Update(new, self.values.count.copy(), full, times).make_message(self.joint, tick)
        self.values.drop_empty()

    def receive(self, message: Sent) -> Out:
        asked = message.payload
        at = self.values.find(asked)
        self.values.asked[at[at >= 0]] = True
        found = self.joint.tuples("tuples", message.tick, self.window.unsent(self.window.find_values(np.sort(asked))))
        yield found._replace(payload=(asked, found.payload))


def _rank(group: np.ndarray) -> np.ndarray:
    """How many of the same group come before.

    >>> _rank(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(group) else order
    first = np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(group)) - first
    return out
