"""The metrics of a page, handed to OpenTelemetry under the names that /metrics has them under.

    METRICS  -->  one observable instrument each  -->  whoever reads the meter: OTLP, a console, a platform's own agent

Invariant: an instrument observes what `/metrics` would show at that moment, label by label, and nothing before the first batch but whether the query runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import METRICS, Metric, read_samples

METER = "watersmeet"


def report_to(hub: Hub, meter: Any = None) -> None:
    """Create the instruments of a query in a meter: that of the process if none is given."""
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise OptionError(
            "report() needs OpenTelemetry, and this Python has none: pip install 'watersmeet[otel]'"
        ) from error
    made = metrics.get_meter(METER) if meter is None else meter
    query = {"query": str(hub.about["title"])}

    def observe_up(_: Any) -> Sequence[Any]:
        return [metrics.Observation(int(hub.status == "running"), query)]

    made.create_observable_gauge("watersmeet_up", [observe_up], description="Whether the query runs.")
    for metric in METRICS:
        create = made.create_observable_counter if metric.kind == "counter" else made.create_observable_gauge
        create(metric.name, [_observe(hub, metric, query, metrics.Observation)], description=metric.help)


def _observe(hub: Hub, metric: Metric, query: dict[str, str], make: Any) -> Callable[[Any], Iterator[Any]]:
    """What reads a metric's values now."""

    def observe(_: Any) -> Iterator[Any]:
        event, totals = hub.read()
        if event is not None:
            yield from (make(value, query | labels) for labels, value in read_samples(metric, event, totals))

    return observe
