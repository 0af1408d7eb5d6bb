"""A one-way join by itself: both halves in turn, nothing delayed; what it ships, interval by interval.

Invariant: results and messages are those of the same join on a network without delays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from watersmeet.sites.planning.model import Algorithm
from watersmeet_lab.simulate.sites.halves import Done, Joint, Sent
from watersmeet_lab.simulate.sites.one_way import HALVES
from watersmeet_lab.simulate.sites.window import NONE, Arrival, Rows


@dataclass
class Shipped:
    """By interval; `out` from source to destination, `back` the other way."""

    out_shipments: np.ndarray
    out_bytes: np.ndarray
    back_shipments: np.ndarray
    back_bytes: np.ndarray
    processing_s: np.ndarray
    results: dict[int, Rows] = field(default_factory=dict)

    def by_interval(self) -> list[Rows]:
        """Results of every interval; rows without members where there are none."""
        return [self.results.get(n, Rows(NONE, {})) for n in range(len(self.out_bytes))]

    def per_second(self, first: int, interval_s: float) -> tuple[float, float, float]:
        """Shipments, bytes and seconds of processing from an interval on."""
        spans = (len(self.out_bytes) - first) * interval_s
        shipments = self.out_shipments[first:].sum() + self.back_shipments[first:].sum()
        nbytes = self.out_bytes[first:].sum() + self.back_bytes[first:].sum()
        return shipments / spans, nbytes / spans, self.processing_s[first:].sum() / spans


def run(
    algorithm: Algorithm,
    joint: Joint,
    heads: Sequence[Rows],
    arrivals: Sequence[Arrival],
    lows: Sequence[int],
) -> Shipped:
    """Interval by interval: S_2's tuples come, then the source's rows probe."""
    n = len(heads)
    found = Shipped(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n))
    first, second = HALVES[algorithm]
    source, destination = first(joint), second(joint)
    for tick, (rows, arrival, low) in enumerate(zip(heads, arrivals, lows, strict=True)):
        began = perf_counter()
        queue: deque[tuple[str, Sent]] = deque()

        def take(
            sender: str, out: Iterator[Sent | Done], tick: int = tick, queue: deque[tuple[str, Sent]] = queue
        ) -> None:
            for item in out:
                if isinstance(item, Done):
                    found.results[item.tick] = item.rows
                    continue
                queue.append((sender, item))
                shipments, nbytes = (
                    (found.out_shipments, found.out_bytes)
                    if sender == "source"
                    else (found.back_shipments, found.back_bytes)
                )
                shipments[tick] += 1
                nbytes[tick] += item.nbytes

        def settle(low: int = low, queue: deque[tuple[str, Sent]] = queue) -> None:
            while queue:
                sender, message = queue.popleft()
                if sender == "source":
                    take("destination", destination.receive(message))
                else:
                    take("source", source.receive(message, low))

        take("destination", destination.arrive(tick, arrival, low))
        settle()
        known = rows.take(np.flatnonzero(joint.codes(rows) >= 0)) if len(rows) else rows
        if len(known):
            take("source", source.probe(tick, known, low))
            settle()
        found.processing_s[tick] = perf_counter() - began
    return found
