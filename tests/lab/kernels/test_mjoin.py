"""MJoin makes every combination once, whatever the runs, the probe sequences, the windows and the room for output."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.instants import NO_BOUND
from watersmeet_lab.kernels.mjoin import Inputs, MJoin

ROWS = {2: 12, 3: 9, 4: 6, 5: 4}


@st.composite
def problems(draw):
    """Inputs with few keys and few times, and the window of every pair."""
    n = draw(st.integers(2, 5))
    eras = draw(st.sampled_from(((0,), (0,), (2**63 - 10,), (-(2**63), 0, 2**62, 2**63 - 12))))
    times = st.builds(int.__add__, st.integers(0, 9), st.sampled_from(eras))
    rows = st.lists(st.tuples(st.integers(0, 2), times), max_size=ROWS[n])
    data = [draw(rows) for _ in range(n)]
    if draw(st.booleans()):
        data = [sorted(d, key=lambda r: r[1]) for d in data]
    hi = np.full((n, n), NO_BOUND)
    kind = draw(st.sampled_from(("none", "all", "pairs")))
    for x, y in product(range(n), repeat=2):
        if kind != "none" and x != y:
            hi[x, y] = 3 if kind == "all" else draw(st.sampled_from((0, 2, 5, NO_BOUND)))
    return (
        [np.array([k for k, _ in d], np.int64) for d in data],
        [np.array([t for _, t in d], np.int64) for d in data],
        hi,
    )


def nested_loops(keys, ts, hi):
    for rows in product(*(range(len(k)) for k in keys)):
        same = len({int(k[r]) for k, r in zip(keys, rows, strict=True)}) == 1
        pairs = product(range(len(keys)), repeat=2)
        when = [int(t[r]) for t, r in zip(ts, rows, strict=True)]
        if same and all(when[y] - when[x] <= hi[x, y] or hi[x, y] == NO_BOUND for x, y in pairs if x != y):
            yield rows


@st.composite
def runs(draw, sizes):
    """All rows of all inputs, those of one input in their order, in any interleaving, some runs joined."""
    order = draw(st.permutations([i for i, size in enumerate(sizes) for _ in range(size)]))
    at, out = [0] * len(sizes), []
    for i in order:
        if out and out[-1][0] == i and draw(st.booleans()):
            out[-1][2] += 1
        else:
            out.append([i, at[i], at[i] + 1])
        at[i] += 1
    return np.array(out, np.int64).reshape(-1, 3)


@given(st.data(), problems(), st.sampled_from((1, 3, 1000)), st.sampled_from((0, 1, 8)))
def test_every_combination_once(data, problem, limit, ahead):
    keys, ts, hi = problem
    n, sizes = len(keys), [len(k) for k in keys]
    sequences = np.array([data.draw(st.permutations([y for y in range(n) if y != x])) for x in range(n)])
    order = data.draw(runs(sizes))
    cut = data.draw(st.integers(0, len(order)))
    join, found = MJoin(Inputs.of(keys, ts, hi), limit, ahead, data.draw(st.booleans())), []
    for part in (order[:cut], order[cut:]):
        for chunk in join.process(part, sequences):
            assert 0 < chunk.shape[1] <= limit
            found += list(map(tuple, chunk.T.tolist()))
    assert sorted(found) == sorted(nested_loops(keys, ts, hi))
    assert join.sizes.tolist() == sizes
    first = join.counts.probes[:, 0]
    assert first.tolist() == sizes, "every tuple probes its first table once"


def test_probes_depend_on_the_order_of_drivers_and_results_do_not():
    keys = [np.zeros(10, np.int64), np.arange(1000) + 5, np.zeros(100, np.int64)]
    ts = [np.zeros(len(k), np.int64) for k in keys]
    sequences = np.array([[1, 2], [0, 2], [0, 1]])
    counted = {}
    for order in ((0, 1, 2), (2, 1, 0)):
        join = MJoin(Inputs.of(keys, ts))
        assert list(join.process(np.array([[i, 0, len(keys[i])] for i in order]), sequences)) == []
        counted[order] = int(join.counts.probes.sum())
    assert counted == {(0, 1, 2): 1110 + 1000, (2, 1, 0): 1110}


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_one_key_for_all_rows(rows):
    keys, ts = [np.zeros(rows, np.int64)] * 2, [np.arange(rows)] * 2
    join = MJoin(Inputs.of(keys, ts), limit=7)
    found = np.concatenate(
        [c.copy() for c in join.process(np.array([[0, 0, rows], [1, 0, rows]]), np.array([[1], [0]]))], axis=1
    )
    assert len({*map(tuple, found.T.tolist())}) == found.shape[1] == rows * rows


def test_a_sample_counts_what_it_would_match():
    join = MJoin(Inputs.of([[1, 2, 3], [1, 1, 2, 9]], [[0] * 3, [0] * 4]))
    list(join.process(np.array([[0, 0, 3], [1, 0, 4]]), np.array([[1], [0]])))
    assert join.count_matches(np.array([0, 2]), 0, 1) == 2
    assert join.count_matches(np.array([0, 1, 2, 3]), 1, 0) == 3
