"""What time alone decides: which tuples are dropped before a probe, and when a step is swept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.kernels.instants import mark

BASE_US = 1_700_000_000_000_000
TIMES = st.lists(st.integers(0, 60), max_size=60)


@given(TIMES, TIMES, st.integers(-9, 5), st.integers(0, 12))
def test_marks_exactly_the_tuples_with_a_partner(ts, times, lo, width):
    marked = np.zeros(len(ts), np.bool_)
    ordered = np.sort(np.array(times, np.int64))
    count = mark(np.array(ts, np.int64), np.arange(len(ts)), lo, lo + width, ordered, marked)
    assert marked.tolist() == [any(lo <= t - x <= lo + width for t in times) for x in ts]
    assert count == marked.sum()


def test_marks_stay():
    marked = np.array([True, False])
    assert mark(np.array([0, 50]), np.arange(2), -1, 1, np.array([49]), marked) == 2
    assert marked.all()


def stream(rate: float, seconds: float, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.uniform(0, seconds * 1e6, int(rate * seconds))).astype(np.int64) + BASE_US
    return pa.table({"k": rng.integers(0, 50, len(ts)), "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})


def run(rates: tuple[float, ...], window: str, batch_rows: int = 1000, **options: Any) -> tuple[int, wm.Counts]:
    """Results, and the counts, of a join of streams of these rates on one key."""
    tables = {f"s{n}": stream(rate, 4, n) for n, rate in enumerate(rates)}
    same = " AND ".join(f"s0.k = {name}.k" for name in list(tables)[1:])
    result = wm.local.run(
        f"SELECT s0.ts AS t FROM {', '.join(tables)} WHERE {same} WINDOW = {window}",
        tables,
        batch_rows=batch_rows,
        **options,
    )
    return result.num_rows, wm.local.counts(result)


def test_a_silent_stream_is_swept():
    results, counts = run((1000, 1000, 2), "20 MILLISECONDS")
    assert set(counts.kernels) == {"lca"}
    assert run((1000, 1000, 2), "20 MILLISECONDS", kernel="nlw")[0] == results


def test_streams_that_meet_are_probed():
    assert set(run((1000, 1000), "1 SECOND")[1].kernels) == {"hw"}


@pytest.mark.parametrize(
    "batch_rows", [20, 100]
)  # without a sample, and with one call for all drivers worth more than it
def test_small_batches_of_many_streams_are_swept(batch_rows):
    results, counts = run((100,) * 5, "2 MILLISECONDS", batch_rows)
    assert set(counts.kernels) == {"lca"}
    assert run((100,) * 5, "2 MILLISECONDS", batch_rows, kernel="hw")[0] == results


def test_small_batches_that_meet_much_are_probed():
    assert set(run((1000, 1000), "1 SECOND", 100)[1].kernels) == {"hw"}


def test_a_forced_kernel_is_never_swept_but_drops_tuples_without_partners():
    _, counts = run((1000, 1000, 2), "20 MILLISECONDS", kernel="hw")
    assert counts.kernels == {"hw": 8008}
    assert counts.pruned > 5000
    # The first driver of the first batch meets nothing; the second drops nothing.
    assert run((1000, 1000), "1 SECOND", kernel="hw")[1].pruned == 1000


@pytest.mark.parametrize("window", ["1 SECOND", "20 MILLISECONDS"])
@pytest.mark.parametrize("kernel", ["mw", "gca(hw)", "xjoin"])
def test_a_forced_kernel_is_what_runs(kernel, window):
    assert set(run((300, 100), window, kernel=kernel)[1].kernels) == {kernel}
