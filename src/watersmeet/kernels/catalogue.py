"""The kernels that take a join as one problem, by name: `mw`, `lca`, those that other distributions add, and `gca(...)` of any.

All take a `problem.Problem` and yield the same combinations; they differ in what they compare on the way. The global conservative approach (GCA)
filters with the largest window, then refines with every pair's own:

    gca(k)(problem) = refine(k(problem with the largest window for all pairs))

Invariant: what the filter finds holds all results, since no pair's window is larger than the largest; refining keeps those
within all windows.
Implements: Hammad, Aref, Elmagarmid (2002), section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from watersmeet.extensions import load
from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import shift_instant
from watersmeet.kernels.merge_window import lca, mw
from watersmeet.kernels.problem import CHUNK, RESULTS, TIMES, Problem, counters


class Kernel(Protocol):
    """A join of a problem: chunks of at most `limit` combinations, for tuples that arrive in some order."""

    def __call__(
        self, problem: Problem, arrival: np.ndarray | None = None, counts: np.ndarray | None = None, limit: int = CHUNK
    ) -> Iterator[np.ndarray]: ...


def gca(kernel: Kernel) -> Kernel:
    """A kernel with one window for all pairs, and every pair's own on what it finds.

    >>> from watersmeet.kernels.merge_window import mw
    >>> hi = np.array([[0, 5], [1, 0]])
    >>> two = Problem((np.array([1, 9]), np.array([4, 7])), ((), ()), hi)
    >>> [chunk.tolist() for chunk in gca(mw)(two)]
    [[[0], [0]]]
    """

    def filter_and_refine(
        problem: Problem, arrival: np.ndarray | None = None, counts: np.ndarray | None = None, limit: int = CHUNK
    ) -> Iterator[np.ndarray]:
        counts = counters() if counts is None else counts
        for rows in kernel(problem.widen(), arrival, counts, limit):
            times = np.stack([ts[idx] for ts, idx in zip(problem.ts, rows, strict=True)])
            keep = refine(times, problem.hi, problem.window_us, counts)
            if not keep.all():
                rows = rows[:, keep]
            if rows.shape[1]:
                yield rows

    return filter_and_refine


@kernel("boolean[::1](int64[:, ::1], int64[:, ::1], int64, int64[::1])")
def refine(times, hi, window, counts):  # type: ignore[no-untyped-def]
    """Which combinations, given by their times, are within every pair's window, all being within the largest."""
    n, rows = times.shape
    keep = np.ones(rows, np.bool_)
    for i in range(rows):
        for x in range(n):
            for y in range(n):
                if keep[i] and x != y and hi[x, y] < window:
                    counts[TIMES] += 1
                    keep[i] = times[y, i] <= shift_instant(times[x, i], hi[x, y])
        counts[RESULTS] -= not keep[i]
    return keep


KERNELS: Mapping[str, Kernel] = {"mw": mw, "lca": lca}


def find_kernel(name: str, known: Mapping[str, Kernel] = KERNELS) -> Kernel:
    """The kernel of a name.

    >>> find_kernel("mw") is mw, find_kernel("gca(mw)") is mw
    (True, False)
    """
    if name.startswith("gca("):
        return gca(find_kernel(name[4:-1], known))
    kernel: Kernel = known[name] if name in known else load("watersmeet.kernels", name, f"kernel={name!r}")
    return kernel
