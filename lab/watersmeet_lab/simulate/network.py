"""A simulated network: endpoints that send each other messages, and a clock that only messages and timers move.

    send at t  ->  wait until the line is free  ->  bytes / bandwidth  ->  latency + a random delay  ->  received

Each ordered pair of endpoints is a line of its own, with its own source of random delays, so what happens on one pair
does not change the delays of another. Delays let messages overtake one another unless the line keeps them in order.
An endpoint may enter and leave at any time; what arrives after it has left is lost, and counted.

Invariant: a simulation is a function of the network, its seed and what the endpoints do; there is no wall clock. Events
of the same instant happen in the order in which they were planned.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from watersmeet.errors import OptionError

Receive = Callable[[str, Any], None]
"""What an endpoint does with (sender, message)."""


@dataclass(frozen=True)
class Link:
    """What a message from one endpoint to another meets.

    >>> Link(latency_us=20_000, jitter_us=5_000).worst_us
    25000
    """

    latency_us: int = 0
    jitter_us: int = 0
    """A random delay of up to this much comes on top."""
    bytes_per_s: float | None = None
    """The bandwidth: messages wait for those before them. None: no limit."""
    arrival: Literal["any order", "in order"] = "any order"

    def __post_init__(self) -> None:
        for name in ("latency_us", "jitter_us"):
            if getattr(self, name) < 0:
                raise OptionError(
                    f"{name}={getattr(self, name)}: a message cannot arrive before it is sent; give 0 or more"
                )
        if self.bytes_per_s is not None and self.bytes_per_s <= 0:
            raise OptionError(f"bytes_per_s={self.bytes_per_s}: give a number above 0, or None for no limit")

    @property
    def worst_us(self) -> int | None:
        """The longest that a message can take; None if it may wait for others without end."""
        return self.latency_us + self.jitter_us if self.bytes_per_s is None else None


@dataclass(frozen=True)
class Network:
    """The links of a simulated network: one for all pairs, or a function of (sender, receiver)."""

    links: Link | Callable[[str, str], Link] = Link()
    seed: int = 0
    interval_us: int = 100_000
    """How often sites run a batch."""

    def __post_init__(self) -> None:
        if not isinstance(self.interval_us, int) or self.interval_us < 1:
            raise OptionError(f"interval_us={self.interval_us!r}: give a whole number of 1 or more")

    def link(self, sender: str, receiver: str) -> Link:
        """The link of a pair; an endpoint reaches itself at once."""
        if sender == receiver:
            return Link()
        return self.links if isinstance(self.links, Link) else self.links(sender, receiver)

    def worst_us(self, senders: list[str], receivers: list[str]) -> int | None:
        """The longest that a message between any of these can take; None if there is no bound."""
        worst = [self.link(s, r).worst_us for s in senders for r in receivers]
        return None if None in worst else max((w for w in worst if w is not None), default=0)


@dataclass
class Traffic:
    """What one pair has sent."""

    messages: int = 0
    rows: int = 0
    bytes: int = 0
    slowest_us: int = 0
    """The longest that one of the messages was under way."""

    def add(self, messages: int, rows: int, nbytes: int, slowest_us: int) -> None:
        self.messages += messages
        self.rows += rows
        self.bytes += nbytes
        self.slowest_us = max(self.slowest_us, slowest_us)


@dataclass
class _Line:
    """The state of one pair."""

    link: Link
    delays: random.Random
    traffic: Traffic = field(default_factory=Traffic)
    free_us: int = 0
    last_us: int = 0

    def arrival_us(self, now_us: int, nbytes: int) -> int:
        link, sent_us = self.link, now_us
        if link.bytes_per_s is not None:
            sent_us = max(now_us, self.free_us) + round(nbytes * 1e6 / link.bytes_per_s)
            self.free_us = sent_us
        at_us = sent_us + link.latency_us + (self.delays.randint(0, link.jitter_us) if link.jitter_us else 0)
        if link.arrival == "in order":
            at_us = max(at_us, self.last_us)
        self.last_us = at_us
        return at_us


class Simulation:
    """One run of a network: the clock, the messages under way, and the counts.

    >>> run = Simulation(Network(Link(latency_us=5)))
    >>> run.enter("b", lambda sender, message: print(run.now_us, sender, message))
    >>> run.at(10, lambda: run.send("a", "b", "hello", rows=1, nbytes=40))
    >>> run.run()
    15 a hello
    >>> run.traffic["a", "b"]
    Traffic(messages=1, rows=1, bytes=40, slowest_us=5)
    """

    def __init__(self, network: Network) -> None:
        self.network, self.now_us, self.lost = network, 0, 0
        self._endpoints: dict[str, Receive] = {}
        self._lines: dict[tuple[str, str], _Line] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    @property
    def traffic(self) -> dict[tuple[str, str], Traffic]:
        """By (sender, receiver)."""
        return {pair: line.traffic for pair, line in self._lines.items()}

    def total(self, senders: str = "", receivers: str = "") -> Traffic:
        """The traffic between all endpoints whose names begin like this."""
        out = Traffic()
        for (sender, receiver), t in self.traffic.items():
            if sender.startswith(senders) and receiver.startswith(receivers):
                out.add(t.messages, t.rows, t.bytes, t.slowest_us)
        return out

    def enter(self, endpoint: str, receive: Receive) -> None:
        """An endpoint receives messages from now on."""
        self._endpoints[endpoint] = receive

    def leave(self, endpoint: str) -> None:
        """An endpoint is gone: messages that reach it from now on are lost."""
        self._endpoints.pop(endpoint, None)

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Plan a local event."""
        assert time_us >= self.now_us
        heapq.heappush(self._events, (time_us, self._planned, action))
        self._planned += 1

    def send(self, sender: str, receiver: str, message: Any, *, rows: int = 0, nbytes: int = 0) -> None:
        """Send a message now."""
        line = self._line(sender, receiver)
        at_us = line.arrival_us(self.now_us, nbytes)
        line.traffic.add(1, rows, nbytes, at_us - self.now_us)
        self.at(at_us, lambda: self._receive(sender, receiver, message))

    def run(self) -> None:
        """Until nothing is under way and nothing is planned."""
        while self._events:
            self.now_us, _, action = heapq.heappop(self._events)
            action()

    def _line(self, sender: str, receiver: str) -> _Line:
        pair = sender, receiver
        if pair not in self._lines:
            delays = random.Random(f"{self.network.seed} {sender} {receiver}")
            self._lines[pair] = _Line(self.network.link(sender, receiver), delays)
        return self._lines[pair]

    def _receive(self, sender: str, receiver: str, message: Any) -> None:
        receive = self._endpoints.get(receiver)
        if receive is None:
            self.lost += 1
        else:
            receive(sender, message)
