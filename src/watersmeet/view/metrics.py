"""The figures of the latest batch, and counters since the page was opened, as Prometheus reads them.

    # HELP watersmeet_state_rows Rows that are kept after the batch, by alias.
    # TYPE watersmeet_state_rows gauge
    watersmeet_state_rows{query="orders",alias="o"} 1500

Invariant: all figures are those of one event, the latest, unchanged, and counters are sums up to it; METRICS has all names that there are, and `grafana.json` uses no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from watersmeet.view.hub import Hub, Totals

Event = Mapping[str, Any]
Sample = tuple[dict[str, str], Any]
"""A label with its value, if there is one, and the figure."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_US = 1_000_000


class Metric(NamedTuple):
    """One name: a single value, or one for every value of a label."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[Event, Totals], Any]
    label: str = ""


def _seconds(spans: Mapping[str, int | None]) -> dict[str, float]:
    return {name: us / _US for name, us in spans.items() if us is not None}


def _by_id(event: Event, figure: str) -> dict[str, Any]:
    return {query["id"]: query[figure] for query in event["dearest"]}


METRICS = (
    Metric("watersmeet_batches_total", "counter", "Micro-batches.", lambda e, t: t.batches),
    Metric("watersmeet_busy_seconds_total", "counter", "Seconds that micro-batches took.", lambda e, t: t.seconds),
    Metric("watersmeet_input_rows_total", "counter", "Rows that came in.", lambda e, t: t.input_rows),
    Metric("watersmeet_results_total", "counter", "Results.", lambda e, t: t.results),
    Metric("watersmeet_late_rows_total", "counter", "Dropped rows, by stream.", lambda e, t: t.late, "stream"),
    Metric(
        "watersmeet_set_aside_rows_total",
        "counter",
        "Rows, by stream, and combinations, by streams, that break an expression.",
        lambda e, t: t.set_aside,
        "stream",
    ),
    Metric("watersmeet_batch", "gauge", "The number of the latest micro-batch.", lambda e, t: e["batch"]),
    Metric("watersmeet_batch_seconds", "gauge", "Seconds that it took.", lambda e, t: e["seconds"]),
    Metric("watersmeet_batch_phase_seconds", "gauge", "The same by phase.", lambda e, t: e["phases"], "phase"),
    Metric("watersmeet_batch_input_rows", "gauge", "Its rows.", lambda e, t: e["input_rows"]),
    Metric("watersmeet_batch_results", "gauge", "Its results.", lambda e, t: e["results"]),
    Metric(
        "watersmeet_batch_late_rows",
        "gauge",
        "Its dropped rows, by stream.",
        lambda e, t: {stream: e["late"].get(stream, 0) for stream in e["watermarks"]},
        "stream",
    ),
    Metric(
        "watersmeet_batch_set_aside_rows",
        "gauge",
        "Those of the batch that break an expression.",
        lambda e, t: dict.fromkeys(e["watermarks"], 0) | e["set_aside"],
        "stream",
    ),
    Metric("watersmeet_rounds", "gauge", "Its rounds.", lambda e, t: e["rounds"]),
    Metric("watersmeet_mail_bytes", "gauge", "Bytes that were sent to units.", lambda e, t: e["mail_bytes"]),
    Metric("watersmeet_fetched_bytes", "gauge", "State that hosts had to fetch.", lambda e, t: e["fetched_bytes"]),
    Metric("watersmeet_pruned_rows", "gauge", "Rows dropped before a probe.", lambda e, t: e["pruned"]),
    Metric("watersmeet_kernel_rows", "gauge", "Rows given to each kernel.", lambda e, t: e["kernels"], "kernel"),
    Metric("watersmeet_fanout", "gauge", "Partners found by a row, by pair.", lambda e, t: e["fanout"], "pair"),
    Metric(
        "watersmeet_watermark_seconds",
        "gauge",
        "The watermark of a stream, in seconds since 1970.",
        lambda e, t: _seconds(e["watermarks"]),
        "stream",
    ),
    Metric(
        "watersmeet_watermark_lag_seconds",
        "gauge",
        "How far the watermark of a stream is behind the furthest.",
        lambda e, t: _seconds(e["lag_us"]),
        "stream",
    ),
    Metric(
        "watersmeet_holds_back_seconds",
        "gauge",
        "Event time that is kept only because of this stream; no sample if it holds nothing back.",
        lambda e, t: {hold["stream"]: hold["held_us"] / _US for hold in e["holds"] if hold["held_us"] is not None},
        "stream",
    ),
    Metric("watersmeet_state_rows", "gauge", "Rows that are kept, by alias.", lambda e, t: e["state_rows"], "alias"),
    Metric("watersmeet_state_bytes", "gauge", "Bytes that are kept.", lambda e, t: e["state_bytes"]),
    Metric("watersmeet_unit_rows", "gauge", "Rows that each unit received.", lambda e, t: e["unit_rows"], "unit"),
    Metric(
        "watersmeet_skew",
        "gauge",
        "Rows of the busiest unit by those of the average of its join.",
        lambda e, t: e["skew"],
    ),
    Metric("watersmeet_registered_queries", "gauge", "Registered queries answered.", lambda e, t: e["queries"]),
    Metric(
        "watersmeet_registered_cost_share",
        "gauge",
        "CPU time of answering in the batch, by registered query: its part of the whole; the ten dearest.",
        lambda e, t: _by_id(e, "cost_share"),
        "id",
    ),
    Metric(
        "watersmeet_registered_answers",
        "gauge",
        "Answers of the ten dearest in the batch.",
        lambda e, t: _by_id(e, "batch_answers"),
        "id",
    ),
    Metric(
        "watersmeet_registered_lag_seconds",
        "gauge",
        "How far the slowest stream of each of the ten dearest is behind the furthest.",
        lambda e, t: _seconds(_by_id(e, "lag_us")),
        "id",
    ),
    Metric(
        "watersmeet_registered_last_answer_seconds",
        "gauge",
        "Event time of the youngest answer of each of the ten dearest, in seconds since 1970.",
        lambda e, t: _seconds(_by_id(e, "last_answer")),
        "id",
    ),
    Metric(
        "watersmeet_registered_state_rows",
        "gauge",
        "Stored rows that the windows of each of the ten dearest reach.",
        lambda e, t: _by_id(e, "state_rows"),
        "id",
    ),
)


def render(hub: Hub) -> str:
    """The text of /metrics; before the first batch it says only whether the query runs."""
    query = str(hub.about["title"])
    lines = [
        "# HELP watersmeet_up Whether the query runs.",
        "# TYPE watersmeet_up gauge",
        f"watersmeet_up{_labels(query=query)} {int(hub.status == 'running')}",
    ]
    for metric, samples in read_all(hub):
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in samples:
            lines.append(f"{metric.name}{_labels(query=query, **labels)} {value}")
    return "\n".join(lines) + "\n"


def read_all(hub: Hub) -> Iterator[tuple[Metric, list[Sample]]]:
    """Every metric with its samples after the latest batch; nothing before the first."""
    event, totals = hub.read()
    if event is not None:
        yield from ((metric, list(read_samples(metric, event, totals))) for metric in METRICS)


def read_samples(metric: Metric, event: Event, totals: Totals) -> Iterator[Sample]:
    """The values of a metric, each with what its label says.

    >>> [*read_samples(Metric("x", "gauge", "", lambda e, t: e["rows"], "unit"), {"rows": {3: 7}}, Totals())]
    [({'unit': '3'}, 7)]
    """
    value = metric.read(event, totals)
    if not metric.label:
        yield {}, value
        return
    yield from (({metric.label: str(name)}, one) for name, one in value.items())


def _labels(**labels: str) -> str:
    """Labels in braces.

    >>> _labels(query="orders", unit="3")
    '{query="orders",unit="3"}'
    """
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
