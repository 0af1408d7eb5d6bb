"""The distinct join attribute values of a window, with counts: V_2 at the stream's site, and its copy elsewhere.

    value    c   a   e   d       in the order in which they came; the copy has the same order, so that
    count    1   2   1   1       counts alone say everything that has gone
    asked    x   x

Invariant: after the same sequence of additions and counts, an original and its copy hold the same values in the same order.
Implements: Tran and Lee (2010), section 3.2.2, figure 5 and algorithm 9: DJA value vector v_J and count vector v_C.
"""

from __future__ import annotations

import numpy as np

from watersmeet.units.sites.rows import NONE


class Values:
    """An array of distinct values; `asked` says whose full tuples the other site has asked for."""

    def __init__(self) -> None:
        self.value, self.count, self.asked = NONE, NONE, np.zeros(0, bool)
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.value)

    def find(self, codes: np.ndarray) -> np.ndarray:
        """The entry of every code; -1 if there is none."""
        if len(self) == 0:
            return np.full(len(codes), -1)
        if self._sorted is None:
            order = np.argsort(self.value, kind="stable")
            self._sorted = self.value[order], order
        values, order = self._sorted
        at = np.minimum(np.searchsorted(values, codes), len(values) - 1)
        return np.where(values[at] == codes, order[at], -1)

    def add(self, codes: np.ndarray) -> np.ndarray:
        """Count tuples; the values that were not there, in the order in which they came: v_J."""
        at = self.find(codes)
        np.add.at(self.count, at[at >= 0], 1)
        new = codes[at < 0]
        values, first, counts = np.unique(new, return_index=True, return_counts=True)
        order = np.argsort(first)
        self.append(values[order], counts[order])
        return values[order]

    def subtract(self, codes: np.ndarray) -> None:
        """Tuples have gone."""
        np.subtract.at(self.count, self.find(codes), 1)

    def append(self, values: np.ndarray, counts: np.ndarray) -> None:
        """New entries, not asked for."""
        if len(values):
            self.value = np.concatenate([self.value, values])
            self.count = np.concatenate([self.count, counts])
            self.asked = np.concatenate([self.asked, np.zeros(len(values), bool)])
            self._sorted = None

    def drop_empty(self) -> None:
        """Entries that count nothing go."""
        some = self.count > 0
        if not some.all():
            self.value, self.count, self.asked = self.value[some], self.count[some], self.asked[some]
            self._sorted = None


def counts_bytes(counts: np.ndarray) -> int:
    """The size of a count vector: a byte for seven bits of each.

    >>> counts_bytes(np.array([0, 127, 128, 20_000]))
    7
    """
    return int(len(counts) + sum(np.count_nonzero(counts >= 1 << bits) for bits in (7, 14, 21, 28)))
