"""Streams: a time column that is one, spans that are spans."""

from __future__ import annotations

from datetime import timedelta

import pytest

from watersmeet.errors import StreamError
from watersmeet.query.stream import Stream, StreamSpec

SCHEMA = {"k": "bigint", "Ts": "timestamp", "at": "timestamp_ntz"}


def test_spans_of_a_stream():
    stream = Stream(None, time="ts", lateness="10 seconds", idle=timedelta(minutes=1))
    assert (stream.time, stream.lateness_us, stream.idle_us) == ("ts", 10_000_000, 60_000_000)
    assert (Stream(None, time="ts").lateness_us, Stream(None, time="ts").idle_us) == (0, None)
    assert Stream(None, time="ts", max_ahead="1 hour").show() == "(time ts, lateness 0 s, at most 1 h ahead)"


@pytest.mark.parametrize("time", ["", None, 3])
def test_time_must_be_a_name(time):
    with pytest.raises(StreamError, match="timestamp column"):
        Stream(None, time=time)


@pytest.mark.parametrize("name", ["lateness", "idle", "max_ahead"])
@pytest.mark.parametrize("value", ["soon", "-1 second", 5, timedelta(seconds=-1), "1 month"])
def test_a_bad_span_names_itself(name, value):
    with pytest.raises(StreamError, match=name):
        Stream(None, time="ts", **{name: value})


@pytest.mark.parametrize("time", ["Ts", "at"])
def test_time_column_of_either_type(time):
    assert StreamSpec("clicks", SCHEMA, time).time == time


def test_time_column_in_the_schemas_spelling():
    assert StreamSpec("clicks", SCHEMA, "TS").time == "Ts"


def test_missing_time_column_lists_the_columns():
    with pytest.raises(StreamError, match=r"clicks.*'when'.*k, Ts, at"):
        StreamSpec("clicks", SCHEMA, "when")


def test_time_column_must_be_a_timestamp():
    with pytest.raises(StreamError, match=r"clicks.*'k' is bigint"):
        StreamSpec("clicks", SCHEMA, "k")
