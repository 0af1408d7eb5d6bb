"""The service on Spark: queries come by HTTP while micro-batches run, answers leave as events, and a job that has failed says so."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.spark.streams import write
from tests.spark.test_subscriptions import PAIR, batches, subscriptions, twin
from watersmeet.errors import OptionError, WatersmeetError

pytestmark = pytest.mark.spark


def ask(page: Any, method: str, path: str, body: Any = None) -> Any:
    url = f"http://127.0.0.1:{page.port}{path}"
    sent = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
    sent.add_header("Authorization", f"Bearer {page.token}")
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return json.loads(answer.read())


def hear(page: Any, since: int, id: str, count: int) -> list[dict[str, Any]]:
    """A query's answers in the batches after one, until there are so many."""
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}/answers?since={since}&token={page.token}")
    found: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            name, _, rest = line.decode().rstrip("\n").partition(": ")
            if name == "data" and "batch" in (told := json.loads(rest)):
                found, held = found + held, []
                if len(found) >= count:
                    return found
            elif name == "data" and told["query"] == id:
                held.append(told)
    raise AssertionError("the stream of answers has ended")


def test_a_registry_is_run_over_http(spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(2))
    subs = subscriptions(spark, tmp_path, sink=str(tmp_path / "out"), trigger="200 milliseconds")
    with pytest.raises(OptionError, match="have not been started"):
        subs.serve(api=True)
    subs.add(PAIR, id="first")
    committed: dict[int, threading.Event] = {n: threading.Event() for n in range(8)}
    subs.on_batch(lambda progress: committed[progress.batch_id].set())
    subs.start()
    try:
        with subs.serve(api=True) as page:
            assert committed[1].wait(120)
            assert ask(page, "POST", "/queries", {"sql": PAIR, "id": "007", "backfill": True}) == {"id": "007"}
            asked = ask(page, "POST", "/ask", {"sql": PAIR})
            for n in "rs":
                write(tmp_path, n, batches(3, 2), first=2)
            whole = [json.loads(text) for (_, text), n in twin({"q": PAIR}, batches(3)).items() for _ in range(n)]
            late = [one["answer"] for one in hear(page, 0, "007", len(whole))]
            assert sorted(map(str, late)) == sorted(map(str, whole)), "what was stored first, then what came, each once"
            assert asked["count"] < len(whole)
            assert {q["id"]: q["state"] for q in ask(page, "GET", "/queries")} == {"first": "running", "007": "running"}
            assert ask(page, "DELETE", "/queries/first") == {"id": "first"}
    finally:
        subs.stop()
    read = spark.read.parquet(str(tmp_path / "out"))
    assert subs.answers(read, "007").columns == ["ts", "x", "y"]
    assert subs.answers(read, "first").count() > 0, "it was removed, and its answers can be read"


def test_a_job_that_has_failed_says_so_when_a_query_is_added(spark: Any, tmp_path: Path) -> None:
    for n in "rs":
        write(tmp_path, n, batches(1))

    def break_down(rows: Any, batch_id: int) -> None:
        raise RuntimeError("no room left")

    subs = subscriptions(spark, tmp_path, sink=break_down)
    subs.add(PAIR)
    with pytest.raises(Exception, match="no room left"):
        subs.start().await_termination()
    with pytest.raises(WatersmeetError, match=r"have ended \(RuntimeError: no room left\).*start\(\) them again"):
        subs.add(PAIR)
    assert isinstance(subs, wm.Subscriptions)
    assert len(subs.list()) == 1
