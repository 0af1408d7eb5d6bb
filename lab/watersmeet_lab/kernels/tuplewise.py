"""The window joins of the W-join paper tuple by tuple: NLW, HW, and the ripple join and XJoin that it compares them with.

A tuple t of stream d arrives, is stored, and looks for partners in one stream after another, as its probe order says:

    period at stream y = [ max over chosen x of x.ts + lo(x, y),  min over chosen x of x.ts + hi(x, y) ]
    every stored tuple of y: in the period? -> test, go on with the next stream; before it, and out of reach of all that
    may come? -> purge

so a combination is found when its last member arrives, exactly once. One loop does all four; they differ in two choices:

                 stored tuples are met by     purged
    nlw          scanning the buffer          when met
    hw           the bucket of the key        when met, and buckets that are seldom met every `every` tuples
    ripple       scanning the buffer          every `every` tuples
    xjoin        the bucket of the key        every `every` tuples

A buffer is a bucket that holds everything. These kernels are for counting and comparing, and `kernel='ripple'` and
`'xjoin'` run them in units; the units' own `hw` and `nlw` are `hash_window` and `nested_loop`, which bisect and work on
whole batches.

Invariant: a tuple is purged only if for every other stream y all that is still to come of y is more than hi(x, y) younger
than it. Old rows come before new ones and find nothing: a result needs a new member.
Implements: Hammad, Aref, Elmagarmid (2002), sections 3.1.1 (figure 5), 3.1.2 and 4.3 (the two baselines, purged every
10,000 tuples), with every pair's own window (5.1) and directed windows (5.2.1).
Departs from the paper: figure 5 is a pipeline of binary joins with intermediate buffers; here an arriving tuple meets the
streams themselves, as in 3.1. IsOut looks at distances, and would purge a tuple that is ahead of all other streams, as
happens when streams of unequal rates are read in turn: ours looks only behind. A stream need not bring its tuples in time
order: IsOut takes the lowest time that is still to come if that is below the highest that came. What IsOut compares with
every stream is one bound, computed once for all that a probe meets: so it is one comparison of times. Figure 5 asks it of every
tuple that it meets; what is not before the period is in reach of the tuple that has just come, so it need not be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import uint64

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import FIRST, LAST, shift_instant
from watersmeet.kernels.problem import (
    CHUNK,
    MOST_STORED,
    PURGED,
    RESULTS,
    SIGNATURE,
    STORED,
    TESTS,
    TIMES,
    VISITS,
    Arrays,
    Problem,
    chunk_sizes,
    counters,
    local_rows,
    passes,
)

EVERY = 10_000
"""After how many tuples the baselines purge (section 4.3)."""
MOST_BUCKETS = 65_536
WHEN_MET, SELDOM_MET, ALL = 1, 2, 4
"""What is purged: tuples that a probe meets; now and then, buckets that no probe has met since; now and then, all."""


def nlw(
    problem: Problem, arrival: np.ndarray | None = None, counts: np.ndarray | None = None, limit: int = CHUNK
) -> Iterator[np.ndarray]:
    """Nested-loop window join: every probe scans the buffer.

    >>> hi = np.array([[0, 5], [5, 0]])
    >>> two = Problem((np.array([1, 9]), np.array([4, 5])), ((), ()), hi)
    >>> [chunk.tolist() for chunk in nlw(two)]
    [[[0, 1, 1, 0], [0, 0, 1, 1]]]
    """
    return _join(problem, arrival, counts, limit, False, WHEN_MET, EVERY)


def hw(
    problem: Problem,
    arrival: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    limit: int = CHUNK,
    every: int = EVERY,
) -> Iterator[np.ndarray]:
    """Hash window join: every probe meets the bucket of its key; without an equality, the buffer."""
    return _join(problem, arrival, counts, limit, True, WHEN_MET | SELDOM_MET, every)


def ripple(
    problem: Problem,
    arrival: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    limit: int = CHUNK,
    every: int = EVERY,
) -> Iterator[np.ndarray]:
    """The ripple join with a window: scans, and purges periodically."""
    return _join(problem, arrival, counts, limit, False, ALL, every)


def xjoin(
    problem: Problem,
    arrival: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    limit: int = CHUNK,
    every: int = EVERY,
) -> Iterator[np.ndarray]:
    """XJoin with a window, in memory: hashes, and purges periodically."""
    return _join(problem, arrival, counts, limit, True, ALL, every)


class Tables(NamedTuple):
    """Chained hash tables, each over a column of a stream, or over nothing: then it has one bucket."""

    heads: np.ndarray
    """The first row of every bucket of every table."""
    met: np.ndarray
    """When a bucket was last met by a probe."""
    links: np.ndarray
    """A row's successor in its bucket, table by table."""
    shape: np.ndarray
    """By table: its stream, where its column stands (-1: none), its first bucket, buckets - 1, where its links stand."""
    probed: np.ndarray
    """[driver, depth] -> table, the stream whose key is looked up, and where that key stands."""

    @classmethod
    def of(cls, problem: Problem, a: Arrays, hashed: bool) -> Tables:
        """The tables that the probe orders need."""
        found: dict[tuple[int, int], int] = {}
        probed = np.full((problem.streams, problem.streams, 3), -1, np.int64)
        for d in range(problem.streams):
            for k in range(1, problem.streams):
                y, test = int(a.order[d, k]), int(a.keys[d, k])
                own = -1
                if hashed and test >= 0:
                    mine, other = (0, 1) if a.tests[test, 1] == y else (1, 0)
                    own = int(a.tests[test, 3 + mine])
                    probed[d, k, 1:] = a.tests[test, 1 + other], a.tests[test, 3 + other]
                probed[d, k, 0] = found.setdefault((y, own), len(found))
        shape, bucket, link = np.empty((len(found), 5), np.int64), 0, 0
        for (y, own), table in found.items():
            rows, buckets = int(a.start[y + 1] - a.start[y]), 1
            while own >= 0 and buckets < min(rows, MOST_BUCKETS):
                buckets *= 2
            shape[table] = y, own, bucket, buckets - 1, link - a.start[y]
            bucket, link = bucket + buckets, link + rows
        heads = np.full(bucket, -1, np.int64)
        return cls(heads, np.zeros(bucket, np.int64), np.full(link, -1, np.int64), shape, probed)


