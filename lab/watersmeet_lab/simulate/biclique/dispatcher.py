"""The dispatcher: gives every tuple that it takes a logical timestamp, and sends it to the units of its routing.

Each pair of dispatcher and unit has its own sequence numbers, which signals share with tuples: by them a unit knows that
it has all that came before a signal.

Invariant: clocks never go back, so a signal is above all stamps before it and at most equal to all after it.
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.2.1 (router) and 3.2.3 (logical clock, signal tuples).
Departs from the paper: the clock is no mere counter but follows the dispatcher's own time, which may be off; the counter of
a dispatcher with little to do would stand still, and hold back everybody's tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from watersmeet.routing.hypercube import Role
from watersmeet_lab.simulate.biclique.ordering import Copy, Signal, Stamp

Letter = tuple[int, int, Copy | Signal]
"""(unit, sequence number, what it carries)."""


class Dispatcher:
    """One dispatcher task; its own time is ahead of the true one by `offset_us`."""

    def __init__(self, number: int, units: int, offset_us: int = 0) -> None:
        self.number, self.offset_us = number, offset_us
        self.signalled_us = self.stamped_us = offset_us - 1
        """The clock of the latest signal, and of the latest tuple."""
        self._clock_us, self._count = offset_us, 0
        self._sent = [0] * units

    def dispatch(self, now_us: int, side: int, row: int, places: Iterable[tuple[int, Role]]) -> Iterator[Letter]:
        """The copies of a tuple for the unit that stores it and for those that it probes."""
        stamp = Stamp(self._tick(now_us), self.number, self._count)
        self._count += 1
        self.stamped_us = stamp.clock_us
        for unit, role in places:
            yield self._letter(unit, Copy(stamp, side, row, role))

    def signal(self, now_us: int) -> Iterator[Letter]:
        """The signal for every unit."""
        signal = Signal(self.number, self._tick(now_us))
        self.signalled_us = signal.clock_us
        for unit in range(len(self._sent)):
            yield self._letter(unit, signal)

    def _tick(self, now_us: int) -> int:
        self._clock_us = max(self._clock_us, now_us + self.offset_us)
        return self._clock_us

    def _letter(self, unit: int, body: Copy | Signal) -> Letter:
        number = self._sent[unit]
        self._sent[unit] += 1
        return unit, number, body
