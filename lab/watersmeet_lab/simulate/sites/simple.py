"""Simple joins: whole tuples go to where the results arise.

Implements: Tran and Lee (2010), algorithms 1 (SP-S) and 2 (SP-D).
"""

from __future__ import annotations

from watersmeet_lab.simulate.sites.halves import Destination, Done, Joint, Out, Sent, Source
from watersmeet_lab.simulate.sites.window import Arrival, Rows, Window


class SimpleSource(Source):
    """SP-S: W_2@N_1 is here."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.window = Window()

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        yield Done(tick, self.joint.join(rows, self.window))

    def receive(self, message: Sent, low: int) -> Out:
        arrival: Arrival = message.payload
        self.window.insert(arrival.tuples)
        self.window.expire(arrival.expired, arrival.expired_at)
        self.window.remove_before(low)
        yield from ()


class Exporter(Destination):
    """SP-S: W_2 is exported."""

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        if len(arrival.tuples) or len(arrival.expired):
            _, _, _, rows, nbytes = self.joint.tuples("tuples", tick, arrival.tuples)
            yield Sent("tuples", tick, arrival, rows, nbytes)


class Shipper(Source):
    """SP-D: everything is shipped."""

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        yield self.joint.rows("rows", tick, rows)


class JoiningDestination(Destination):
    """SP-D, and the last step of SM-D1."""

    def receive(self, message: Sent) -> Out:
        yield Done(message.tick, self.joint.join(message.payload, self.window))
