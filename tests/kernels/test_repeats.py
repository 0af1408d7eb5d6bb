"""Numbers of rows that repeat."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.repeats import number_repeated


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 10))
def test_numbers_stand_for_rows_unless_too_many_differ(rows, most):
    scratch = np.full(10, -1, np.int32)
    numbers, found = number_repeated(np.array(rows, np.int64), scratch, most)
    assert (scratch == -1).all()
    if len({*rows}) > most:
        assert len(numbers) == len(found) == 0
    else:
        assert found.tolist() == [*dict.fromkeys(rows)]
        assert found[numbers].tolist() == rows
