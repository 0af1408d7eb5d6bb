"""Id movement: nodes with little to do move next to nodes with much, and take half of it.

    before   ---- light ------------- p ================ heavy ----      '=' are the keys of `heavy`
    after    ------------------------ p ======== light ==== heavy ----   light's own keys went to its successor

Invariant: only identifiers change, never keys; a move is made only if the heavier of the nodes concerned gets lighter. A
key that is heavy by itself cannot be split.
Implements: Karger, Ruhl (2004), item balancing, which Idreos, Liarou, Koubarakis (2008) use in section 8, figure 9.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from watersmeet_lab.simulate.ring.circle import Ring

EPSILON = 0.25
"""A node moves if it has less than this share of the other's load."""


def balance(ring: Ring, keys: np.ndarray, weights: np.ndarray, meetings: int, seed: int = 0) -> Ring:
    """The ring after so many meetings of two random nodes, of which the lighter may move; `weights` are the loads of keys.

    >>> keys = np.arange(1000, dtype=np.int64) * 2**40
    >>> ring = Ring.of(10)
    >>> most = lambda ring: int(np.bincount(ring.owners(keys), minlength=10).max())
    >>> most(ring), most(balance(ring, keys, np.ones(1000), 500)) < 300
    (1000, True)
    """
    circle = _Circle(ring, keys, weights)
    pairs = np.random.default_rng(seed).integers(0, len(ring), (meetings, 2))
    for x, y in ring.nodes[pairs].tolist():
        light, heavy = sorted((x, y), key=circle.load)
        if x != y and circle.load(light) < EPSILON * circle.load(heavy):
            circle.move(light, heavy)
    return ring.move(circle.moved)


class _Circle:
    """Nodes and the weight of their arcs while they move."""

    def __init__(self, ring: Ring, keys: np.ndarray, weights: np.ndarray) -> None:
        order = np.argsort(keys.view(np.uint64), kind="stable")
        self._keys = keys.view(np.uint64)[order]
        self._sum = np.concatenate([[0.0], np.cumsum(weights[order])])
        self.places = ring.places
        self._ids = [int(i) for i in ring.ids]
        self.moved: dict[int, int] = {}

    def load(self, node: int) -> float:
        low, high = self._arc(node)
        return self._between(low, high)

    def move(self, light: int, heavy: int) -> None:
        """Let `light` own the first half of what `heavy` owns, unless somebody would end up with more than heavy has now."""
        low, high = self._arc(heavy)
        total = self._between(low, high)
        middle = self._middle(low, total / 2)
        half = self._between(low, middle)
        heir = self._after(light)
        inherited = self.load(light) + (self.load(heir) if heir != heavy else total - half)
        if middle in (low, high) or middle in self._ids or max(half, total - half, inherited) >= total:
            return
        self._ids.remove(self.places[light])
        self._ids.insert(bisect_left(self._ids, middle), middle)
        self.places[light] = self.moved[light] = middle

    def _arc(self, node: int) -> tuple[int, int]:
        """(predecessor's identifier, own identifier]: what a node owns."""
        own = self.places[node]
        return self._ids[bisect_left(self._ids, own) - 1], own

    def _after(self, node: int) -> int:
        following = self._ids[(bisect_left(self._ids, self.places[node]) + 1) % len(self._ids)]
        return next(n for n, place in self.places.items() if place == following)

    def _up_to(self, place: int) -> float:
        """The weight of all keys in [0, place]."""
        return float(self._sum[np.searchsorted(self._keys, np.uint64(place), side="right")])

    def _between(self, low: int, high: int) -> float:
        inside = self._up_to(high) - self._up_to(low)
        return inside if low < high else inside + float(self._sum[-1])

    def _middle(self, low: int, weight: float) -> int:
        """The key at which the weight after `low`, clockwise, comes to this much."""
        goal = self._up_to(low) + weight
        if goal > self._sum[-1]:
            goal -= float(self._sum[-1])
        at = int(np.searchsorted(self._sum[1:], goal, side="left"))
        return int(self._keys[min(at, len(self._keys) - 1)])
