"""Equations 1 to 7 of Lin, Ooi, Wang, Yu (2015), one function each.

`Relation` has the terms of table 2 for one side. In equations 1 to 4 its `tuples` are those that have arrived (|R|); in
equations 5 and 6 they are those that arrive per second, and the result is bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """One side: |R| or its rate, the bytes of a tuple, and into how many partitions and subgroups it is cut."""

    tuples: float
    tuple_bytes: float
    partitions: int
    subgroups: int = 1

    @property
    def volume(self) -> float:
        """Bytes, or bytes per second."""
        return self.tuples * self.tuple_bytes


def memory_of_biclique(r: Relation, s: Relation) -> float:
    """Section 4.1, equation 1: every tuple is stored once, however many partitions there are.

    >>> memory_of_biclique(Relation(100, 10, 8), Relation(50, 20, 8))
    2000
    """
    return r.volume + s.volume


def memory_of_matrix(r: Relation, s: Relation) -> float:
    """Section 4.1, equation 2: a tuple of R is stored in every column, one of S in every row.

    >>> memory_of_matrix(Relation(100, 10, 4), Relation(50, 20, 4))
    8000
    """
    return s.partitions * r.volume + r.partitions * s.volume


def scaling_gain_of_row(capacity: float, s: Relation) -> float:
    """Section 4.2, equation 3: what a new partition of R adds to a matrix, of which S's replicas take a part.

    >>> scaling_gain_of_row(1000, Relation(100, 10, 4))
    0.75
    """
    return 1 - s.tuple_bytes / capacity * s.tuples / s.partitions


def scaling_gain_of_column(capacity: float, r: Relation) -> float:
    """Section 4.2, equation 4: what a new partition of S adds to a matrix, of which R's replicas take a part.

    >>> scaling_gain_of_column(1000, Relation(100, 10, 2))
    0.5
    """
    return 1 - r.tuple_bytes / capacity * r.tuples / r.partitions


def bandwidth_of_biclique(r: Relation, s: Relation) -> float:
    """Section 4.3, equation 5: a tuple travels once to be stored, and to all units of one subgroup of the other side.

    >>> bandwidth_of_biclique(Relation(100, 1, 4, 2), Relation(100, 1, 4, 2))
    600.0
    """
    return (s.partitions / s.subgroups + 1) * r.volume + (r.partitions / r.subgroups + 1) * s.volume


def bandwidth_of_matrix(r: Relation, s: Relation) -> float:
    """Section 4.3, equation 6: a tuple travels to every unit that stores it.

    >>> bandwidth_of_matrix(Relation(100, 1, 4), Relation(100, 1, 4))
    800
    """
    return s.partitions * r.volume + r.partitions * s.volume


def units_to_add(loads: Sequence[float], capacity: float, target: float) -> float:
    """Section 5, equation 7: how many units a subgroup needs more (or, below zero, less) for a load of `target`.

    >>> units_to_add([0.9] * 8, 1.0, 0.6), units_to_add([0.3] * 12, 1.0, 0.6)
    (4.0, -6.0)
    """
    return round(sum(loads) / (target * capacity) - len(loads), 9)
