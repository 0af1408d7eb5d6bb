"""An n-ary window join as arrays: what the tuple-at-a-time kernels take.

    stream     0                1            2
    rows       0 1 2 3          0 1          0 1 2          numbered in each stream
    ts         . . . .          . .          . . .          microseconds
    columns    codes or reals of what the tests look at
    hi[x, y]   the largest ts[y] - ts[x]: the closed window graph, so lo[x, y] = -hi[y, x]
    tests      EQUAL, LESS, LESS_EQUAL, BAND, REAL_BAND between a column of one stream and one of another

A result is a combination, one row of each stream, that satisfies the windows of all pairs and all tests and has at least
one new member. Kernels yield results as arrays of shape [streams, results], row numbers by stream, in bounded chunks.

Invariant: codes follow `plan.types`: exact ones alone decide a test. Rows of a stream stand in the order in which the
stream brings them; what that order is, time or not, is the kernel's affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.residual import BAND, EQUAL, REAL_BAND, compares, in_band, in_real_band

CHUNK = 131_072
"""The most results that one chunk holds."""
FIRST_CHUNK = 4096
"""The most results that the first chunk holds: fresh memory costs more than a sweep that finds nothing."""
COUNTERS = ("times", "tests", "visits", "purged", "switches", "admitted", "results", "stored", "most_stored")
"""What kernels count, see `counters`."""
TIMES, TESTS, VISITS, PURGED, SWITCHES, ADMITTED, RESULTS, STORED, MOST_STORED = range(9)


def counters() -> np.ndarray:
    """Zeros for a kernel to count in, one for each name in COUNTERS.

    times        comparisons of event times
    tests        comparisons of a predicate
    visits       stored tuples that were looked at
    purged       tuples that were dropped from the buffers
    switches     how often a sweep went from mode 1 to mode 2
    admitted     tuples that a sweep let in, in mode 2
    results      combinations found
    stored       tuples in the buffers at the end
    most_stored  the most tuples in the buffers at any time
    """
    return np.zeros(len(COUNTERS), np.int64)


class PairTest(NamedTuple):
    """`x.column op y.column`; bands: lo <= x.column - y.column <= hi, where None is no bound.

    Of equalities with the same `key` (0 or more) one is enough, once the others' streams are chosen; see `equal_keys`.
    """

    op: int
    x: int
    x_column: int
    y: int
    y_column: int
    lo: float | None = None
    hi: float | None = None
    key: int = -1


def equal_keys(key: int, columns: Mapping[int, int]) -> tuple[PairTest, ...]:
    """A key that several streams share, as tests of all pairs: a probe order then finds one wherever it comes from.

    >>> [(t.x, t.y) for t in equal_keys(0, {0: 0, 1: 0, 2: 0})]
    [(0, 1), (0, 2), (1, 2)]
    """
    return tuple(PairTest(EQUAL, x, columns[x], y, columns[y], key=key) for x, y in combinations(sorted(columns), 2))


@dataclass(frozen=True)
class Problem:
    """`new` marks the rows of which a result needs one, all by default; `order` is each driver's probe order."""

    ts: tuple[np.ndarray, ...]
    columns: tuple[tuple[np.ndarray, ...], ...]
    hi: np.ndarray
    tests: tuple[PairTest, ...] = ()
    new: tuple[np.ndarray, ...] | None = None
    order: tuple[tuple[int, ...], ...] | None = None

    @property
    def streams(self) -> int:
        return len(self.ts)

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """For every driver itself and then the others as it probes them; by default the streams in turn (3.1)."""
        n = self.streams
        return self.order or tuple(tuple((d + k) % n for k in range(n)) for d in range(n))

    @property
    def window_us(self) -> int:
        """The largest window of any pair."""
        n = self.streams
        return int(max(self.hi[x, y] for x in range(n) for y in range(n) if x != y))

    @property
    def uniform(self) -> bool:
        """Whether all pairs have the same window, ahead as behind: Form 1."""
        n = self.streams
        return all(self.hi[x, y] == self.window_us for x in range(n) for y in range(n) if x != y)

    def widen(self) -> Problem:
        """The same with the largest window for all pairs: the filter of the global conservative approach (5.1)."""
        hi = np.full_like(self.hi, self.window_us)
        np.fill_diagonal(hi, 0)
        return replace(self, hi=hi)

    def by_time(self) -> tuple[Problem, tuple[np.ndarray | None, ...]]:
        """The same with each stream in time order, and what the rows were called before; None: the same."""
        orders = tuple(None if np.all(t[1:] >= t[:-1]) else np.argsort(t, kind="stable") for t in self.ts)
        if all(o is None for o in orders):
            return self, orders

        def put(arrays: Sequence[np.ndarray], order: np.ndarray | None) -> tuple[np.ndarray, ...]:
            return tuple(arrays) if order is None else tuple(a[order] for a in arrays)

        return (
            replace(
                self,
                ts=tuple(put([t], o)[0] for t, o in zip(self.ts, orders, strict=True)),
                columns=tuple(put(c, o) for c, o in zip(self.columns, orders, strict=True)),
                new=None if self.new is None else tuple(put([f], o)[0] for f, o in zip(self.new, orders, strict=True)),
            ),
            orders,
        )

    def arrays(self) -> Arrays:
        """The same as compiled loops see it."""
        start = np.cumsum([0, *(len(t) for t in self.ts)])
        flat = [c for columns in self.columns for c in columns]
        ends = np.cumsum([0, *(len(c) for c in flat)])
        first = np.cumsum([0, *(len(columns) for columns in self.columns)])
        values = np.empty(ends[-1], np.int64)
        for column, at in zip(flat, ends, strict=False):
            values[at : at + len(column)] = column.view(np.int64)
        tests = np.zeros((len(self.tests), 7), np.int64)
        reals = np.zeros((len(self.tests), 2), np.float64)
        for n, t in enumerate(self.tests):
            at_x, at_y = (ends[first[s] + c] - start[s] for s, c in ((t.x, t.x_column), (t.y, t.y_column)))
            tests[n, :5] = t.op, t.x, t.y, at_x, at_y
            if t.op == BAND:
                ends_of = np.iinfo(np.int64)
                tests[n, 5:] = ends_of.min if t.lo is None else int(t.lo), ends_of.max if t.hi is None else int(t.hi)
            elif t.op == REAL_BAND:
                reals[n] = -np.inf if t.lo is None else t.lo, np.inf if t.hi is None else t.hi
        listed, since, keys = self._by_depth()
        new = np.ones(start[-1], np.bool_) if self.new is None else np.concatenate(self.new)
        ts, hi = np.concatenate(self.ts), np.ascontiguousarray(self.hi, np.int64)
        order = np.array(self.orders, np.int64)
        return Arrays(start, ts, new, hi, values, values.view(np.float64), tests, reals, order, listed, since, keys)

    def _by_depth(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By driver and depth: the tests that the stream probed there completes, and the first equality among them."""
        n, listed = self.streams, list[int]()
        since, keys = np.zeros((n, n + 1), np.int64), np.full((n, n), -1, np.int64)
        for d, order in enumerate(self.orders):
            for k, y in enumerate(order):
                since[d, k] = len(listed)
                known = set(order[: k + 1])
                done, settled = list[int](), set[int]()
                for m, t in enumerate(self.tests):
                    if {t.x, t.y} <= known and y in (t.x, t.y) and t.key not in settled:
                        done.append(m)
                        settled |= {t.key} - {-1}
                done.sort(key=lambda m: self.tests[m].op != EQUAL)
                keys[d, k] = done[0] if done and self.tests[done[0]].op == EQUAL else -1
                listed += done
            since[d, n] = len(listed)
        return np.array(listed, np.int64), since, keys


class Arrays(NamedTuple):
    """A problem in flat arrays: row r of stream s is number start[s] + r, and a column's value stands at `at` + number."""

    start: np.ndarray
    ts: np.ndarray
    new: np.ndarray
    hi: np.ndarray
    values: np.ndarray
    reals: np.ndarray
    """`values`, read as doubles."""
    tests: np.ndarray
    """op, x, y, where x's column stands, where y's does, lo and hi of a band."""
    real_bounds: np.ndarray
    order: np.ndarray
    """[driver, depth] -> stream."""
    listed: np.ndarray
    since: np.ndarray
    """The tests of driver d at depth k are listed[since[d, k] : since[d, k + 1]]."""
    keys: np.ndarray
    """[driver, depth] -> the equality by which the stream is found, the first of its tests; -1 if there is none."""


SIGNATURE = "int64[::1], int64[::1], boolean[::1], int64[:, ::1], int64[::1], float64[::1], int64[:, ::1], float64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1]"
"""The types of Arrays."""


def chunk_sizes(limit: int) -> Iterator[int]:
    """How many results each chunk may hold: few at first, then more, up to a limit.

    >>> [size for size, _ in zip(chunk_sizes(50_000), range(4))], next(chunk_sizes(7))
    ([4096, 16384, 50000, 50000], 7)
    """
    size = FIRST_CHUNK
    while True:
        yield min(size, limit)
        size = min(4 * size, limit)


def local_rows(found: np.ndarray, start: np.ndarray, called: Sequence[np.ndarray | None] = ()) -> np.ndarray:
    """Combinations of flat numbers as row numbers by stream, under their names before `by_time`."""
    rows = found - start[:-1, None]
    for s, order in enumerate(called):
        if order is not None:
            rows[s] = order[rows[s]]
    return rows


@kernel("boolean(int64[::1], float64[::1], int64[:, ::1], float64[:, ::1], int64, int64[::1])", inline="always")
def passes(values, reals, tests, real_bounds, t, chosen):  # type: ignore[no-untyped-def]
    """Whether a test holds for the chosen rows, flat numbers by stream."""
    op, i, j = tests[t, 0], tests[t, 3] + chosen[tests[t, 1]], tests[t, 4] + chosen[tests[t, 2]]
    if op == BAND:
        return in_band(values[i], values[j], tests[t, 5], tests[t, 6])
    if op == REAL_BAND:
        return in_real_band(reals[i], reals[j], real_bounds[t, 0], real_bounds[t, 1])
    return compares(values[i], values[j], op)


def in_time(problem: Problem) -> np.ndarray:
    """Flat numbers in the order of event time; ties: by stream.

    >>> in_time(Problem((np.array([5, 6, 7]), np.array([1])), ((), ()), np.zeros((2, 2), np.int64))).tolist()
    [3, 0, 1, 2]
    """
    return np.argsort(np.concatenate(problem.ts), kind="stable")
