"""Biclique routing: stored once, and a tuple probes the unit where its partner is stored exactly once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.routing.rows import Rows
from watersmeet.routing.biclique import Biclique, Cells, Keys, biclique

CODES = st.integers(-(2**63), 2**63 - 1)
SIZES = st.integers(1, 6).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m)))


def visits(routing: Biclique, side: int, rows: Rows) -> tuple[list[int], list[Counter[int]]]:
    """For every row the unit that stores it, and how often it probes each unit."""
    stored, probed = [-1] * rows.rows, [Counter[int]() for _ in range(rows.rows)]
    for delivery in routing.deliveries(side, rows):
        at = range(rows.rows) if delivery.rows is None else delivery.rows.tolist()
        for row in at:
            if delivery.role == "store":
                assert stored[row] == -1, "a second copy is stored"
                (stored[row],) = delivery.units
            else:
                probed[row].update(delivery.units)
    assert all(set(units) == {1} for counter in probed for units in [counter.values()] if counter), "a probe came twice"
    assert set(stored) <= set(routing.members[side])
    return stored, probed


@given(SIZES, SIZES, st.lists(st.tuples(st.integers(0, 5), CODES, CODES), min_size=1, max_size=20), st.booleans())
def test_equal_keys_find_each_other(
    left: tuple[int, int], right: tuple[int, int], drawn: list[tuple[int, int, int]], hot: bool
) -> None:
    (m, d), (n, e) = left, right
    routing = biclique(m, n, Keys((0,)), d, e)
    if hot:
        routing = routing.with_hot([0, 3])
    keys = [k for k, _, _ in drawn]
    stored_r, probed_r = visits(routing, 0, Rows({0: keys}, [x for _, x, _ in drawn]))
    stored_s, probed_s = visits(routing, 1, Rows({0: keys}, [y for _, _, y in drawn]))
    for i, x in enumerate(keys):
        for j, y in enumerate(keys):
            if x == y:
                assert probed_r[i][stored_s[j]] == 1
                assert probed_s[j][stored_r[i]] == 1


@given(st.integers(1, 5), st.integers(1, 5), st.lists(CODES, min_size=1, max_size=20))
def test_at_random_everyone_meets_everyone(m: int, n: int, spread: list[int]) -> None:
    stored_r, probed_r = visits(biclique(m, n), 0, Rows(spread=spread))
    stored_s, probed_s = visits(biclique(m, n), 1, Rows(spread=spread))
    assert all(p[u] == 1 for p in probed_r for u in stored_s)
    assert all(p[u] == 1 for p in probed_s for u in stored_r)


FLOATS = st.one_of(
    st.floats(-100, 100), st.integers(-50, 50).map(lambda n: n / 10), st.floats(allow_nan=True, allow_infinity=True)
)


@given(
    st.integers(1, 6), st.integers(1, 6), st.floats(-3, 3), st.floats(0, 5), st.lists(FLOATS, min_size=1, max_size=20),
    st.lists(FLOATS, min_size=1, max_size=20), st.booleans(),
)  # fmt: skip
@example(6, 6, -0.1, 0.2, [0.3], [0.1 + 0.2, 0.2, 0.4], False)
@example(3, 3, 1.0, 0.0, [2.0**53 + 2], [2.0**53], True)
@example(3, 4, -1.0, 2.0, [1.7976931348623157e308, 1e18 + 128], [1.7976931348623157e308, 1e18], False)
def test_values_inside_the_band_find_each_other(
    m: int, n: int, lo: float, span: float, left: list[float], right: list[float], integers: bool
) -> None:
    hi = lo + span
    routing = biclique(m, n, Cells.of_band(("x", "y"), lo, hi, integers=integers), m, n)
    stored_r, probed_r = visits(routing, 0, Rows(values={"x": left}))
    stored_s, probed_s = visits(routing, 1, Rows(values={"y": right}))
    with np.errstate(invalid="ignore", over="ignore"):
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                if lo <= np.float64(x) - np.float64(y) <= hi:
                    assert probed_r[i][stored_s[j]] == 1
                    assert probed_s[j][stored_r[i]] == 1


@given(
    st.integers(1, 6), st.integers(1, 6), st.floats(-3, 3), st.floats(0, 5), st.lists(FLOATS, min_size=1, max_size=20),
    st.lists(FLOATS, min_size=1, max_size=20), st.lists(st.floats(-3, 3), max_size=4),
)  # fmt: skip
@example(3, 3, 0.0, 1.0, [float("nan"), float("inf")], [float("nan"), float("inf"), -float("inf")], [0.5])
def test_nan_is_the_largest_of_ordered_values_and_finds_itself(
    m: int, n: int, lo: float, span: float, left: list[float], right: list[float], edges: list[float]
) -> None:
    hi = lo + span
    cells = Cells.of_band(("x", "y"), lo, hi, integers=False, ordered=True)
    cells = replace(cells, edges=(tuple(sorted(edges)), tuple(sorted(edges)))) if edges else cells
    routing = Biclique.from_json(biclique(m, n, cells, m, n).to_json())
    stored_r, probed_r = visits(routing, 0, Rows(values={"x": left}))
    stored_s, probed_s = visits(routing, 1, Rows(values={"y": right}))
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            if _is_at_most(y + lo, x) and _is_at_most(x, y + hi):
                assert probed_r[i][stored_s[j]] == 1
                assert probed_s[j][stored_r[i]] == 1


def _is_at_most(x: float, y: float) -> bool:
    """As SQL compares: NaN is the largest and equals itself."""
    return math.isnan(y) or x <= y


def test_a_range_probe_visits_few() -> None:
    routing = biclique(8, 8, Cells.of_band(("x", "y"), -1, 1, integers=True), 8, 8)
    _, probed = visits(routing, 0, Rows(values={"x": list(range(1000))}))
    assert max(len(p) for p in probed) == 2
    assert sum(len(p) for p in probed) < 1.5 * 1000


def test_random_routing_is_balanced_whatever_the_keys() -> None:
    spread = np.random.default_rng(1).integers(-(2**62), 2**62, 20_000).tolist()
    stored, _ = visits(biclique(4, 4), 0, Rows({0: [7] * 20_000}, spread))
    assert max(Counter(stored).values()) < 1.05 * 5_000


@pytest.mark.parametrize(
    ("routing", "kind", "copies"),
    [
        (biclique(4, 4), "random", 5),
        (biclique(4, 4, Keys((0,)), 2, 2), "contrand", 3),
        (biclique(4, 4, Keys((0,)), 4, 4), "hash", 2),
        (biclique(3, 5, Keys((0,)), 1, 5), "contrand", 2),
    ],
)
def test_copies_follow_equation_5(routing: Biclique, kind: str, copies: float) -> None:
    """n / e probes and one to store (Lin et al., section 4.3)."""
    assert (routing.kind, routing.copies(0)) == (kind, copies)
