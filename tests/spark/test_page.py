"""The live page of real queries: events and metrics are those of their progress, the frozen stream is named, and `state` has what is kept."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.spark.streams import stream, write
from tests.spark.test_rounds import rising
from tests.view.test_metrics import parse
from tests.view.test_server import listen
from watersmeet.runtime.checkpoints.verify import verify

pytestmark = pytest.mark.spark
TEXT = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, u c WHERE a.k = b.k AND b.k = c.k WINDOW = 10 SECONDS"
BATCHES, SILENT = 5, 2


def test_a_real_query_and_its_page(spark: Any, tmp_path: Path) -> None:
    """Three streams, one file each per batch; the third has no more after batch 2."""
    batches = rising(BATCHES)
    counts = {"s": BATCHES, "t": BATCHES, "u": SILENT + 1}
    folders = {n: write(tmp_path, n, batches[:count]) for n, count in counts.items()}
    query = wm.sql(TEXT, {n: stream(spark, path) for n, path in folders.items()}, units=2)
    handle = query.start(sink="noop", checkpoint=tmp_path / "ck", trigger="availableNow", name="three", keep=3)
    with handle.serve() as page:
        assert page.url in repr(page)
        handle.await_termination(300)
        events: dict[int, Any] = {}
        for kind, event in listen(page):
            if kind == "batch":
                events[event["batch"]] = event
            if kind == "status" and event["status"] != "running":
                break
        metrics = parse(urllib.request.urlopen(page.metrics_url).read().decode())
    history = {p.batch_id: p for p in handle.history()}
    assert events.keys() == history.keys() == set(range(BATCHES))
    for number, progress in history.items():
        assert events[number]["results"] == progress.results
        assert events[number]["state_rows"] == progress.state_rows
        assert events[number]["input_rows"] == progress.input_rows
        assert events[number]["phases"] == progress.phases
    last = history[BATCHES - 1]
    assert metrics["watersmeet_batch_results", ""] == last.results
    assert metrics["watersmeet_results_total", ""] == sum(p.results for p in history.values()) > 0
    assert {k: v for (n, k), v in metrics.items() if n == "watersmeet_state_rows"} == last.state_rows
    assert all([h["stream"] for h in events[n]["holds"]] == ["u"] for n in range(SILENT + 1, BATCHES))
    kept = wm.state(tmp_path / "ck", spark)
    assert kept.count() == wm.state(tmp_path / "ck").num_rows == sum(last.state_rows.values())
    assert sorted(int(p.stem) for p in (tmp_path / "ck" / "watersmeet" / "manifests").glob("*.json")) == [2, 3, 4]
    assert [f for f in verify(tmp_path / "ck") if not f.is_harmless] == []
