"""Merge window join (MW) and its local conservative approach (LCA): a sweep over the time axis in two modes.

    reach(x)   how much younger than a tuple of x any member of its results can be
    heads      the oldest tuple of each stream that is not dropped

    mode 1     find heads that are in reach of one another: a head that is out of reach of another stream's head is
               dropped, before any predicate is looked at, since that stream has nothing older left
    mode 2     period = up to min over x of head(x).ts + reach(x). Let tuples up to its end in, one stream after the other;
               each makes its combinations with what the buffers hold. Then drop the head whose reach ended the period

               a    . (x x x)| x         buffers are runs of the streams in time order: [head, tail)
               b      (x   x)|  x        | the end of the period
               c    .  (x    |    x

A tuple y' in a buffer is at most reach(x) younger than every x' in another buffer, for it was let in up to
head(x).ts + reach(x) <= x'.ts + reach(x). So mode 2 need not look at times again where a window requires no more.
With one window for all (MW) nothing remains to be checked; with local windows (LCA) pairs are refined: at the end as the
paper does, or early, by cutting the period out of the buffers by bisection, which is what units do.

Nothing waits for a watermark: rows that are there are swept, old and new together, and only combinations with a new member
are made. Where no stream has new tuples in its buffer, old ones pass through without a comparison of anything but times.

Invariant: a combination is made when the last of its members is let in, so exactly once. A head is dropped only if no tuple
that is not let in yet is in its reach, or if some stream has no tuple at all in its reach.
Implements: Hammad, Aref, Elmagarmid (2002), sections 3.2 (MW-join) and 5.1 (LCA).
Departs from the paper: windows are directed, so a stream's local window is the largest bound ahead of it, and the other
streams' reaches say how far behind it they end. Predicates are tested as soon as both streams are chosen, not on N-tuples.
The paper omits how LCA ends a period; ours is the rule of MW with each head's own reach, which always goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import FIRST, LAST, shift_instant
from watersmeet.kernels.problem import (
    ADMITTED,
    CHUNK,
    MOST_STORED,
    PURGED,
    RESULTS,
    SIGNATURE,
    STORED,
    SWITCHES,
    TESTS,
    TIMES,
    VISITS,
    Problem,
    chunk_sizes,
    counters,
    local_rows,
    passes,
)

Refine = Literal["end", "early"]
NOTHING, AT_END, EARLY = 0, 1, 2
MODE_1, MODE_2 = 1, 2


def mw(
    problem: Problem,
    arrival: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    limit: int = CHUNK,
    refine: Refine = "end",
) -> Iterator[np.ndarray]:
    """The sweep with the largest window for all. A sweep takes tuples when it reaches them: `arrival` decides nothing.

    >>> hi = np.array([[0, 5], [5, 0]])
    >>> two = Problem((np.array([1, 9]), np.array([4, 5, 20])), ((), ()), hi)
    >>> [chunk.tolist() for chunk in mw(two)]
    [[[0, 0, 1, 1], [0, 1, 0, 1]]]
    """
    reach = np.full(problem.streams, problem.window_us, np.int64)
    return _sweep(problem, reach, NOTHING if problem.uniform else _when(refine), counts, limit)


def lca(
    problem: Problem,
    arrival: np.ndarray | None = None,
    counts: np.ndarray | None = None,
    limit: int = CHUNK,
    refine: Refine = "end",
) -> Iterator[np.ndarray]:
    """The sweep with each stream's largest window."""
    n = problem.streams
    reach = np.array([max(problem.hi[x, y] for y in range(n) if y != x) for x in range(n)], np.int64)
    exact = all(problem.hi[x, y] == reach[x] for x in range(n) for y in range(n) if x != y)
    return _sweep(problem, reach, NOTHING if exact else _when(refine), counts, limit)


def _when(refine: Refine) -> int:
    return AT_END if refine == "end" else EARLY


