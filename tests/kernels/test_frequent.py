"""Frequent codes of a sample are those that a plain count finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.frequent import MOST_SAMPLED, find_frequent, sample_positions


@given(st.lists(st.sampled_from((0, 1, -1, 2**62, -(2**63), 1024, 2048, *range(40))), max_size=MOST_SAMPLED), st.sampled_from((2, 8, 64)))  # fmt: skip
def test_frequent_codes_are_counted(codes: list[int], rarest: int) -> None:
    at, counts = find_frequent(np.array(codes, np.int64), rarest)
    want = {code: n for code, n in Counter(codes).items() if n > 1 and n * rarest > len(codes)}
    assert {codes[i]: n for i, n in zip(at.tolist(), counts.tolist(), strict=True)} == want
    assert at.tolist() == sorted(codes.index(code) for code in want)


@given(st.integers(0, 5000), st.integers(1, MOST_SAMPLED))
def test_positions_are_of_all_parts(rows: int, most: int) -> None:
    found = sample_positions(rows, most)
    assert len(found) <= most
    assert sorted({*found.tolist()}) == found.tolist()
    assert rows == 0 or (found[0] >= 0 and found[-1] < rows)
    assert len(found) == rows if rows <= most else len(found) > most // 2


def test_a_period_of_the_rows_is_not_met() -> None:
    """Every second tuple has the hot key, and every second position would be looked at."""
    codes = np.arange(10 * MOST_SAMPLED) % 2
    share = codes[sample_positions(len(codes), MOST_SAMPLED)].mean()
    assert 0.4 < share < 0.6
