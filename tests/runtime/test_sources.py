"""Sources that do not go together are refused when the query is bound, and not later."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from watersmeet.errors import StreamError
from watersmeet.runtime.sources import _check_kinds

ONE, OTHER = object(), object()
TABLE = pa.table({"k": [1]})


def frame(streaming: bool, session: object = ONE) -> SimpleNamespace:
    return SimpleNamespace(isStreaming=streaming, dtypes=[], sparkSession=session)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ({"a": frame(True), "b": frame(False)}, r"b is static and the rest streams.*spark\.readStream"),
        ({"a": frame(False), "b": TABLE}, "alias b: an Arrow table cannot be joined with DataFrames"),
        ({"a": frame(True), "b": frame(True, OTHER)}, "different Spark sessions"),
    ],
)
def test_sources_that_do_not_go_together(frames, said):
    with pytest.raises(StreamError, match=said):
        _check_kinds(frames)


@pytest.mark.parametrize("frames", [[frame(True)] * 2, [frame(False)] * 2, [TABLE] * 2])
def test_sources_that_do(frames):
    _check_kinds(dict(enumerate(frames)))
