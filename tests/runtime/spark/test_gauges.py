"""Figures among Spark's own metrics, without a JVM: differences that are added make the figure, exactly. On Spark they are in tests/spark/test_page.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.view.batches import hub
from tests.view.test_metrics import parse
from watersmeet.errors import OptionError
from watersmeet.runtime.spark.gauges import Gauge, gauges_of, read_gauges
from watersmeet.view.metrics import render


class Accumulator:
    """Adds doubles, as the JVM does."""

    def __init__(self) -> None:
        self.sum, self.calls = 0.0, 0

    def add(self, value: float) -> None:
        self.sum, self.calls = self.sum + value, self.calls + 1


@given(st.lists(st.integers(-(2**52), 2**52).map(float) | st.floats(-1e12, 1e12), max_size=8))
def test_a_gauge_has_the_figure_that_was_shown_last(values: list[float]) -> None:
    gauge = Gauge(Accumulator())
    for value in values:
        gauge.show(value)
        assert gauge.accumulator.sum == gauge.shown == value


def test_what_stays_is_not_sent() -> None:
    gauge = Gauge(Accumulator())
    for value in (0.0, 7.0, 7.0):
        gauge.show(value)
    assert gauge.accumulator.calls == 1


def test_names_have_the_labels_and_no_two_are_alike() -> None:
    samples, gauges = parse(render(hub())), dict(read_gauges(hub()))
    assert len(gauges) == len(samples)
    assert sorted(gauges.values()) == sorted(samples.values())
    assert gauges["orders.watersmeet_fanout.o_c"] == samples["watersmeet_fanout", "o>c"]


def test_spark_connect_is_refused() -> None:
    remote: Any = type("StreamingQuery", (), {"__module__": "pyspark.sql.connect.streaming.query"})()
    remote.recentProgress, remote.name = [], "q"
    with pytest.raises(OptionError, match=r"spark_metrics=True: .*Spark Connect has no way"):
        gauges_of(remote)
    with pytest.raises(OptionError, match="spark_metrics=True"):
        wm.observe(remote, spark_metrics=True)
