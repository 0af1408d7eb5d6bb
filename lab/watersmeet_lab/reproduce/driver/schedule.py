"""Batches of a data set, and the runs in which the tuples of a batch are processed.

    timestamp     a a b c b b a ...      runs of consecutive tuples of one input, in the order of time
    round robin   a b c a b c ...        the oldest waiting tuple of each input in turn
    by buffer     b b b  a a a  c c      a run for each input

Invariant: the runs of a batch hold each of its tuples once, those of an input in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet_lab.bench.drivers.data import TIME_UNITS


@dataclass(frozen=True)
class Batch:
    """The rows of every input that a batch holds."""

    first: np.ndarray
    end: np.ndarray
    times: tuple[np.ndarray, ...]

    @property
    def sizes(self) -> np.ndarray:
        return self.end - self.first

    def by_buffer(self, inputs: Sequence[int]) -> np.ndarray:
        """A run for each input, in this order."""
        return np.array([(i, self.first[i], self.end[i]) for i in inputs if self.end[i] > self.first[i]], np.int64)

    def in_time(self) -> np.ndarray:
        """Runs in the order of time; ties: the input's number."""
        return self._runs(np.concatenate(self.times))

    def in_turn(self) -> np.ndarray:
        """A tuple of each input in turn, until none is left."""
        return self._runs(np.concatenate([np.arange(size) for size in self.sizes]))

    def _runs(self, key: np.ndarray) -> np.ndarray:
        inputs = np.repeat(np.arange(len(self.sizes)), self.sizes)
        rows = np.concatenate([np.arange(a, b) for a, b in zip(self.first, self.end, strict=True)])
        order = np.lexsort((inputs, key))
        inputs, rows = inputs[order], rows[order]
        begin = np.flatnonzero(np.concatenate([[True], inputs[1:] != inputs[:-1]]))
        end = np.append(begin[1:], len(inputs))
        return np.column_stack([inputs[begin], rows[begin], rows[end - 1] + 1])


def cut(times: Sequence[np.ndarray], batches: int) -> list[Batch]:
    """Batches of equal spans of time; those without a tuple are left out."""
    edges = np.linspace(0, TIME_UNITS, batches + 1)[1:]
    ends = np.array([np.searchsorted(t, edges) for t in times]).T
    firsts = np.vstack([np.zeros_like(ends[:1]), ends[:-1]])
    made = [
        Batch(a, b, tuple(t[i:j] for t, i, j in zip(times, a, b, strict=True)))
        for a, b in zip(firsts, ends, strict=True)
    ]
    return [batch for batch in made if batch.sizes.sum()]


def pieces(runs: np.ndarray, count: int) -> list[np.ndarray]:
    """The same runs in about `count` pieces of equally many tuples; a run may be cut.

    >>> [p.tolist() for p in pieces(np.array([[0, 0, 6], [1, 0, 2]]), 2)]
    [[[0, 0, 4]], [[0, 4, 6], [1, 0, 2]]]
    """
    sizes = runs[:, 2] - runs[:, 1]
    ends = np.cumsum(sizes)
    out, done, at = [], 0, 0
    for stop in np.unique(np.linspace(0, ends[-1], count + 1).astype(np.int64))[1:]:
        last = int(np.searchsorted(ends, stop))
        part = runs[at : last + 1].copy()
        part[0, 1] += done
        kept = int(stop - (ends[last] - sizes[last]))
        part[-1, 2] = runs[last, 1] + kept
        out.append(part)
        at, done = (last + 1, 0) if kept == sizes[last] else (last, kept)
    return out
