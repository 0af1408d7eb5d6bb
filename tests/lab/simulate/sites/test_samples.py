"""Streams that sites cannot join are refused, and it is said why."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.errors import StreamError
from watersmeet.sites.planning.model import SiteQuery
from watersmeet_lab.simulate.sites.samples import Sample, Streams

ROWS = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_rows=2)


def sample(ts: list[int]) -> Sample:
    return Sample(np.array(ts, np.int64), {"k": np.zeros(len(ts), np.int64)}, 10.0, {"k": 4.0})


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ({"a": sample([1, 2])}, "stream b: there is no data"),
        ({"a": sample([2, 1]), "b": sample([])}, "sort them"),
    ],
)
def test_errors(samples, said):
    with pytest.raises(StreamError, match=said):
        Streams(ROWS, samples)
