"""Where placement is fixed, progress and explain say how uneven units are, and what to set."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.runtime.progress import read


def event(rows: dict[int, dict[str, int]], frequent: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    common: dict[str, Any] = {"late": {}, "results": 0, "watermarks": {}, "retained": {}, "bytes": 0}
    reports = [common | {"unit": u, "rows_in": r, "frequent": (frequent or {}).get(u, {})} for u, r in rows.items()]
    metrics = {"watersmeet-x": {"units": [json.dumps(r) for r in reports]}}
    return {"batchId": 1, "numInputRows": 1, "durationMs": {}, "observedMetrics": metrics}


HOT = event(
    {0: {"a": 5000, "b": 5000}, **{u: {"a": 700, "b": 700} for u in range(1, 8)}},
    {0: {"a": {"0": [[17, 4400]]}, "b": {"0": [[17, 4300]]}}},
)


def test_a_hot_key_is_told_with_its_share_and_the_option():
    progress = read(HOT)
    assert round(progress.skew, 2) == round(10_000 * 8 / (10_000 + 7 * 1400), 2)
    assert progress.advice[0] == "the busiest of 8 units got 4.0 times the mean: one key has 44% of the rows of a"
    assert "start()" in progress.advice[1]
    assert "routing='contrand'" in progress.advice[1]
    assert "skew       the busiest of 8 units" in repr(progress)


def test_of_three_streams_only_start_helps():
    rows = {u: {"a": 10_000 if u == 0 else 10, "b": 10, "c": 10} for u in range(4)}
    assert "contrand" not in read(event(rows)).advice[1]


def test_stages_are_looked_at_apart():
    """The second join of a pipeline has few rows: that is no skew."""
    rows = {0: {"a": 5000}, 1: {"a": 5000}, 100_000: {"a+b": 10}, 100_001: {"a+b": 12}}
    assert read(event(rows)).advice == ()
    assert round(read(event(rows)).skew, 2) == 1.09


def test_even_units_and_few_rows_are_left_alone():
    assert read(event({u: {"a": 1000 + u} for u in range(8)})).advice == ()
    assert read(event({0: {"a": 400}, 1: {"a": 1}})).advice == ()


def test_explain_warns():
    table = wm.Stream(pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    query = wm.sql("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND", a=table, b=table)
    told = query.explain(progress=HOT)
    assert "warning    the busiest of 8 units got 4.0 times the mean" in told
    assert told.to_dict()["skew"] == read(HOT).skew
    assert any("contrand" in text for text in told.to_dict()["warnings"])
    assert "busiest" not in query.explain(progress=event({0: {"a": 5}}))
