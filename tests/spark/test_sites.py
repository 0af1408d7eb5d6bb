"""Streams at sites on Spark: the local runtime's results and counts, over restarts, failing sinks and changes of plan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.sites.test_in_rounds import bag
from tests.spark.streams import run, stream, table, write

pytestmark = pytest.mark.spark

SITES = {"s": "paris", "t": "tokyo", "u": "rome"}


def local(text: str, batches: dict[str, list[pa.Table]], **options: Any) -> pa.Table:
    rows = batches["s"][0].num_rows
    tables = {
        n: wm.Stream(pa.concat_tables(b), time="ts", lateness="30 seconds", site=SITES[n]) for n, b in batches.items()
    }
    return wm.local.run(text, tables, batch_rows=rows, **options)


def test_the_same_results_and_shipments_as_in_process_over_restarts(spark: Any, tmp_path: Path) -> None:
    text = """SELECT a.w AS x, b.v AS y, c.w AS z, a.k + c.k AS n FROM s a, t b, u c
        WHERE a.k = b.k AND b.j = c.j AND length(a.w) <= length(c.w) WINDOW (a, b) = 8 SECONDS AND WINDOW (b, c) = 5 SECONDS"""
    plan = {"a": "b SM-S2, c SMB-D1", "b": "a SM-D1, c SM-S1", "c": "b SM-D2, a SP-S"}
    batches = {
        name: [
            table([((n * (at + 3)) % 7, n % 4, f"{name}{n}", f"payload {n}", 4 * b + n % 9) for n in range(b * 12, b * 12 + 12)], "k j v w ts")
            for b in range(4)
        ]
        for at, name in enumerate("stu")
    }  # fmt: skip
    expected = local(text, batches, sites=wm.Sites(plan=plan))
    assert sum(bag(expected).values()) > 50
    shipped: Counter[tuple[str, str]] = Counter()
    for upto in (1, 3, 4):
        made = {
            n: stream(spark, write(tmp_path, n, batches[n][:upto]), lateness="30 seconds", site=SITES[n]) for n in "stu"
        }
        query = wm.sql(text, **made, sites=wm.Sites(plan=plan))
        out, progress = run(query, tmp_path / "ck", tmp_path / "out", "rounds")
        for p in progress:
            shipped.update({pair: size for pair, (_, _, size) in p.shipped.items()})
    assert out == bag(expected)
    sent = {pair: size for pair, (_, _, size) in wm.local.counts(expected).shipped.items()}
    assert shipped.keys() == sent.keys()
    # Arrow's buffers of texts and flags may be laid out differently by Spark; numbers of tuples are the same.
    assert all(shipped[pair] == pytest.approx(size, rel=0.2) for pair, size in sent.items())
    assert progress[-1].state_rows == {"a": 48, "b": 48, "c": 48}
    with pytest.raises(wm.WatersmeetError, match=r"use start\("):
        query.dataframe()


def drifting(name: str) -> list[pa.Table]:
    """Wide tuples that hardly match at first, and all the time from batch 6 on."""
    out = []
    for b in range(14):
        keys = [(1000 * b + 10 * i + (i % 25 > 0) * (1 + "st".index(name))) if b < 6 else i % 4 for i in range(60)]
        out.append(table([(k, f"{name}{b}-{i} " + "x" * 400, b + i / 60) for i, k in enumerate(keys)]))
    return out


def test_the_plan_changes_with_the_streams_and_a_sink_fails_in_the_batches_of_the_change(
    spark: Any, tmp_path: Path
) -> None:
    text = "SELECT a.v AS x, b.v AS y, a.k AS k FROM s a, t b WHERE a.k = b.k WINDOW = 200 MILLISECONDS"
    batches = {n: drifting(n) for n in "st"}
    expected = bag(local(text, batches))
    paths = {n: write(tmp_path, n, batches[n]) for n in "st"}
    rows: list[Any] = []
    changes: list[str] = []
    plans: dict[int, str] = {}
    failed: set[int] = set()

    def sink(found: Any, batch_id: int) -> None:
        """It is down at the first try of every batch that begins a new plan."""
        if batch_id - 1 in announced and batch_id not in failed:
            failed.add(batch_id)
            raise RuntimeError("the sink is down")
        rows.extend(found.collect())

    announced: set[int] = set()
    for _ in range(6):
        made = {n: stream(spark, p, lateness="30 seconds", site=SITES[n]) for n, p in paths.items()}
        query = wm.sql(text, **made, sites=wm.Sites(latency="1 ms", bandwidth=1e5))
        handle = query.start(sink=sink, checkpoint=str(tmp_path / "ck"), trigger="availableNow")
        handle.on_batch(lambda p: announced.add(p.batch_id) if p.scaled else None)
        ended = True
        try:
            handle.await_termination()
        except Exception as error:
            if "the sink is down" not in str(error):
                raise
            ended = False
        changes += [word for p in handle.history() for word in p.scaled]
        plans |= {p.batch_id: p.shipping for p in handle.history()}
        shown = handle.explain("full")
        if ended:
            break
    assert Counter(tuple(r) for r in rows) == expected
    assert sum(expected.values()) > 500
    assert len(changes) == len(failed) >= 2, "every change of plan has met a failing sink"
    assert "SM" in changes[0]
    assert sorted(plans) == list(range(14))
    assert sum(plans[n] != plans[n - 1] for n in range(1, 14)) == len(changes), (
        "a plan holds until it is said to change"
    )
    assert "measured: " in shown
    assert "values of k" in shown


def test_distinct_and_errors(spark: Any, tmp_path: Path) -> None:
    text = "SELECT DISTINCT a.k AS x, b.k AS y FROM s a, t b WHERE a.k <= b.k WINDOW = 2 SECONDS"
    batches = {n: [table([(i % 5, "v", 2 * b + i / 10) for i in range(10)]) for b in range(2)] for n in "st"}
    made = {n: stream(spark, write(tmp_path, n, batches[n]), lateness="30 seconds", site=SITES[n]) for n in "st"}
    out, progress = run(wm.sql(text, **made), tmp_path / "ck", None, "rounds")
    assert out == bag(local(text, batches))
    assert progress[-1].shipped
    with pytest.raises(wm.WatersmeetError, match="scaling="):
        wm.sql(text, **made).start(sink="noop", checkpoint=str(tmp_path / "no"), scaling=wm.Scaling("1 MB"))
    with pytest.raises(wm.WatersmeetError, match="has no site"):
        wm.sql(text, s=made["s"], t=stream(spark, str(tmp_path / "t"))).explain()
