"""One running query for each site, and a folder that they exchange letters through: results of all sites together are the query's, over restarts and delays."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.sites.test_in_process import bag
from tests.spark.streams import stream, table, write
from watersmeet.runtime.rounds.handle import Handle

pytestmark = pytest.mark.spark

TEXT = "SELECT o.id AS x, c.id AS y, c.note AS note FROM orders o, calls c WHERE o.k = c.k WINDOW = 3 SECONDS"
SITES = {"orders": "paris", "calls": "tokyo"}
SCHEMA = "k bigint, id bigint, note string, ts timestamp"
PATIENCE_S = 120.0
END = 10_000
"""A time far behind all others: what is before it is released."""


def batches(name: str) -> list[pa.Table]:
    at = 3 if name == "orders" else 5
    rows = [((n * at) % 11, n, f"{name} {n}", n * 0.4) for n in range(120)]
    made = [table(rows[begin : begin + 30], "k id note ts") for begin in range(0, 120, 30)]
    return [*made, table([(-1 if name == "orders" else -2, -1, "end", END)], "k id note ts")]


def expected() -> Counter[Any]:
    streams = {n: wm.Stream(pa.concat_tables(batches(n)), time="ts", lateness="1 second") for n in SITES}
    return bag(wm.local.run(TEXT, streams))


class Site:
    """One site's application."""

    def __init__(self, spark: Any, folder: Path, at: str, **options: Any) -> None:
        self.spark, self.folder, self.at = spark, folder, at
        self.out = folder / f"out-{at}"
        streams: dict[str, Any] = {}
        for name, site in options.pop("places", SITES).items():
            if site == at:
                streams[name] = stream(spark, str(folder / name), lateness="1 second", site=site)
            else:
                streams[name] = wm.RemoteStream(SCHEMA, time="ts", site=site)
        text, units = options.pop("text", TEXT), options.pop("units", "auto")
        self.query = wm.sql(text, streams, sites=wm.Sites(**options), units=units)

    def start(self, **more: Any) -> Handle:
        return self.query.start(
            at=self.at, exchange=self.folder / "exchange", sink=self.out, checkpoint=self.folder / f"ck-{self.at}",
            trigger="0 seconds", name=f"{self.at}{time.monotonic_ns()}", **more,
        )  # fmt: skip

    def found(self) -> Counter[Any]:
        if not (self.out / "_spark_metadata").exists():
            return Counter()
        return Counter(tuple(r) for r in self.spark.read.parquet(str(self.out)).collect())


def await_results(sites: list[Site], handles: list[Handle], want: Counter[Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    found: Counter[Any] = Counter()
    while found != want:
        for handle in handles:
            assert handle.exception is None, handle.exception
        assert time.monotonic() < deadline, f"{found.total()} of {want.total()} results"
        time.sleep(0.5)
        found = sum((site.found() for site in sites), Counter())
        assert not found - want, "results that are none, or are doubled"


@pytest.mark.parametrize(
    "plan",
    [
        "auto",
        pytest.param({"o": "c SM-S2", "c": "o SM-D2"}, marks=pytest.mark.thorough),
        pytest.param({"o": "c SM-D1", "c": "o SM-S1"}, marks=pytest.mark.thorough),
    ],
)
def test_two_sites_and_a_restart(spark: Any, tmp_path: Path, plan: Any) -> None:
    for name in SITES:
        write(tmp_path, name, batches(name)[:2])
    paris, tokyo = (Site(spark, tmp_path, at, plan=plan) for at in ("paris", "tokyo"))
    first = paris.start()
    second = tokyo.start()
    deadline = time.monotonic() + PATIENCE_S
    while not (paris.found() or tokyo.found()):
        assert first.exception is None, first.exception
        assert second.exception is None, second.exception
        assert time.monotonic() < deadline
        time.sleep(0.2)
    second.stop()
    for name in SITES:
        write(tmp_path, name, batches(name)[2:], 2)
    time.sleep(2)
    second = tokyo.start()
    try:
        await_results([paris, tokyo], [first, second], expected())
        assert any(p.shipped for p in first.history())
    finally:
        first.stop()
        second.stop()


THREE = {"orders": "paris", "calls": "tokyo", "visits": "rome"}
THREE_TEXT = "SELECT o.id AS x, c.id AS y, v.id AS z FROM orders o, calls c, visits v WHERE o.k = c.k AND c.k = v.k WINDOW = 2 SECONDS"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "plan",
    [
        "o, c SM-S1/SM-D1, v SM-D2/SP-S",
        {"o": "c SM-D1, v SM-S2", "c": "v SP-D, o SM-S1", "v": "o SMB-D2, c SP-S"},
    ],
    ids=("tree", "linear"),
)
def test_three_sites_of_several_units_whose_results_come_together(spark: Any, tmp_path: Path, plan: Any) -> None:
    """By a tree and by sequences, distinct at one site, over a restart."""
    text = THREE_TEXT.replace("SELECT", "SELECT DISTINCT")
    for name in THREE:
        write(tmp_path, name, batches(name)[:2])
    sites = [
        Site(spark, tmp_path, at, places=THREE, text=text, plan=plan, units=3, results_at="rome")
        for at in THREE.values()
    ]
    handles = [site.start() for site in sites]
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not sites[2].found():
            assert [h.exception for h in handles] == [None] * 3
            assert time.monotonic() < deadline
            time.sleep(0.3)
        handles[0].stop()
        for name in THREE:
            write(tmp_path, name, batches(name)[2:], 2)
        handles[0] = sites[0].start()
        streams = {n: wm.Stream(pa.concat_tables(batches(n)), time="ts", lateness="1 second") for n in THREE}
        await_results(sites, handles, bag(wm.local.run(text, streams)))
        assert not sites[0].found()
    finally:
        for handle in handles:
            handle.stop()


LEFT = """SELECT o.id AS x, c.id AS y, c.note AS note FROM orders o LEFT JOIN calls c ON o.k = c.k AND c.id % 3 = 0
          WHERE o.id >= 0 WINDOW (o, c) = 1 SECOND"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("orders o", "orders o [ROWS 4]").replace("calls c", "calls c [ROWS 6]"),
        TEXT.replace("orders o", "orders o [TUMBLING 4 ROWS]").replace("calls c", "calls c [TUMBLING 6 ROWS]"),
        LEFT,
    ],
    ids=("rows", "blocks", "left"),
)
def test_windows_of_rows_and_outer_joins(spark: Any, tmp_path: Path, text: str) -> None:
    for name in SITES:
        write(tmp_path, name, batches(name))
    plan = {"o": "c SM-S1", "c": "o SP-S"}
    sites = [Site(spark, tmp_path, at, plan=plan, text=text, units=2) for at in SITES.values()]
    handles = [site.start(late=tmp_path / f"late-{site.at}") for site in sites]
    try:
        streams = {n: wm.Stream(pa.concat_tables(batches(n)), time="ts", lateness="1 second") for n in SITES}
        await_results(sites, handles, bag(wm.local.run(text, streams)))
        write(tmp_path, "orders", [table([(0, 999, "late", 0.0)], "k id note ts")], 9)
        deadline = time.monotonic() + PATIENCE_S
        while not (dropped := handles[0].late().collect()):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert [row.reason for row in dropped] == ["late"]
    finally:
        for handle in handles:
            handle.stop()
