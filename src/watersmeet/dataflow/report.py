"""What units tell of their turns: figures for progress, and what decisions between batches are made by.

Invariant: nothing that a turn computes depends on a report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """One unit, one turn or several."""

    rows_in: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    """By stream, or streams, rows and combinations that were set aside because they break an expression."""
    results: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)
    retained: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    memory: int = 0
    """Bytes of its tuples and their indexes, in memory: several times `bytes`."""
    seconds: float = 0.0
    """CPU time of its turns."""
    kernels: dict[str, int] = field(default_factory=dict)
    """New tuples that each kernel was given."""
    pruned: int = 0
    """New tuples that were dropped before a probe: they had no window partner in some stream."""
    drivers: list[str] = field(default_factory=list)
    """In which order the sides' new tuples were processed; 'a | b' if tuple by tuple."""
    policy: str = ""
    """What chose that order; nothing where a unit has one driver only."""
    measured: dict[str, Any] = field(default_factory=dict)
    """By alias, what a site has seen of its stream, see `sites.plan_change.survey`."""
    frequent: dict[str, dict[str, list[list[int]]]] = field(default_factory=dict)
    """By side and dimension of the grid its most frequent keys, see `operators.adopt`."""
    values: dict[str, list[list[float]]] = field(default_factory=dict)
    """By side a sample of what ranges route by, see `routing.depth`."""
    arc: list[int] = field(default_factory=list)
    """How much a node of a ring has, and the key up to which it is half of that, see `registry.placement`."""
    found: int = 0
    """Combinations that left the join."""
    looked: int = 0
    """Combinations that look-ups found, before conditions were tested."""
    fetched_bytes: int = 0
    """Of segments that the unit's host did not have."""
    registered: dict[str, Sequence[float]] = field(default_factory=dict)
    """By id of a registered query: its answers, CPU seconds that it took, the time of its youngest answer, and its version; queries without answers are there if they are among the dearest."""

    def include(self, later: Report) -> None:
        """Add a later turn."""
        flows = (
            (self.rows_in, later.rows_in),
            (self.late, later.late),
            (self.broken, later.broken),
            (self.kernels, later.kernels),
        )
        for mine, its in flows:
            for name, rows in its.items():
                mine[name] = mine.get(name, 0) + rows
        self.results += later.results
        self.found += later.found
        self.looked += later.looked
        self.frequent |= later.frequent
        self.arc = later.arc or self.arc
        self.values |= later.values
        self.pruned += later.pruned
        self.fetched_bytes += later.fetched_bytes
        self.watermarks, self.retained, self.bytes = later.watermarks, later.retained, later.bytes
        self.memory, self.seconds = later.memory, self.seconds + later.seconds
        if later.drivers:
            self.drivers, self.policy = later.drivers, later.policy
        self.measured |= later.measured
        merge_figures(self.registered, later.registered)


def merge_figures(sums: dict[str, Sequence[float]], told: Mapping[str, Sequence[float]]) -> None:
    """Add what registered queries took, see `Report.registered`; thousands answer in a micro-batch.

    >>> sums = {"q": [2, 0.5, 7, 1]}
    >>> merge_figures(sums, {"q": (1, 0.25, 3, 1), "r": (1, 0.5, 9, 4)})
    >>> sums
    {'q': (3, 0.75, 7, 1), 'r': (1, 0.5, 9, 4)}
    """
    if not sums:
        sums.update(told)
        return
    for id, its in told.items():
        mine = sums.get(id)
        if mine is not None:
            its = mine[0] + its[0], mine[1] + its[1], max(mine[2], its[2]), its[3]
        sums[id] = its


def count_orders(units: Iterable[Sequence[str]]) -> dict[str, int]:
    """The orders of drivers of some units, and at how many of them; most frequent first.

    >>> count_orders([["b", "a"], [], ["b", "a"], ["a", "b"]])
    {'b, a': 2, 'a, b': 1}
    """
    return dict(Counter(", ".join(drivers) for drivers in units if drivers).most_common())
