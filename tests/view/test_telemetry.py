"""OpenTelemetry reads the figures that Prometheus reads, under the same names."""

from __future__ import annotations

import sys

import pytest

from tests.view.batches import hub
from tests.view.test_metrics import parse
from watersmeet.errors import OptionError
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import METRICS, render
from watersmeet.view.telemetry import report_to

sdk = pytest.importorskip("opentelemetry.sdk.metrics")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")


def read(made: Hub) -> tuple[dict[tuple[str, str], float], dict[str, str]]:
    """By name and label what an SDK collects, and the kinds of the instruments."""
    reader = export.InMemoryMetricReader()
    report_to(made, sdk.MeterProvider([reader]).get_meter("test"))
    found, kinds = {}, {}
    for resource in reader.get_metrics_data().resource_metrics:
        for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
            kinds[metric.name] = type(metric.data).__name__
            for point in metric.data.data_points:
                labels = dict(point.attributes)
                assert labels.pop("query") == made.about["title"]
                found[metric.name, next(iter(labels.values()), "")] = float(point.value)
    return found, kinds


def test_figures_and_names_are_those_of_metrics() -> None:
    found, kinds = read(hub())
    assert found == parse(render(hub()))
    assert len(found) > len(METRICS)
    for metric in METRICS:
        assert kinds.get(metric.name, "") in ("", "Sum" if metric.kind == "counter" else "Gauge")


def test_before_the_first_batch_there_is_only_whether_it_runs() -> None:
    made = Hub({"title": "q"})
    assert read(made)[0] == {("watersmeet_up", ""): 1}
    made.end("failed")
    assert read(made)[0] == {("watersmeet_up", ""): 0}


def test_without_opentelemetry_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(OptionError, match=r"pip install 'watersmeet\[otel\]'"):
        report_to(hub())