def _join(
    problem: Problem,
    arrival: np.ndarray | None,
    counts: np.ndarray | None,
    limit: int,
    hashed: bool,
    purge: int,
    every: int,
) -> Iterator[np.ndarray]:
    a = problem.arrays()
    if arrival is None:
        arrival = round_robin(problem)
        if problem.new is not None:
            arrival = arrival[np.argsort(a.new[arrival], kind="stable")]
    assert not np.any(a.new[arrival[:-1]] > a.new[arrival[1:]]), "old rows come before new ones"
    counts = counters() if counts is None else counts
    stream_of, marks = _marks(a.start, a.ts, arrival)
    n, tables = problem.streams, Tables.of(problem, a, hashed)
    state = np.zeros(4, np.int64)
    seen, chosen, cursor, before, bucket, lo, hi = np.full((7, n), FIRST, np.int64)
    dead = np.zeros(a.start[-1], np.bool_)
    for size in chunk_sizes(limit):
        out = np.empty((n, size), np.int64)
        found = _run(
            *a, arrival, stream_of, marks, *tables, dead, purge, every,
            state, seen, chosen, cursor, before, bucket, lo, hi, counts, out,
        )  # fmt: skip
        if found:
            yield local_rows(out[:, :found], a.start)
        if found < size:
            return


@kernel("Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1])")
def _marks(start, ts, arrival):  # type: ignore[no-untyped-def]
    """For every arrival its stream, and the time below which its stream brings nothing more, itself included."""
    n, rows = len(start) - 1, len(arrival)
    stream_of = np.empty(rows, np.int64)
    marks = np.empty(rows, np.int64)
    edge = np.full(n, LAST, np.int64)
    for i in range(rows - 1, -1, -1):
        r = arrival[i]
        s = np.searchsorted(start, r, side="right") - 1
        stream_of[i] = s
        edge[s] = min(edge[s], ts[r])
        marks[i] = edge[s]
    return stream_of, marks


@kernel("int64(int64, int64[:, ::1], int64[::1])", inline="always")
def _floor(s, hi, seen):  # type: ignore[no-untyped-def]
    """The time below which a tuple of stream s is out: nothing that is still to come can be in a window with it."""
    floor = LAST
    for y in range(len(seen)):
        if y != s:
            floor = min(floor, shift_instant(seen[y], -hi[s, y]))
    return floor


@kernel(
    "void(int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], boolean[::1], int64[::1])",
)
def _purge_bucket(b, floor, table, ts, heads, links, dead, counts):  # type: ignore[no-untyped-def]
    """Unlink from bucket b of a table what is out."""
    link, before, r = table[4], -1, heads[b]
    while r >= 0:
        after = links[link + r]
        gone = dead[r]
        if not gone:
            counts[TIMES] += 1
            if ts[r] < floor:
                gone = True
                dead[r] = True
                counts[PURGED] += 1
                counts[STORED] -= 1
        if gone:
            if before < 0:
                heads[b] = after
            else:
                links[link + before] = after
        else:
            before = r
        r = after


