"""SM-S1: the source asks for keys, and gets the tuples that it does not have yet.

Invariant: W'_2@N_1 is the part of W_2 that was sent; both drop the same tuples, told by their number alone.
Implements: Tran and Lee (2010), algorithm 3 with 7 and 8.
Departs from the paper: under a window of rows the instants at which sent tuples leave the window are sent (at once; their removal
waits). The paper sends the number of new tuples and removes as many from W'_2@N_1, which has only some of the tuples that leave W_2:
that removes live ones. A count of zero is not sent.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.simulate.sites.halves import NUMBER_BYTES, Destination, Done, Joint, Out, Sent, Source
from watersmeet_lab.simulate.sites.window import Arrival, Rows, Window


class AskingSource(Source):
    """SM-S1: W'_2@N_1 is here, a FIFO queue of the tuples that were asked for."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.window = Window()
        self.waiting: dict[int, Rows] = {}

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        self.waiting[tick] = rows
        yield self.joint.keys("keys", tick, np.unique(self.joint.codes(rows)))

    def receive(self, message: Sent, low: int) -> Out:
        if message.kind == "expired":
            k, times = message.payload
            self.window.expire_next(times)
            self.window.remove_first(k)
        else:
            self.window.insert(message.payload)
            yield Done(message.tick, self.joint.join(self.waiting.pop(message.tick), self.window))

    def oldest(self) -> int | None:
        return min(self.waiting, default=None)


class AnsweringDestination(Destination):
    """SM-S1: sends what was not sent before, and counts what of it expires."""

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        _, sent, times = self._update(arrival, low)
        k = int(np.count_nonzero(sent))
        if k or len(times):
            yield Sent("expired", tick, (k, times), 0, NUMBER_BYTES * (1 + len(times)))

    def receive(self, message: Sent) -> Out:
        yield self.joint.tuples("tuples", message.tick, self.window.unsent(self.window.find_values(message.payload)))
