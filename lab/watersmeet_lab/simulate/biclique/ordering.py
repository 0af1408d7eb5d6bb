"""The order-consistent protocol of a unit's inbox: first-in-first-out per sender, then one order for all units.

    network  ->  Fifo: number 3 waits until 1 and 2 of the same dispatcher have come
             ->  GlobalOrder: a copy waits until every dispatcher's latest signal is above its clock

                 dispatcher 0   ---(3)-----(5)--|signal 6|--(8)---        smallest signal 6: the copies with clocks 3, 4
                 dispatcher 1   ------(4)----------(7)--|signal 9|        and 5 are released in this order; 7 and 8 wait

Invariant: with both, what a unit is given is a subsequence of one global sequence of all tuples, by (clock, dispatcher,
number), so for two tuples that meet at two units both units agree on which came first.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.2.3, definitions 2 and 3.
Departs from the paper: a logical timestamp is a triple; its counter, one per tuple, only breaks ties of one dispatcher.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from watersmeet.routing.hypercube import Role


class Stamp(NamedTuple):
    """A logical timestamp: its order is the global order."""

    clock_us: int
    dispatcher: int
    number: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A tuple on its way to a unit: row `row` of side `side`."""

    stamp: Stamp
    side: int
    row: int
    role: Role


@dataclass(frozen=True, slots=True)
class Signal:
    """A dispatcher's promise: no tuple that it sends from now on has a smaller clock."""

    dispatcher: int
    clock_us: int


class Fifo:
    """Messages of every sender in the order of their numbers, which begin at 0; those that come too early are held back.

    >>> inbox = Fifo()
    >>> [list(inbox.take("d", n, text)) for n, text in ((1, "second"), (0, "first"), (2, "third"))]
    [[], ['first', 'second'], ['third']]
    """

    def __init__(self) -> None:
        self.held = 0
        self._next: dict[str, int] = {}
        self._early: dict[str, dict[int, Any]] = {}

    def take(self, sender: str, number: int, message: Any) -> Iterator[Any]:
        """The messages whose turn it is, now that this one has come."""
        early = self._early.setdefault(sender, {})
        early[number] = message
        self.held += 1
        due = self._next.get(sender, 0)
        while due in early:
            self.held -= 1
            self._next[sender] = due + 1
            yield early.pop(due)
            due += 1


class GlobalOrder:
    """Copies wait in a priority queue for the signals of all dispatchers."""

    def __init__(self, dispatchers: int) -> None:
        self._latest: list[int | None] = [None] * dispatchers
        self._waiting: list[tuple[Stamp, Copy]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, copy: Copy) -> None:
        heapq.heappush(self._waiting, (copy.stamp, copy))

    def signal(self, signal: Signal) -> None:
        """Keep a dispatcher's latest signal; a signal that was overtaken changes nothing."""
        latest = self._latest[signal.dispatcher]
        self._latest[signal.dispatcher] = signal.clock_us if latest is None else max(latest, signal.clock_us)

    def release(self) -> list[Copy]:
        """The copies below the smallest latest signal, in the global order."""
        known = [clock for clock in self._latest if clock is not None]
        if len(known) < len(self._latest):
            return []
        out, least = [], min(known)
        while self._waiting and self._waiting[0][0].clock_us < least:
            out.append(heapq.heappop(self._waiting)[1])
        return out
