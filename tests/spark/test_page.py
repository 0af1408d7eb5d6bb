"""The live page of real queries: events and metrics are those of their progress, the frozen stream is named, and `state` has what is kept."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
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


def find_metrics(spark: Any) -> Any:
    """Spark's metrics system. Whoever asks for all methods of SparkEnv needs classes that are not there."""
    invoke, java, spark_ = (spark.sparkContext._jvm.java.lang.invoke, spark.sparkContext._jvm.java, "org.apache.spark")
    lookup, types = invoke.MethodHandles.publicLookup(), invoke.MethodType
    env, system = (java.lang.Class.forName(f"{spark_}.{name}") for name in ("SparkEnv", "metrics.MetricsSystem"))
    arguments = java.util.ArrayList()
    arguments.add(lookup.findStatic(env, "get", types.methodType(env)).invokeWithArguments(java.util.ArrayList()))
    return lookup.findVirtual(env, "metricsSystem", types.methodType(system)).invokeWithArguments(arguments)


def read_gauges(spark: Any, query: str) -> dict[str, float]:
    """The figures of a query among Spark's own metrics, as a sink of Spark's reads them."""
    sources = find_metrics(spark).getSourcesByName("AccumulatorSource")
    gauges = [sources.apply(n).metricRegistry().getGauges() for n in range(sources.size())]
    return {name: some[name].getValue() for some in gauges for name in some if name.startswith(f"{query}.")}


def await_gauges(spark: Any, query: str, is_so: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The same once they are so; the page's thread sets them a moment after its listeners hear."""
    deadline, found = time.monotonic() + 120, dict[str, float]()
    while time.monotonic() < deadline:
        found = read_gauges(spark, query)
        if found and is_so(found):
            return found
        time.sleep(0.2)
    raise AssertionError(f"not shown: {found}")


def name_gauge(query: str, metric: str, label: str) -> str:
    return ".".join([query, metric, *([re.sub(r"\W", "_", label)] if label else [])])


def test_a_real_query_and_its_page(spark: Any, tmp_path: Path) -> None:
    """Three streams, one file each per batch; the third has no more after batch 2."""
    batches = rising(BATCHES)
    counts = {"s": BATCHES, "t": BATCHES, "u": SILENT + 1}
    folders = {n: write(tmp_path, n, batches[:count]) for n, count in counts.items()}
    query = wm.sql(TEXT, {n: stream(spark, path) for n, path in folders.items()}, units=2)
    handle = query.start(sink="noop", checkpoint=tmp_path / "ck", trigger="availableNow", name="three", keep=3)
    with handle.serve(spark_metrics=True) as page:
        assert page.url in repr(page)
        handle.await_termination(300)
        events: dict[int, Any] = {}
        for kind, event in listen(page):
            if kind == "batch":
                events[event["batch"]] = event
            if kind == "status" and event["status"] != "running":
                break
        metrics = parse(urllib.request.urlopen(page.metrics_url).read().decode())
        gauges = await_gauges(spark, "three", lambda found: found["three.watersmeet_up"] == 0)
    shown = {name_gauge("three", *sample): value for sample, value in metrics.items()}
    assert gauges == dict.fromkeys(gauges, 0.0) | shown, "what the last batch has no figure for is 0"
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


def test_gauges_of_spark_go_on_with_the_next_run_and_end_with_the_page(spark: Any, tmp_path: Path) -> None:
    """A name is registered once for an application; who starts again under it has the same gauges."""
    batches = rising(2)
    folders = {n: write(tmp_path, n, batches) for n in "st"}
    pair = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
    for life in range(2):
        streams = {n: stream(spark, path) for n, path in folders.items()}
        handle = wm.sql(pair, streams, units=2).start(sink="noop", checkpoint=tmp_path / f"{life}", name="my pair")
        with handle.serve(spark_metrics=True):
            shown = await_gauges(spark, "my_pair", lambda found: found.get("my_pair.watersmeet_batch") == 1)
            assert shown["my_pair.watersmeet_up"] == 1
            assert shown["my_pair.watersmeet_batch_results"] == handle.history()[1].results > 0
        assert set(await_gauges(spark, "my_pair", lambda found: not any(found.values())).values()) == {0.0}
        handle.stop()
    frame = wm.sql(pair, {n: stream(spark, path) for n, path in folders.items()}, units=2).dataframe()
    running = frame.writeStream.format("noop").queryName("frame").option("checkpointLocation", f"{tmp_path}/f").start()
    with wm.observe(running, spark_metrics=True):
        await_gauges(spark, "frame", lambda found: found.get("frame.watersmeet_batch") == 1)
    running.stop()
