"""The sorted window kernel against every pair of probe and row: ties, edges, extremes, empty input, all of its ways."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernels import sorted_window
from watersmeet.kernels.sorted_window import BISECT, BOTTOM, RUN, SCAN, TEST, TOP, Box

VALUES = st.sampled_from([0, 1, 2, 3, -1, BOTTOM, BOTTOM + 1, TOP - 1, TOP])
TIMES = st.integers(-5, 5)
ROWS = st.lists(st.tuples(VALUES, TIMES), max_size=30)
PROBES = st.lists(st.tuples(VALUES, VALUES, TIMES, TIMES), max_size=8)


def columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return [np.array([r[i] for r in rows], np.int64) for i in range(width)]


def expected(values: np.ndarray, ts: np.ndarray, box: Box) -> set[tuple[int, int]]:
    inside = (box.lo_value[:, None] <= values) & (values <= box.hi_value[:, None])
    inside &= (box.lo[:, None] <= ts) & (ts <= box.hi[:, None])
    return set(zip(*(at.tolist() for at in np.nonzero(inside)), strict=True))


def found(index: sorted_window.SortedIndex, box: Box, limit: int) -> set[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for probe_idx, row_idx in sorted_window.pairs(index, box, limit):
        assert 0 < len(probe_idx) == len(row_idx) <= limit
        out += zip(probe_idx.tolist(), row_idx.tolist(), strict=True)
    assert len(out) == len(set(out))
    return set(out)


@given(ROWS, PROBES, st.integers(1, 7))
@example([], [(0, 0, 0, 0)], 1)
@example([(TOP, 0), (BOTTOM, 0)], [(BOTTOM, TOP, 0, 0), (TOP, TOP, 0, 0), (TOP, BOTTOM, 0, 0)], 1)
def test_finds_exactly_the_range_in_the_period(rows, probes, limit):
    values, ts = columns(rows, 2)
    index, box = sorted_window.build(values, ts), Box(*columns(probes, 4))
    assert found(index, box, limit) == expected(values, ts, box)
    assert index.groups == len({v for v, _ in rows})


def drawn(seed: int, rows: int, distinct: int, span: int, probes: int = 12) -> tuple[np.ndarray, np.ndarray, Box]:
    """Rows, and probes whose ranges and periods are of all sizes."""
    rng = np.random.default_rng(seed)
    values, ts = rng.integers(0, distinct, rows), rng.integers(0, span, rows)
    lo_value, lo = rng.integers(-1, distinct, probes), rng.integers(-1, span, probes)
    width, length = ((rng.random(probes) ** 3 * most).astype(np.int64) - 1 for most in (distinct + 2, span + 2))
    box = Box(lo_value, lo_value + width, lo, lo + length)
    return values, np.sort(ts) if seed % 2 else ts, box


@given(
    st.integers(0, 2**32),
    st.integers(0, 400),
    st.sampled_from((1, 2, 20, 5000)),
    st.sampled_from((1, 10, 5000)),
    st.sampled_from((1, 3, 50, 10_000)),
)
def test_whatever_the_shape(seed, rows, distinct, span, limit):
    values, ts, box = drawn(seed, rows, distinct, span)
    assert found(sorted_window.build(values, ts), box, limit) == expected(values, ts, box)


def ways(values: np.ndarray, ts: np.ndarray, *box: list[int]) -> tuple[list[int], int]:
    """The ways of the probes, and how many rows they meet together."""
    index = sorted_window.build(values, ts)
    way, _, _, most = sorted_window._ways(
        index.values, index.starts, index.by_time_times, *(np.array(e, np.int64) for e in box)
    )
    return way.tolist(), int(most)


def test_no_time_is_looked_at_where_the_segment_lies_inside_the_period():
    values, ts = np.arange(100), np.arange(100)
    assert ways(values, ts, [10, 10], [59, 59], [0, 1], [99, 99])[0] == [RUN, TEST]


def test_what_is_more_selective_is_bisected():
    values, ts = np.repeat(np.arange(10), 1000), np.tile(np.arange(1000), 10)
    order = np.argsort(ts, kind="stable")
    values, ts = values[order], ts[order]
    assert ways(values, ts, [3], [4], [500], [600]) == ([BISECT], 2000)
    assert ways(values, ts, [0], [8], [500], [501]) == ([SCAN], 20)
    assert ways(np.arange(10_000), np.arange(10_000), [100], [199], [0], [5000]) == ([TEST], 100)


@given(ROWS.filter(len), st.lists(VALUES, min_size=30, max_size=30), st.lists(st.tuples(VALUES, VALUES), max_size=8))
def test_a_second_column_that_rises_narrows_without_loss(rows, seconds, ranges):
    values, ts = columns(rows, 2)
    index = sorted_window.build(values, ts)
    for second in (np.array(seconds[: len(rows)]), np.sort(seconds[: len(rows)])[np.argsort(np.argsort(values))]):
        steps = sorted_window.steps(index, second)
        if steps is None:
            continue
        lo, hi = columns(ranges, 2)
        lo_value, hi_value = sorted_window.narrow(index, steps, lo, hi)
        wanted = (lo[:, None] <= second) & (second <= hi[:, None])
        kept = (lo_value[:, None] <= values) & (values <= hi_value[:, None])
        assert not (wanted & ~kept).any()
        if len(set(values.tolist())) == len(values):
            assert not (kept & ~wanted).any()


def test_a_shifted_column_rises_and_a_shuffled_one_does_not():
    values = np.random.default_rng(0).integers(0, 50, 300)
    index = sorted_window.build(values, np.arange(300))
    assert sorted_window.steps(index, 2 * values + 1) is not None
    assert sorted_window.steps(index, values % 7) is None
