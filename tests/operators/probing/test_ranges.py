"""Ranges of residuals: what a sorted index is asked for holds all that the residual accepts, and for exact ones no more."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernels.hashing import order_floats
from watersmeet.kernels.residual import LESS, LESS_EQUAL, band_floats, compare
from watersmeet.operators.probing import ranges
from watersmeet.plan.options import Options
from watersmeet.plan.residual import Compare, Difference
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.local import LocalRun
from watersmeet.sql.parse import parse

BOTTOM, TOP = -(2**63), 2**63 - 1
INTEGERS = st.one_of(st.integers(-3, 3), st.sampled_from([BOTTOM, BOTTOM + 1, BOTTOM + 2, TOP - 2, TOP - 1, TOP]))
SHIFTS = st.none() | st.integers(-4, 4) | st.sampled_from([2**53, -(2**53), TOP - 1, BOTTOM + 1, 2**63, 10**30])
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 0.1 + 0.2, 1.0, -1.0, 2.0**53, 2.0**53 + 2, 1e308, -1e308, 5e-324]),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.floats(),
)
TINY = 1.5 * 2.0**-54
"""1.0 + TINY rounds to 1.0, and 1.0 - TINY does not."""
BOUNDS = st.none() | st.sampled_from([0.0, -0.0, 0.1, -0.1, 1.0, -1.0, 5e-324, 1e308, -1e308, 2.0**53])


def inside(found: ranges.Ranges, codes: np.ndarray) -> np.ndarray:
    """For every probe and every code of y, whether it is in range."""
    return (found.lo[:, None] <= codes) & (codes <= found.hi[:, None])


def every_pair(xs: np.ndarray, ys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(xs)), len(ys)), np.tile(np.arange(len(ys)), len(xs))


@given(st.lists(INTEGERS, max_size=6), st.lists(INTEGERS, max_size=6), st.sampled_from(["<", "<="]), st.booleans())
def test_a_comparison_is_exact(xs, ys, op, y_is_left):
    x, y = np.array(xs, np.int64), np.array(ys, np.int64)
    sides = (("y", "v"), ("x", "v")) if y_is_left else (("x", "v"), ("y", "v"))
    residual = Compare(sides[0], op, sides[1], "integer", "")
    x_idx, y_idx = every_pair(x, y)
    code = LESS if op == "<" else LESS_EQUAL
    want = compare(y, y_idx, x, x_idx, code) if y_is_left else compare(x, x_idx, y, y_idx, code)
    found = ranges.of(residual, "y", x)
    assert inside(found, y).ravel().tolist() == want.tolist()
    assert found.settled == (residual,)


@given(st.lists(INTEGERS, max_size=6), st.lists(INTEGERS, max_size=6), SHIFTS, SHIFTS, st.booleans())
@example([TOP], [TOP, BOTTOM], 1, None, True)
@example([BOTTOM], [TOP, BOTTOM], None, -1, True)
def test_a_band_of_integers_is_exact_beyond_64_bits(xs, ys, lo, hi, y_is_left):
    sides = (("y", "v"), ("x", "v")) if y_is_left else (("x", "v"), ("y", "v"))
    residual = Difference(*sides, lo, hi, "integer", "")
    want = [
        (lo is None or lo <= d) and (hi is None or d <= hi)
        for x in xs
        for y in ys
        for d in [y - x if y_is_left else x - y]
    ]
    found = ranges.of(residual, "y", np.array(xs, np.int64))
    assert inside(found, np.array(ys, np.int64)).ravel().tolist() == want
    assert found.settled == (residual,)


@given(st.lists(FLOATS, max_size=6), st.lists(FLOATS, max_size=6), BOUNDS, BOUNDS, st.booleans())
@example([math.nan], [math.nan, 0.0], -1.0, None, False)
@example([0.3], [0.1, 0.2], 0.1, 0.1, False)
@example([1e308], [-1e308], 0.0, 1e308, False)
@example([-TINY, TINY], [-1.0, 1.0], -1.0, 1.0, True)
@example([-TINY, TINY], [-1.0, 1.0], -1.0, 1.0, False)
def test_a_band_of_doubles_loses_nothing(xs, ys, lo, hi, y_is_left):
    x, y = np.array(xs, np.float64), np.array(ys, np.float64)
    sides = (("y", "v"), ("x", "v")) if y_is_left else (("x", "v"), ("y", "v"))
    residual = Difference(*sides, lo, hi, "double", "")
    x_idx, y_idx = every_pair(x, y)
    low, high = -np.inf if lo is None else lo, np.inf if hi is None else hi
    want = band_floats(y, y_idx, x, x_idx, low, high) if y_is_left else band_floats(x, x_idx, y, y_idx, low, high)
    found = ranges.of(residual, "y", x)
    kept = inside(found, order_floats(-y if found.order == "-float" else y)).ravel()
    assert not (want & ~kept).any()
    assert found.settled == (), "rounding decides at the edges, so pairs are tested again"


@pytest.mark.parametrize("y_is_left", [True, False])
def test_a_band_of_doubles_is_narrow(y_is_left):
    sides = (("y", "v"), ("x", "v")) if y_is_left else (("x", "v"), ("y", "v"))
    x, y = np.array([10.0]), np.array([8.0, 8.9, 9.0, 10.0, 12.0, 12.1, np.nan, np.inf])
    residual = Difference(*sides, *((-1.0, 2.0) if y_is_left else (-2.0, 1.0)), "double", "")
    assert inside(ranges.of(residual, "y", x), order_floats(y)).tolist() == [[False] * 2 + [True] * 3 + [False] * 3]


def candidates(where: str, kernel: str = "auto") -> tuple[int, int]:
    """How many pairs of 1,000 x 1,000 rows were met, and how many are results."""
    rng = np.random.default_rng(1)
    tables = {
        name: pa.table(
            {
                "k": rng.integers(0, 1000, 1000),
                "v": rng.random(1000),
                "ts": pa.array(np.arange(1000) * 1000, pa.timestamp("us", tz="UTC")),
            }
        )
        for name in ("s", "t")
    }
    schema = {"k": "bigint", "v": "double", "ts": "timestamp"}
    join = parse(
        f"SELECT a.k FROM s a, t b WHERE {where} WINDOW = 10 SECONDS",
        {name: StreamSpec(name, schema, "ts") for name in tables},
    )
    run = LocalRun(join, tables, Options(kernel=kernel, units=1))  # type: ignore[arg-type]
    results = run.run(1000).num_rows
    return int(sum(met for _, met, *_ in run.units.states[0].fanout.values())), results


@pytest.mark.parametrize(
    "where",
    [
        "abs(a.k - b.k) <= 1",
        "a.k BETWEEN b.k - 1 AND b.k + 1",
        "b.k BETWEEN a.k - 1 AND a.k + 1",
        "abs(a.v - b.v) <= 0.001",
        "a.v <= b.v + 0.001 AND b.v <= a.v + 0.001",
    ],
)
def test_only_what_is_in_range_is_met(where):
    met, results = candidates(where)
    assert met == results > 500
    assert candidates(where, "nlw") == (1_000_000, results)


@pytest.mark.parametrize(
    "where", ["a.v < b.v AND abs(a.k - b.k) <= 1", "abs(a.k - b.k) <= 1 AND a.v < b.v AND a.k <= b.k"]
)
def test_the_most_selective_condition_is_probed(where):
    met, results = candidates(where)
    assert results <= met < 4000