def _sweep(
    problem: Problem, reach: np.ndarray, refine: int, counts: np.ndarray | None, limit: int
) -> Iterator[np.ndarray]:
    if any(len(t) == 0 for t in problem.ts):
        return
    ordered, called = problem.by_time()
    a, n = ordered.arrays(), problem.streams
    counts = counters() if counts is None else counts
    next_new, new_before = _new_ones(a.start, a.new)
    head, tail, end = a.start[:-1].copy(), a.start[:-1].copy(), np.full(n, LAST, np.int64)
    state = np.array([MODE_1, 0, 0, 0, 0], np.int64)
    chosen, cursor, stop, only_new, with_new = np.zeros((5, n), np.int64)
    for size in chunk_sizes(limit):
        out = np.empty((n, size), np.int64)
        found = _run(
            *a, reach, refine, next_new, new_before,
            state, head, tail, end, chosen, cursor, stop, only_new, with_new, counts, out,
        )  # fmt: skip
        if found:
            yield local_rows(out[:, :found], a.start, called)
        if found < size:
            return


@kernel("Tuple((int64[::1], int64[::1]))(int64[::1], boolean[::1])")
def _new_ones(start, new):  # type: ignore[no-untyped-def]
    """For every row the next new one of its stream, itself included, and how many new rows stand before it."""
    rows = len(new)
    following = np.empty(rows + 1, np.int64)
    before = np.zeros(rows + 1, np.int64)
    for i in range(rows):
        before[i + 1] = before[i] + new[i]
    s, last = len(start) - 1, rows
    following[rows] = rows
    for i in range(rows - 1, -1, -1):
        while i < start[s]:
            s -= 1
            last = start[s + 1]
        if new[i]:
            last = i
        following[i] = last
    return following, before


@kernel("int64(int64[::1], int64, int64, int64, int64[::1])")
def _not_below(ts, left, right, value, counts):  # type: ignore[no-untyped-def]
    """The first position in [left, right) whose time is not below; counted."""
    while left < right:
        mid = (left + right) >> 1
        counts[TIMES] += 1
        if ts[mid] < value:
            left = mid + 1
        else:
            right = mid
    return left


