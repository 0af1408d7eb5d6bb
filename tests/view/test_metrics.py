"""What Prometheus reads: the figures of the latest batch, and no name that the dashboard does not know of."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest

from tests.view.batches import batches, hub
from watersmeet.view.hub import Hub
from watersmeet.view.metrics import METRICS, render

SAMPLE = re.compile(r'(?P<name>\w+)\{(?P<labels>(?:\w+="(?:[^"\\]|\\.)*",?)*)\} (?P<value>\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and by the value of the label besides the query's; a line of another form is an error."""
    out: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) watersmeet_\w+ .+", line)
            continue
        found = SAMPLE.fullmatch(line)
        assert found is not None, line
        labels = dict(LABEL.findall(found["labels"]))
        labels.pop("query")
        assert len(labels) < 2
        out[found["name"], next(iter(labels.values()), "")] = float(found["value"])
    return out


def test_figures_are_those_of_the_latest_batch() -> None:
    found, last, all_ = parse(render(hub())), batches(40, 30)[-1], batches(40, 30)
    assert found["watersmeet_up", ""] == 1
    assert found["watersmeet_batch", ""] == last.batch_id
    assert found["watersmeet_batch_seconds", ""] == last.seconds
    assert found["watersmeet_batch_input_rows", ""] == last.input_rows
    assert found["watersmeet_batch_results", ""] == last.results
    assert found["watersmeet_state_bytes", ""] == last.state_bytes
    assert found["watersmeet_results_total", ""] == sum(p.results for p in all_)
    assert found["watersmeet_late_rows_total", "clicks"] == sum(p.late.get("clicks", 0) for p in all_)
    for name, figures in (("state_rows", last.state_rows), ("unit_rows", last.unit_rows), ("fanout", last.fanout)):
        assert {k: v for (n, k), v in found.items() if n == f"watersmeet_{name}"} == {
            str(k): v for k, v in figures.items()
        }
    marks = {s: m.timestamp() for s, m in last.watermarks.items()}  # type: ignore[union-attr]
    assert {k: v for (n, k), v in found.items() if n == "watersmeet_watermark_seconds"} == marks
    assert found["watersmeet_holds_back_seconds", "payments"] == max(marks.values()) - marks["payments"]
    assert ("watersmeet_holds_back_seconds", "orders") not in found


def test_before_the_first_batch_there_is_only_whether_it_runs() -> None:
    made = Hub({"title": 'a "b"\n'})
    assert parse(render(made)) == {("watersmeet_up", ""): 1}
    made.end("failed")
    assert parse(render(made)) == {("watersmeet_up", ""): 0}


def test_a_counter_only_grows_and_every_name_is_described_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in METRICS)
    before, after = (parse(render(hub(count))) for count in (39, 40))
    counters = {metric.name for metric in METRICS if metric.kind == "counter"}
    assert all(after[key] >= value for key, value in before.items() if key[0] in counters)


def expressions(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_names_and_labels_that_there_are() -> None:
    board = json.loads(files("watersmeet.view").joinpath("grafana.json").read_text())
    labels = {metric.name: metric.label for metric in METRICS} | {"watersmeet_up": ""}
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            (name,) = set(re.findall(r"watersmeet_\w+", target["expr"]))
            asked.add(name)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= {labels[name], "query"}
    assert asked <= labels.keys()
    assert len(expressions(board)) >= 14
    rates = {m for e in expressions(board) for m in re.findall(r"rate\((\w+)", e)}
    assert rates == {m for m in asked if m.endswith("_total")}, "counters are shown as rates, and nothing else is"


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_every_metric_has_a_sample(metric: Any) -> None:
    assert metric.name in {name for name, _ in parse(render(hub()))}
