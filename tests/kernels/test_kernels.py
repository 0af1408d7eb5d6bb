"""Every kernel against a plain transcription of what it should find: ties, duplicates, edges, collisions, empty input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels import hash_window, nested_loop
from watersmeet.kernels.hash_window import pairs
from watersmeet.kernels.hashing import combine, hash_bytes, order_floats
from watersmeet.kernels.placement import hash_codes
from watersmeet.kernels.residual import EQUAL, LESS, LESS_EQUAL, band_floats, band_integers, compare

CODES = st.sampled_from([0, 1, 2, -1, 2**62, -(2**63), 2**63 - 1])
TIMES = st.integers(-5, 5)
ROWS = st.lists(st.tuples(CODES, TIMES), max_size=30)
PROBES = st.lists(st.tuples(CODES, TIMES, TIMES), max_size=10)


def _columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return [np.array([r[i] for r in rows], np.int64) for i in range(width)]


def _found(first: np.ndarray, count: np.ndarray, rows: np.ndarray, limit: int) -> set[tuple[int, int]]:
    out = []
    for probe_idx, row_idx in pairs(first, count, rows, limit):
        assert 0 < len(probe_idx) == len(row_idx) <= limit
        out += list(zip(probe_idx.tolist(), row_idx.tolist(), strict=True))
    assert len(out) == len(set(out))
    return set(out)


@given(ROWS, PROBES, st.integers(1, 7))
def test_hash_window_finds_exactly_the_period_of_the_key(
    rows: list[tuple[int, int]], probes: list[tuple[int, int, int]], limit: int
) -> None:
    index = hash_window.build(*_columns(rows, 2))
    first, count = hash_window.probe(index, *_columns(probes, 3))
    expected = {
        (p, r)
        for p, (code, lo, hi) in enumerate(probes)
        for r, (c, t) in enumerate(rows)
        if c == code and lo <= t <= hi
    }
    assert _found(first, count, index.rows, limit) == expected
    assert index.groups == len({c for c, _ in rows})


@given(ROWS, PROBES, st.integers(1, 7))
def test_nested_loop_finds_exactly_the_period(
    rows: list[tuple[int, int]], probes: list[tuple[int, int, int]], limit: int
) -> None:
    index = nested_loop.build(_columns(rows, 2)[1])
    _, lo, hi = _columns(probes, 3)
    expected = {(p, r) for p, (_, low, high) in enumerate(probes) for r, (_, t) in enumerate(rows) if low <= t <= high}
    assert _found(*nested_loop.probe(index, lo, hi), index.rows, limit) == expected


FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)


def _spark_less(x: float, y: float) -> bool:
    """Spark's order: NaN equals NaN and is greater than all else; zeros are equal."""
    if np.isnan(x):
        return False
    return bool(np.isnan(y)) or x < y


@given(st.lists(FLOATS, min_size=1, max_size=12))
def test_codes_of_floats_keep_sparks_order(values: list[float]) -> None:
    code = order_floats(np.array(values))
    for i, x in enumerate(values):
        for j, y in enumerate(values):
            assert bool(code[i] < code[j]) == _spark_less(x, y)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20))
def test_hash_of_bytes_depends_on_the_value_alone(values: list[bytes]) -> None:
    def codes(data: list[bytes]) -> np.ndarray:
        offsets = np.cumsum([0, *map(len, data)]).astype(np.int64)
        return hash_bytes(offsets, np.frombuffer(b"".join(data) + b"?", np.uint8))

    alone = [int(codes([v])[0]) for v in values]
    assert codes(values).tolist() == alone
    assert len(set(alone)) == len(set(values))


def test_buckets_are_even_and_order_matters_in_combinations() -> None:
    codes = np.arange(100_000, dtype=np.int64)
    counts = np.bincount(hash_codes(codes) % 8, minlength=8)
    assert counts.min() > 0.95 * counts.mean()
    assert not np.array_equal(combine(codes, codes[::-1].copy()), combine(codes[::-1].copy(), codes))


@given(st.lists(st.tuples(CODES, CODES), max_size=10), st.sampled_from([LESS, LESS_EQUAL, EQUAL]))
def test_compare(rows: list[tuple[int, int]], op: int) -> None:
    left, right = _columns(rows, 2)
    at = np.arange(len(rows))
    expected = [(x < y, x <= y, x == y)[op] for x, y in rows]
    assert compare(left, at, right, at, op).tolist() == expected


@given(st.lists(st.tuples(CODES, CODES), max_size=10), st.integers(-3, 3), st.integers(0, 5))
def test_band_of_integers_is_exact_beyond_64_bits(rows: list[tuple[int, int]], lo: int, width: int) -> None:
    left, right = _columns(rows, 2)
    at = np.arange(len(rows))
    assert band_integers(left, at, right, at, lo, lo + width).tolist() == [lo <= x - y <= lo + width for x, y in rows]


@pytest.mark.parametrize(
    ("left", "right", "lo", "hi", "expected"),
    [(1.5, 1.0, -0.5, 0.5, True), (1.5, 0.9, -0.5, 0.5, False), (np.nan, 1.0, -1.0, 1.0, False), (np.nan, 1.0, -1.0, np.inf, True), (np.inf, np.inf, -1.0, np.inf, True), (-np.inf, 1.0, -np.inf, 0.0, True)],
)  # fmt: skip
def test_band_of_floats_follows_spark(left: float, right: float, lo: float, hi: float, expected: bool) -> None:
    at = np.zeros(1, np.int64)
    assert band_floats(np.array([left]), at, np.array([right]), at, lo, hi).tolist() == [expected]
