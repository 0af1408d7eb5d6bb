"""Arguments of `start()` that cannot be meant are refused, with what can."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from watersmeet.errors import OptionError
from watersmeet.runtime.given import trigger_of
from watersmeet.runtime.rounds.handle import check_keep
from watersmeet.runtime.rounds.sinks import FileSink, sink
from watersmeet.runtime.subscriptions.sinks import answer_sink


@pytest.mark.parametrize("given", ["nonsense", "", "10", "-1 second", 10, True, {}, {"once": True}, {"availableNow": False},
                                   {"processingTime": "nonsense"}, {"processingTime": "1s", "availableNow": True}])  # fmt: skip
def test_a_trigger_that_is_none(given):
    with pytest.raises(OptionError, match=r"trigger=.*give a duration such as '10 seconds', 'availableNow'"):
        trigger_of(given)


@pytest.mark.parametrize(
    ("given", "ms"), [(None, 0), ("interval 1 minute", 60_000), (timedelta(seconds=2), 2_000), ("0.5s", 500)]
)
def test_a_trigger_is_told_to_spark_in_milliseconds(given, ms):
    assert trigger_of(given) == {"processingTime": f"{ms} milliseconds"}


@pytest.mark.parametrize("given", [1, 101, True, "20", None])
def test_so_many_batches_cannot_be_kept(given):
    with pytest.raises(OptionError, match=r"keep=.*from 2 to 100"):
        check_keep(given)


@pytest.mark.parametrize("given", ["available-now", "AvailableNow", {"availableNow": True}])
def test_all_that_is_there(given):
    assert trigger_of(given) == {"availableNow": True}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("hudi:/path", r"for hudi give a function, sink=lambda rows, batch_id: rows\.write\.format\('hudi'\)"),
        ("hudi://path", "for hudi give a function"),
        ("Kafka:topic", "for kafka give a function"),
        ("parquet:/out", "written as Parquet anyway; give '/out'"),
        ("json:out", "for json give a function"),
        ("dleta:/path", "'dleta' is not a file system"),
    ],
)
def test_a_format_is_not_taken_for_a_folder(given, said):
    for make in (sink, lambda text: answer_sink(text, True, None)):
        with pytest.raises(OptionError, match=said):
            make(given)


@pytest.mark.parametrize(
    "given",
    ["out", "/a/b", "./a:b", "s3://b/x", "s3a://b/x", "hdfs:///x", "hdfs:/x", "file:/x", "abfss://c@a.x/y", "new+fs://x", "C:\\x", Path("x")],
)  # fmt: skip
def test_folders(given):
    made = sink(given)
    assert isinstance(made, FileSink)
    assert made.path == (str(given) if ":" in str(given) else os.path.abspath(given))