@kernel(
    f"int64({SIGNATURE}, int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1])",
)
def _run(  # type: ignore[no-untyped-def]
    start, ts, new, hi, values, reals, tests, real_bounds, order, listed, since, keys,
    reach, refine, next_new, new_before,
    state, head, tail, end, chosen, cursor, stop, only_new, with_new, counts, out,
):  # fmt: skip
    """Fill `out` with combinations; `state` says where to go on: mode, stream, depth, streams passed over, worst head."""
    n, limit, found = len(start) - 1, out.shape[1], 0
    mode, d, depth, passed, worst = state[0], state[1], state[2], state[3], state[4]
    old = len(new) - new_before[len(new)]
    while True:
        if mode == MODE_1:
            # 1. Heads in reach of one another: go round until n streams in a row agree.
            agreed, latest, first_end = 0, FIRST, LAST
            while agreed < n:
                at, last, far = head[d], start[d + 1], reach[d]
                while at < last and shift_instant(ts[at], far) < latest:
                    at += 1
                counts[TIMES] += at - head[d] + 2
                counts[PURGED] += at - head[d]
                counts[STORED] -= max(0, min(at, tail[d]) - head[d])
                head[d], tail[d] = at, max(tail[d], at)
                if at == last:
                    state[0] = mode
                    return found
                t = ts[at]
                if t > first_end:
                    agreed, latest, first_end = 0, FIRST, LAST
                if t > latest:
                    latest = t
                if agreed == 0 or shift_instant(t, far) < first_end:
                    first_end, worst = shift_instant(t, far), d
                agreed += 1
                d = d + 1 if d + 1 < n else 0
            # 2. The end of the period: the same for all, unless a stream must be ahead of all others.
            ahead = 1
            if old > 0:
                ahead = 0
                for s in range(n):
                    ahead += new_before[start[s + 1]] - new_before[head[s]]
            if ahead == 0:
                return found
            for s in range(n):
                end[s] = first_end
                if reach[s] < 0:
                    end[s] = ts[head[s]]
                    for x in range(n):
                        if x != s:
                            end[s] = min(end[s], shift_instant(ts[head[x]], reach[x]))
            counts[SWITCHES] += 1
            mode, d, depth, passed = MODE_2, 0, 0, 0
        if depth == 0:
            # 3. Let the next tuple in, of the next stream that has one in the period.
            admitted = False
            while passed < n and not admitted:
                if tail[d] < start[d + 1]:
                    counts[TIMES] += 1
                    admitted = ts[tail[d]] <= end[d]
                if not admitted:
                    d = d + 1 if d + 1 < n else 0
                    passed += 1
            if not admitted:
                # 4. Drop the head whose reach ends the period: nothing that is to come is in it.
                head[worst] += 1
                counts[PURGED] += 1
                counts[STORED] -= 1
                mode, d = MODE_1, worst
                continue
            passed = 0
            r = tail[d]
            tail[d] += 1
            counts[ADMITTED] += 1
            counts[STORED] += 1
            counts[MOST_STORED] = max(counts[MOST_STORED], counts[STORED])
            chosen[d] = r
            # 5. Combinations need a partner everywhere, and a new tuple somewhere.
            possible, some_new = True, new[r]
            for s in range(n):
                possible &= tail[s] > head[s]
                if not some_new:
                    some_new = new_before[tail[s]] > new_before[head[s]]
            if not (possible and some_new):
                d = d + 1 if d + 1 < n else 0
                continue
            with_new[0] = new[r]
            depth = 1
            entered = False
        else:
            entered = True
        while depth > 0:
            y = order[d, depth]
            if not entered:
                # 6. All of the buffer, or the period cut out of it; only new tuples if nothing else will be new.
                begin, until = head[y], tail[y]
                if refine == EARLY:
                    lo, up = FIRST, LAST
                    for k in range(depth):
                        x = order[d, k]
                        lo = max(lo, shift_instant(ts[chosen[x]], -hi[y, x]))
                        up = min(up, shift_instant(ts[chosen[x]], hi[x, y]))
                    begin = _not_below(ts, begin, until, lo, counts)
                    if up < LAST:
                        until = _not_below(ts, begin, until, up + 1, counts)
                fresh = with_new[depth - 1] > 0
                for k in range(depth + 1, n):
                    if not fresh:
                        s = order[d, k]
                        fresh = new_before[tail[s]] > new_before[head[s]]
                cursor[depth], stop[depth], only_new[depth] = begin, until, not fresh
            entered = False
            # 7. The next tuple that passes the tests; an equality comes first, and its key is at hand.
            r, until, matched, sparse = cursor[depth], stop[depth], False, only_new[depth] > 0
            test, tested, visited = keys[d, depth], 0, 0
            own, code = 0, 0
            if test >= 0:
                mine = 3 if tests[test, 1] == y else 4
                own, code = tests[test, mine], values[tests[test, 7 - mine] + chosen[tests[test, 5 - mine]]]
            while r < until:
                if sparse:
                    r = next_new[r]
                    if r >= until:
                        break
                visited += 1
                matched = True
                if test >= 0:
                    tested += 1
                    matched = values[own + r] == code
                if matched:
                    chosen[y] = r
                    for t in range(since[d, depth] + (test >= 0), since[d, depth + 1]):
                        tested += 1
                        if not passes(values, reals, tests, real_bounds, listed[t], chosen):
                            matched = False
                            break
                r += 1
                if matched:
                    break
            counts[TESTS] += tested
            counts[VISITS] += visited
            cursor[depth] = r
            if not matched:
                depth -= 1
                entered = True
            elif depth < n - 1:
                with_new[depth] = with_new[depth - 1] | new[chosen[y]]
                depth += 1
            else:
                # 8. Refine: the windows that reach does not imply.
                entered = True
                if refine == AT_END:
                    for x in range(n):
                        for z in range(n):
                            if matched and x != z and hi[x, z] < reach[x]:
                                counts[TIMES] += 1
                                matched = ts[chosen[z]] <= shift_instant(ts[chosen[x]], hi[x, z])
                if matched:
                    for s in range(n):
                        out[s, found] = chosen[s]
                    found += 1
                    counts[RESULTS] += 1
                    if found == limit:
                        state[0], state[1], state[2], state[3], state[4] = mode, d, depth, passed, worst
                        return found
        d = d + 1 if d + 1 < n else 0
