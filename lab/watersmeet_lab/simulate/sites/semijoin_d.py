"""SM-D1 and SM-D2: the source ships rows that will be matched, because it knows V_2 or because it has asked.

Implements: Tran and Lee (2010), algorithms 5 (with the vectors of 9) and 6.
What waits at either site for an answer is dropped when its heads, or all its tuples, are out of every window: an answer that comes
later than delta allows finds nothing.

Departs from the paper: SM-D2 ships no empty K'_1; results arise at N_2, which knows that there are none.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.simulate.sites.halves import Destination, Done, Joint, Out, Sent, Source
from watersmeet_lab.simulate.sites.semijoin_s2 import Update
from watersmeet_lab.simulate.sites.simple import JoiningDestination
from watersmeet_lab.simulate.sites.window import NOTHING, Arrival, Rows, Values, Window, among


class ReducingSource(Source):
    """SM-D1: V_2@N_1 is here."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.values = Values()

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        kept = np.flatnonzero(self.values.find(self.joint.codes(rows)) >= 0)
        if len(kept):
            yield self.joint.rows("rows", tick, rows.take(kept))

    def receive(self, message: Sent, low: int) -> Out:
        update: Update = message.payload
        self.values.append(update.new, np.zeros(len(update.new), np.int64))
        self.values.count = update.counts.copy()
        self.values.drop_empty()
        yield from ()


class CountingDestination(JoiningDestination):
    """SM-D1: V_2 is here, and told to N_1."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.values = Values()

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        gone, _, _ = self._update(arrival, low)
        if len(arrival.tuples) == len(gone) == 0:
            return
        new = self.values.add(arrival.tuples.code)
        self.values.subtract(gone.code)
        yield Update(new, self.values.count.copy(), NOTHING, NOTHING.pos).make_message(self.joint, tick)
        self.values.drop_empty()


class OfferingSource(Source):
    """SM-D2: keys go first, rows follow if they are wanted."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.waiting: dict[int, tuple[int, Rows]] = {}

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        self.waiting = {t: (at, r) for t, (at, r) in self.waiting.items() if at >= low}
        self.waiting[tick] = int(rows.at.max()), rows
        yield self.joint.keys("keys", tick, np.unique(self.joint.codes(rows)))

    def receive(self, message: Sent, low: int) -> Out:
        if message.tick in self.waiting:
            _, rows = self.waiting.pop(message.tick)
            yield self.joint.rows("rows", message.tick, rows.take(np.flatnonzero(self._select_wanted(message, rows))))

    def _select_wanted(self, message: Sent, rows: Rows) -> np.ndarray:
        return among(self.joint.codes(rows), message.payload)


class WantingDestination(Destination):
    """SM-D2: keys are answered by those that match; the matching tuples wait in Temp."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.temp: dict[int, Window] = {}

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        self._update(arrival, low)
        self.temp = {t: w for t, w in self.temp.items() if w.tuples.until.max() >= low}
        yield from ()

    def receive(self, message: Sent) -> Out:
        if message.kind == "keys":
            matching = self.window.tuples.take(np.flatnonzero(self.window.find_values(message.payload)))
            if len(matching):
                self.temp[message.tick] = Window(matching)
                yield self.joint.keys("wanted", message.tick, np.unique(matching.code))
        elif message.tick in self.temp:
            yield Done(message.tick, self.joint.join(message.payload, self.temp.pop(message.tick)))

    def oldest(self) -> int | None:
        return min(self.temp, default=None)
