"""The sweeps against all combinations tested one by one, and what they count."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.catalogue import KERNELS, Kernel, find_kernel
from watersmeet.kernels.merge_window import lca, mw
from watersmeet.kernels.problem import (
    COUNTERS,
    PairTest,
    Problem,
    counters,
    equal_keys,
    in_time,
)
from watersmeet.kernels.residual import BAND, EQUAL, LESS, LESS_EQUAL, REAL_BAND
from watersmeet_lab.kernels.tuplewise import round_robin

FREE = 2**61
WAYS = {
    **{name: find_kernel(name) for name in (*KERNELS, *(f"gca({name})" for name in KERNELS))},
    "mw, refined early": lambda p, a, c, n: mw(p, a, c, n, "early"),
    "lca, refined early": lambda p, a, c, n: lca(p, a, c, n, "early"),
}


def closed(hi: np.ndarray) -> np.ndarray:
    for k in range(len(hi)):
        hi = np.minimum(hi, hi[:, [k]] + hi[[k], :])
    return hi


@st.composite
def graphs(draw: Any, n: int) -> np.ndarray:
    """One window, a window per pair, some pairs only, directed, and apart from one another."""
    form = draw(st.sampled_from(("one", "pairs", "partial", "directed", "apart")))
    spans = st.lists(st.integers(0, 9), min_size=n * n, max_size=n * n)
    hi = np.array(draw(spans), np.int64).reshape(n, n)
    if form == "one":
        hi[:] = hi[0, 0]
    elif form in ("pairs", "partial"):
        hi = np.maximum(hi, hi.T)
        if form == "partial":
            hi[0, n - 1] = hi[n - 1, 0] = FREE
    elif form == "directed":
        hi[np.tril_indices(n)] = draw(st.sampled_from((0, 0, FREE)))
    else:
        hi[np.tril_indices(n)] = -draw(st.integers(1, 2))
        hi[np.triu_indices(n)] += 2 * n
    np.fill_diagonal(hi, 0)
    hi = closed(hi)
    return hi if np.all(np.diag(hi) == 0) else np.zeros((n, n), np.int64)


@st.composite
def problems(draw: Any) -> Problem:
    n = draw(st.integers(2, 4))
    most = {2: 20, 3: 10, 4: 6}[n]
    eras = draw(st.sampled_from(((0,), (0,), (2**63 - 14,), (1 - 2**63, 0, 2**62, 2**63 - 14))))
    times = st.builds(int.__add__, st.integers(0, 12), st.sampled_from(eras))
    row = st.tuples(times, st.integers(0, 2), st.integers(-2, 2), st.sampled_from((0.0, 0.5, 1.5, np.nan)))
    flags = st.lists(st.booleans(), min_size=most, max_size=most)
    streams = [draw(st.lists(row, max_size=most)) for _ in range(n)]
    if draw(st.booleans()):
        streams = [sorted(rows, key=lambda r: r[0]) for rows in streams]
    kinds = (np.int64, np.int64, np.int64, np.float64)
    columns = [tuple(np.array([r[c] for r in rows], kinds[c]) for c in range(4)) for rows in streams]
    tests: list[PairTest] = []
    if draw(st.booleans()):
        tests += equal_keys(0, dict.fromkeys(range(n), 0))
    for _ in range(draw(st.integers(0, 3))):
        x, y = draw(st.permutations(range(n)))[:2]
        op = draw(st.sampled_from((EQUAL, LESS, LESS_EQUAL, BAND, REAL_BAND)))
        column = {BAND: 1, REAL_BAND: 2}.get(op, 0)
        lo, hi = draw(st.sampled_from(((-1, 1), (None, 0), (0, None)))) if column else (None, None)
        tests.append(PairTest(op, x, column, y, column, lo, hi))
    new = tuple(np.array(draw(flags)[: len(rows)], bool) for rows in streams) if draw(st.booleans()) else None
    order = tuple((d, *draw(st.permutations([x for x in range(n) if x != d]))) for d in range(n))
    return Problem(
        tuple(c[0] for c in columns), tuple(c[1:] for c in columns), draw(graphs(n)), tuple(tests), new, order
    )


def holds(t: PairTest, a: Any, b: Any) -> bool:
    if t.op in (EQUAL, LESS, LESS_EQUAL):
        return bool({EQUAL: a == b, LESS: a < b, LESS_EQUAL: a <= b}[t.op])
    d = a - b
    # NaN is greater than any number.
    return (t.lo is None or np.isnan(d) or d >= t.lo) and (t.hi is None or d <= t.hi)


def combinations(p: Problem) -> set[tuple[int, ...]]:
    found = set()
    for rows in product(*(range(len(t)) for t in p.ts)):
        times = [int(t[r]) for t, r in zip(p.ts, rows, strict=True)]
        within = all(times[y] - times[x] <= p.hi[x, y] for x in range(p.streams) for y in range(p.streams))
        if not within or (p.new is not None and not any(f[r] for f, r in zip(p.new, rows, strict=True))):
            continue
        if all(holds(t, p.columns[t.x][t.x_column][rows[t.x]], p.columns[t.y][t.y_column][rows[t.y]]) for t in p.tests):
            found.add(rows)
    return found


def run(
    kernel: Kernel, p: Problem, arrival: np.ndarray | None, counts: np.ndarray | None, limit: int
) -> list[tuple[int, ...]]:
    chunks = list(kernel(p, arrival, counts, limit))
    assert all(0 < chunk.shape[1] <= limit for chunk in chunks)
    return [tuple(map(int, rows)) for chunk in chunks for rows in chunk.T]


ORDERS = (round_robin, in_time, None)
LIMITS = (1, 2, 7, 1000)


@pytest.mark.parametrize("way", WAYS)
@given(problems(), st.sampled_from(LIMITS), st.sampled_from(ORDERS))
def test_finds_every_combination_once(way, problem, limit, order):
    check(WAYS[way], problem, limit, order)


def check(kernel: Kernel, problem: Problem, limit: int, order: Any) -> None:
    """A kernel finds every combination once, and counts them."""
    arrival = None
    if order is not None:
        arrival = order(problem)
        arrival = (
            arrival if problem.new is None else arrival[np.argsort(np.concatenate(problem.new)[arrival], kind="stable")]
        )
    counts = counters()
    found = run(kernel, problem, arrival, counts, limit)
    assert len(found) == len(set(found))
    assert set(found) == combinations(problem)
    assert counts[COUNTERS.index("results")] == len(found)
    assert counts.min() >= 0


def streams(rates: list[int], rows: int = 2000, values: int = 20) -> Problem:
    """Exponential interarrival times at these rates, one window of 30 ms, one key."""
    rng = np.random.default_rng(1)
    ts = tuple(np.cumsum(rng.exponential(1e6 / rate, rows)).astype(np.int64) for rate in rates)
    hi = np.full((len(rates), len(rates)), 30_000) - 30_000 * np.eye(len(rates), dtype=np.int64)
    return Problem(
        ts,
        tuple((rng.integers(0, values, rows),) for _ in rates),
        hi,
        equal_keys(0, dict.fromkeys(range(len(rates)), 0)),
    )


def counted(kernel: Kernel, p: Problem, arrival: np.ndarray) -> dict[str, int]:
    counts = counters()
    for _ in kernel(p, arrival, counts, 1000):
        pass
    return dict(zip(COUNTERS, map(int, counts), strict=True))


def test_local_windows_admit_less_than_the_largest():
    p = streams([1000] * 4, 500)
    hi = np.full((4, 4), 3_000)
    hi[2, 3] = hi[3, 2] = 30_000
    p = Problem(p.ts, p.columns, hi, p.tests)
    local, largest = (counted(WAYS[way], p, in_time(p)) for way in ("lca", "gca(mw)"))
    assert local["results"] == largest["results"]
    assert local["tests"] * 2 < largest["tests"]