@kernel(
    f"int64({SIGNATURE}, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, :, ::1],"
    " boolean[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[:, ::1])",
)
def _run(  # type: ignore[no-untyped-def]
    start, ts, new, hi, values, reals, tests, real_bounds, order, listed, since, keys,
    arrival, stream_of, marks, heads, met, links, shape, probed, dead, purge, every,
    state, seen, chosen, cursor, before, bucket, low, high, counts, out,
):  # fmt: skip
    """Fill `out` with combinations; `state` says where to go on: the arrival and the depth."""
    n, rows, limit, found = len(start) - 1, len(arrival), out.shape[1], 0
    i, depth, swept = state[0], state[1], state[2]
    while i < rows:
        d, entered = stream_of[i], depth > 0
        if depth == 0:
            # 1. Store the tuple, in all tables of its stream.
            r = arrival[i]
            seen[d], chosen[d] = marks[i], r
            for table in range(len(shape)):
                if shape[table, 0] == d:
                    b = shape[table, 2]
                    if shape[table, 1] >= 0:
                        b += np.int64(mix(uint64(values[shape[table, 1] + r])) & uint64(shape[table, 3]))
                    links[shape[table, 4] + r] = heads[b]
                    heads[b] = r
            counts[STORED] += 1
            counts[MOST_STORED] = max(counts[MOST_STORED], counts[STORED])
            # 2. Now and then, purge.
            if purge != WHEN_MET and (i + 1) % every == 0:
                for table in range(len(shape)):
                    floor = _floor(shape[table, 0], hi, seen)
                    for b in range(shape[table, 2], shape[table, 2] + shape[table, 3] + 1):
                        if purge & ALL or met[b] < swept:
                            _purge_bucket(b, floor, shape[table], ts, heads, links, dead, counts)
                swept = i
            if not new[r]:
                i += 1
                continue
            depth = 1
        while depth > 0:
            y = order[d, depth]
            table = probed[d, depth, 0]
            link = shape[table, 4]
            if not entered:
                # 3. The period of the next stream, and the bucket to look into.
                lo, up = FIRST, LAST
                for k in range(depth):
                    x = order[d, k]
                    lo = max(lo, shift_instant(ts[chosen[x]], -hi[y, x]))
                    up = min(up, shift_instant(ts[chosen[x]], hi[x, y]))
                low[depth], high[depth] = lo, up
                b = shape[table, 2]
                if shape[table, 1] >= 0:
                    code = values[probed[d, depth, 2] + chosen[probed[d, depth, 1]]]
                    b += np.int64(mix(uint64(code)) & uint64(shape[table, 3]))
                met[b] = i
                bucket[depth], before[depth], cursor[depth] = b, -1, heads[b]
            entered = False
            # 4. The next stored tuple that is in the period and passes the tests; an equality comes first.
            lo, up, r, last, matched = low[depth], high[depth], cursor[depth], before[depth], False
            floor = _floor(y, hi, seen) if purge & WHEN_MET else FIRST
            visited, timed, tested = 0, 0, 0
            test, own, code = keys[d, depth], 0, 0
            if test >= 0:
                mine = 3 if tests[test, 1] == y else 4
                own, code = tests[test, mine], values[tests[test, 7 - mine] + chosen[tests[test, 5 - mine]]]
            while r >= 0 and not matched:
                after, t, gone = links[link + r], ts[r], dead[r]
                visited += 1
                if not gone:
                    timed += 1
                    if t < lo and purge & WHEN_MET:
                        timed += 1
                        if t < floor:
                            gone = True
                            dead[r] = True
                            counts[PURGED] += 1
                            counts[STORED] -= 1
                if gone:
                    if last < 0:
                        heads[bucket[depth]] = after
                    else:
                        links[link + last] = after
                else:
                    last = r
                    timed += t >= lo
                    if t >= lo and t <= up:
                        matched = True
                        if test >= 0:
                            tested += 1
                            matched = values[own + r] == code
                        if matched:
                            chosen[y] = r
                            for m in range(since[d, depth] + (test >= 0), since[d, depth + 1]):
                                tested += 1
                                if not passes(values, reals, tests, real_bounds, listed[m], chosen):
                                    matched = False
                                    break
                r = after
            counts[VISITS] += visited
            counts[TIMES] += timed
            counts[TESTS] += tested
            cursor[depth], before[depth] = r, last
            if not matched:
                # 5. Backtrack.
                depth -= 1
                entered = True
            elif depth < n - 1:
                depth += 1
            else:
                # 6. A result; the chunk may be full.
                for s in range(n):
                    out[s, found] = chosen[s]
                found += 1
                counts[RESULTS] += 1
                entered = True
                if found == limit:
                    state[0], state[1], state[2] = i, depth, swept
                    return found
        i += 1
    state[0], state[1], state[2] = i, 0, swept
    return found


def round_robin(problem: Problem) -> np.ndarray:
    """Flat numbers in the order of 3.1: a tuple of each stream in turn; a stream that has none is passed over.

    >>> two = Problem((np.array([5, 6, 7]), np.array([1])), ((), ()), np.zeros((2, 2), np.int64))
    >>> round_robin(two).tolist()
    [0, 3, 1, 2]
    """
    turn = np.concatenate([np.arange(len(t)) for t in problem.ts])
    return np.argsort(turn, kind="stable")
