"""When a running query may change its mind: the change must pay clearly, and changes become rarer.

Invariant: n batches see at most log2(n / PATIENCE) + 1 changes, however the streams behave.
"""

from __future__ import annotations

MARGIN = 0.8
"""A change must bring the price below this share of what it is."""
PATIENCE = 2
"""Batches that must have been measured before the first change; after every change, twice as many."""


def is_enough(batches: int, changes: int) -> bool:
    """Whether so many batches since the last change are enough for another.

    >>> [is_enough(2, 0), is_enough(3, 1), is_enough(4, 1)]
    [True, False, True]
    """
    return batches >= PATIENCE * 2**changes


def is_clear(price: float, standing: float) -> bool:
    """Whether a price is clearly below another."""
    return price <= MARGIN * standing
