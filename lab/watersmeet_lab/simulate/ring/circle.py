"""The ring: nodes and keys on one circle of identifiers, and what lookups on it cost.

A key is a 64-bit code of (stream, column) or (stream, column, value); it belongs to the first node at or after it. Nodes
join, leave and move; what changes owner then are the keys of one arc:

    join n between p and s        (p, n] goes from s to n
    leave n, before s             (p, n] goes from n to s
    move                          leave, then join elsewhere

Invariant: a `Ring` never changes; joins, leaves and moves give a new one. Nodes have numbers that stay, whatever the
circle does; every key has exactly one owner while there is a node.
Implements: Idreos, Liarou, Koubarakis (2008), section 2: Successor, send, multiSend; Chord is Stoica et al. (2001).
Departs from the paper: identifiers have 64 bits and come from the mixing function of `kernels.hashing`, not from SHA-1;
finger tables are always right (section 4 assumes that of Successor), so stabilisation is not simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.kernels.hashing import combine
from watersmeet_lab.simulate.ring.kernels import chord

_PLACES = 0x52_494E_47


@dataclass(frozen=True)
class Ring:
    """Nodes on a circle; build it with `of`.

    >>> ring = Ring.of(8)
    >>> keys = np.arange(-512, 512, dtype=np.int64) * 2**54
    >>> sorted({int(n) for n in ring.owners(keys)}) == list(range(8))
    True
    >>> without = ring.leave(3)
    >>> bool(np.any(without.owners(keys) == 3)), len(without)
    (False, 7)
    """

    ids: np.ndarray = field(repr=False)
    """Ascending identifiers, and in the same order:"""
    nodes: np.ndarray
    """the numbers of the nodes."""

    @classmethod
    def of(cls, nodes: int, seed: int = 0) -> Ring:
        """Nodes 0 to n - 1 at places that a hash chooses."""
        if nodes < 1:
            raise OptionError(f"nodes={nodes}: a ring has one node or more")
        return cls.at({n: place(n, seed) for n in range(nodes)})

    @classmethod
    def at(cls, places: Mapping[int, int]) -> Ring:
        """Nodes at given identifiers."""
        order = sorted(places, key=places.__getitem__)
        ids = np.array([places[n] for n in order], np.uint64)
        if len(np.unique(ids)) < len(ids):
            raise OptionError("two nodes of the ring have the same identifier; move one of them")
        return cls(ids, np.array(order, np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def places(self) -> dict[int, int]:
        """Identifiers by node."""
        return {int(n): int(i) for n, i in zip(self.nodes, self.ids, strict=True)}

    @cached_property
    def fingers(self) -> np.ndarray:
        return chord.finger_table(self.ids)

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions by node, -1 for those that have left."""
        out = np.full(int(self.nodes.max()) + 1, -1, np.int64)
        out[self.nodes] = np.arange(len(self.nodes))
        return out

    def owners(self, keys: np.ndarray) -> np.ndarray:
        """The node of every key."""
        return self.nodes[chord.successors(self.ids, keys)]

    def send(self, senders: np.ndarray, keys: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """The hops of a message from every sender to the owner of its key; `sent` counts, by node, who passes them on."""
        return chord.routes(self.ids, self.fingers, self.nodes, self.positions[senders], keys, sent)

    def join(self, node: int, at: int) -> Ring:
        """A node enters at an identifier."""
        if node in self.places:
            raise OptionError(f"node {node} is on the ring already; move it, or join under another number")
        return Ring.at({**self.places, node: at})

    def leave(self, node: int) -> Ring:
        """A node goes, and its successor gets its keys."""
        if len(self) == 1 or node not in self.places:
            raise OptionError(
                f"node {node} cannot leave: it is {'the last one' if node in self.places else 'not there'}"
            )
        return Ring.at({n: at for n, at in self.places.items() if n != node})

    def move(self, places: Mapping[int, int]) -> Ring:
        """Nodes change their identifiers: each leaves, and joins again elsewhere."""
        gone = sorted(places.keys() - self.places.keys())
        if gone:
            raise OptionError(f"node {gone[0]} cannot move: it is not on the ring")
        return Ring.at({**self.places, **places})


def place(node: int, seed: int = 0) -> int:
    """Where a node enters by itself: a hash of its number."""
    code = combine(np.array([_PLACES + seed], np.int64), np.array([node], np.int64))
    return int(code.view(np.uint64)[0])
