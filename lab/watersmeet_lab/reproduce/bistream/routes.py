"""Routing alone: what is shipped and stored, without joining.

Storage over the full history only grows, so how much a unit holds after any number of input tuples is known from where
the router sends them. `claims.memory` checks that against what units stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.operators.enter import WireContent
from watersmeet_lab.reproduce.bistream.cluster import Cluster


@dataclass(frozen=True)
class Shipped:
    """Rows and bytes of the input and of what the router sends to units."""

    rows_in: tuple[int, int]
    bytes_in: tuple[float, float]
    rows: int
    bytes: float


def count_shipped(cluster: Cluster, tuples: int) -> Shipped:
    """What the first so many tuples of both streams together cost."""
    share = min(tuples / cluster.feed.rows, 1.0)
    tables = [w.slice(0, round(w.num_rows * share)).combine_chunks() for w in cluster.wires]
    *_, messages = cluster.enter(tables)
    rows = sum(m.table.num_rows for m in messages)
    sent = sum(m.table.nbytes for m in messages)
    (r, s) = tables
    return Shipped((r.num_rows, s.num_rows), (r.nbytes, s.nbytes), rows, float(sent))


class Storage:
    """When each unit stores how many bytes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.times = np.sort(np.concatenate(cluster.times))
        stage = cluster.plan.stages[0]
        held: list[list[tuple[np.ndarray, float]]] = [[] for _ in cluster.units]
        for side, wire in enumerate(cluster.wires):
            content = WireContent(cluster.plan, stage.sides[side].keys, wire.combine_chunks())
            for delivery in stage.routing.deliveries(side, content):
                if delivery.role != "probe":
                    at = cluster.times[side] if delivery.rows is None else cluster.times[side][delivery.rows]
                    for unit in delivery.units:
                        held[unit].append((at, cluster.tuple_bytes[side]))
        self.held = [_in_time(parts) for parts in held]

    @property
    def rows(self) -> list[int]:
        """Rows that each unit holds at the end."""
        return [len(at) for at, _ in self.held]

    def volume(self, limit_bytes: float) -> float:
        """How many input tuples have arrived when the first unit holds so much; more than all if none does."""
        full = [
            at[np.searchsorted(size, limit_bytes)] for at, size in self.held if len(size) and size[-1] >= limit_bytes
        ]
        if full:
            return float(np.searchsorted(self.times, min(full), side="right"))
        return self.cluster.feed.rows * limit_bytes / max(size[-1] for _, size in self.held if len(size))

    def bytes_per_tuple(self) -> float:
        """Bytes in the fullest unit for every input tuple."""
        return float(max(size[-1] for _, size in self.held if len(size)) / self.cluster.feed.rows)


def _in_time(parts: list[tuple[np.ndarray, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Times of arrival, and bytes held after each."""
    if not parts:
        return np.empty(0, np.int64), np.empty(0)
    times = np.concatenate([at for at, _ in parts])
    sizes = np.concatenate([np.full(len(at), size) for at, size in parts])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(sizes[order])
