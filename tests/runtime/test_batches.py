"""Batches of a run in process: so many rows, or a span of event time."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import OptionError

TEXT = "SELECT a.k AS k, a.ts AS x, b.ts AS y FROM a, b WHERE a.k = b.k WINDOW = 2 SECONDS"


def table(seconds: list[float | None]) -> pa.Table:
    us = [None if s is None else int(s * 1_000_000) for s in seconds]
    return pa.table({"k": [1] * len(us), "ts": pa.array(us, pa.timestamp("us"))})


BURSTY = {"a": table([0, 0.1, 0.2, 0.3, 5, 5.1]), "b": table([0.05, 2.5, 5.05])}


def test_a_batch_is_a_span_of_event_time():
    by_time, by_rows = (wm.local.run(TEXT, BURSTY, **how) for how in ({"batch_time": "1 second"}, {"batch_rows": 1}))
    assert wm.local.counts(by_time).batches == 3  # spans without rows make none
    assert wm.local.counts(by_rows).batches == 6
    assert sorted(map(str, by_time.to_pylist())) == sorted(map(str, by_rows.to_pylist()))


def test_a_row_belongs_to_the_time_that_its_stream_has_reached():
    late = {"a": table([0, 3.2, None, 0.5, 3.4]), "b": table([3.1])}
    found = wm.local.run(TEXT, late, batch_time=timedelta(seconds=1), late=True)
    assert found.num_rows == 3  # two results, and the row without a time


@pytest.mark.parametrize("given", ["", "soon", 0, "-1 second"])
def test_what_is_no_span_is_refused(given):
    with pytest.raises(OptionError, match=r"batch_time=.*(give a duration)"):
        wm.local.run(TEXT, BURSTY, batch_time=given)


def test_rows_and_time_are_not_both_given():
    with pytest.raises(OptionError, match="give one of them"):
        wm.local.run(TEXT, BURSTY, batch_time="1 second", batch_rows=5)
