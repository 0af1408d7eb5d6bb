"""Sums of instants and spans are those of whole numbers of any size, cut off at the ends of time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.instants import FIRST, LAST, NO_BOUND, add_span, shift, shift_instant

INSTANTS = st.integers(FIRST, LAST) | st.sampled_from((FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST))
SPANS = st.integers(-NO_BOUND + 1, NO_BOUND - 1)


@given(st.lists(st.tuples(INSTANTS, SPANS), min_size=1, max_size=9))
def test_sums_saturate_and_never_wrap(rows: list[tuple[int, int]]) -> None:
    ts, by = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    want = [min(max(t + span, FIRST), LAST) for t, span in rows]
    assert [int(shift_instant(t, span)) for t, span in rows] == want
    assert [add_span(t, span) for t, span in rows] == want
    assert shift(ts, by).tolist() == want
    assert [int(shift(ts[n : n + 1], span)[0]) for n, (_, span) in enumerate(rows)] == want


@given(INSTANTS)
def test_no_bound_reaches_the_end_of_time_from_everywhere(ts: int) -> None:
    for by, end in ((NO_BOUND, LAST), (-NO_BOUND, FIRST)):
        assert shift_instant(ts, by) == shift(np.array([ts]), by)[0] == shift(np.array([ts]), np.array([by]))[0] == end


@given(INSTANTS, INSTANTS, SPANS)
def test_windows_are_decided_exactly(x: int, y: int, hi: int) -> None:
    if FIRST < y < LAST:
        assert (y <= shift_instant(x, hi)) == (y - x <= hi)
        assert (y >= shift_instant(x, hi)) == (y - x >= hi)
