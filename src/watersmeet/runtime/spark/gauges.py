"""The figures of a page among Spark's own metrics: gauges in the driver's JVM, for every sink that Spark's metrics system has.

    METRICS  --after every batch-->  accumulators  <--  DoubleAccumulatorSource  <--  PrometheusServlet, JMX, Graphite, CSV, a console

A source of Spark's metrics system is a class of the JVM. Accumulators are the one source that Spark itself has for programs; in the driver they are gauges.

Invariant: a gauge has what `/metrics` shows after the same batch, and 0 where that shows nothing. An accumulator can only be added to, so what is added is the difference to what it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext

from watersmeet.errors import OptionError
from watersmeet.runtime.spark.versions import is_connect
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import read_all

_CLASS = "DoubleAccumulatorSource$"
_STEPS = 3
"""A difference of numbers of different size is rounded; what is left after it is not, or not much."""
_REGISTERED: dict[str, dict[str, Gauge]] = {}
"""By application the gauges that there are: a name can be registered once, and a query that runs again has it again."""


@dataclass
class Gauge:
    """A number in the JVM, and what it is."""

    accumulator: Any
    shown: float = 0.0

    def show(self, value: float) -> None:
        for _ in range(_STEPS):
            difference = value - self.shown
            if not difference:
                return
            self.accumulator.add(difference)
            self.shown += difference


@dataclass
class SparkGauges:
    """The gauges of one query."""

    context: SparkContext
    _mine: set[str] = field(default_factory=set)

    def show(self, hub: Hub) -> None:
        """Show the latest batch, and whether the query runs."""
        values = dict(read_gauges(hub))
        known = _REGISTERED.setdefault(str(self.context.applicationId), {})
        self._register(known, sorted(values.keys() - known.keys()))
        self._mine |= values.keys()
        for name in sorted(self._mine):
            known[name].show(values.get(name, 0.0))

    def end(self) -> None:
        """Nothing is shown any more: all gauges have 0."""
        known = _REGISTERED.get(str(self.context.applicationId), {})
        for name in sorted(self._mine):
            known[name].show(0.0)

    def _register(self, known: dict[str, Gauge], names: list[str]) -> None:
        if not names:
            return
        jvm: Any = self.context._jvm
        spark: Any = self.context._jsc.sc()
        found = jvm.java.util.HashMap()
        for name in names:
            known[name] = Gauge(spark.doubleAccumulator(name))
            found[name] = known[name].accumulator
        source = getattr(getattr(jvm.org.apache.spark.metrics.source, _CLASS), "MODULE$")
        source.register(spark, jvm.PythonUtils.toScalaMap(found))


def gauges_of(thing: Any) -> SparkGauges:
    """The gauges of a query that runs in the JVM of a session, or of a `StreamingQuery`."""
    if is_connect(thing):
        raise OptionError(
            "spark_metrics=True: Spark's metrics are kept in the driver's JVM, to which Spark Connect has no way; give page.metrics_url to Prometheus, or use page.report()"
        )
    return SparkGauges(SparkContext.getOrCreate())


def read_gauges(hub: Hub) -> Iterator[tuple[str, float]]:
    """What `/metrics` shows now, by a name that has the labels in it.

    >>> dict(read_gauges(Hub({"title": "my orders"})))
    {'my_orders.watersmeet_up': 1.0}
    """
    query = _escape(str(hub.about["title"]))
    yield f"{query}.watersmeet_up", float(hub.status == "running")
    for metric, samples in read_all(hub):
        for labels, value in samples:
            yield ".".join([query, metric.name, *map(_escape, labels.values())]), float(value)


def _escape(text: str) -> str:
    """A part of a name: sinks take dots, and some of them blanks, for more than they are.

    >>> _escape("o>c"), _escape("orders, clicks")
    ('o_c', 'orders__clicks')
    """
    return re.sub(r"\W", "_", text)
