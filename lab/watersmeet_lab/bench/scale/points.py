"""Runs of one query whose rows, units, payload and window differ: how long a settled micro-batch takes. `python -m watersmeet_lab.bench.scale.points SPEC RESULT`.

Two streams join on a key. Every file of a stream has `rows` tuples over FILE_S seconds of event time, and keys are drawn so that a tuple has about one
partner, however long the window is: so results grow with rows alone, and the window decides about state alone.

Invariant: every point runs in one session, after a warm-up of the same shape, and its count of results is DuckDB's.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.runtime.spark.executors import find_hosts
from watersmeet_lab.bench.data import START, START_US, payloads
from watersmeet_lab.bench.trials.trial import open_session

FILE_S = 10
SCHEMA = "key BIGINT, ts TIMESTAMP, payload STRING"
WARM_BATCHES = 4
"""The first batches of a run are not measured: workers load what they need, and state grows."""


@dataclass(frozen=True)
class Point:
    """What a batch has to do."""

    rows: int
    """Of each stream."""
    units: int
    payload: int
    """Bytes of a tuple's payload."""
    window_s: int
    batches: int = 16


@dataclass(frozen=True)
class Cost:
    """What it took, by the median of settled batches."""

    point: Point
    hosts: int
    seconds: float
    """From the trigger to the commit."""
    driver_s: float
    """CPU of the driver's Python process in a batch."""
    input_rows: int
    state_rows: int
    mail_bytes: int
    results: int


def main(spec: Path, result: Path) -> None:
    """Measure the points that the file `spec` lists, and write what they cost to the file `result`."""
    given = json.loads(spec.read_text())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session("rounds", given["cores"], "4g", given["conf"])
    try:
        costs = measure(spark, [Point(**p) for p in given["points"]], result.parent)
    finally:
        spark.stop()
    result.write_text(json.dumps([asdict(cost) for cost in costs]))


def measure(spark: Any, points: Iterable[Point], scratch: Path) -> list[Cost]:
    """What points cost, one after the other; a small one runs first."""
    run(spark, Point(2_000, 2, 100, FILE_S, 12), scratch)
    return [run(spark, point, scratch) for point in points]


def run(spark: Any, point: Point, scratch: Path) -> Cost:
    """One point; its files are gone afterwards."""
    folder = scratch / f"scale-{time.monotonic_ns()}"
    try:
        for number, alias in enumerate("ab"):
            _write(folder / alias, point, number)
        return _run(spark, point, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(spark: Any, point: Point, folder: Path) -> Cost:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    streams = {alias: wm.Stream(reader.parquet(str(folder / alias)), time="ts") for alias in "ab"}
    text = (
        f"SELECT a.key, a.payload AS p, b.payload AS q FROM a, b WHERE a.key = b.key WINDOW = {point.window_s} SECONDS"
    )
    clock: list[float] = []
    handle = wm.sql(text, **streams, units=point.units, shipping="full").start(
        sink="noop", checkpoint=folder / "checkpoint", trigger="availableNow"
    )
    handle.on_batch(lambda _: clock.append(time.process_time()))
    handle.await_termination()
    batches = handle.history()
    found, want = sum(p.results for p in batches), _answer(folder, point)
    if found != want:
        raise SystemExit(f"{point}: {found:,} results, and DuckDB has {want:,}")
    events = {e.batchId: e.durationMs["triggerExecution"] / 1000 for e in handle.query.recentProgress}
    settled = [p for p in batches if p.batch_id >= WARM_BATCHES and p.input_rows]
    return Cost(
        point,
        max(1, len(find_hosts(spark))),
        statistics.median(events[p.batch_id] for p in settled),
        statistics.median(np.diff(clock[WARM_BATCHES:]).tolist()),
        settled[-1].input_rows,
        int(statistics.median(sum(p.state_rows.values()) for p in settled)),
        int(statistics.median(p.mail_bytes for p in settled)),
        int(statistics.median(p.results for p in settled)),
    )


def _write(folder: Path, point: Point, number: int) -> None:
    folder.mkdir(parents=True)
    rng, span = np.random.default_rng([number, point.rows, point.window_s]), FILE_S * 1_000_000
    keys = max(1, round(2 * point.rows * point.window_s / FILE_S))
    for n in range(point.batches):
        ts = START_US + n * span + np.sort(rng.integers(0, span, point.rows))
        times = pa.array(ts, pa.timestamp("us", tz="UTC"))
        table = pa.table(
            {"key": rng.integers(0, keys, point.rows), "ts": times, "payload": payloads(rng, point.rows, point.payload)}
        )
        path = folder / f"{n:05d}.parquet"
        pq.write_table(table, path, use_dictionary=False)
        os.utime(path, (START.timestamp() + n, START.timestamp() + n))


def _answer(folder: Path, point: Point) -> int:
    """DuckDB's count; see `watersmeet_lab.bench.answer` for its buckets."""
    width = point.window_s * 1_000_000
    with duckdb.connect() as con:
        found = con.execute(
            f"WITH a AS (SELECT key, epoch_us(ts) AS t FROM '{folder}/a/*.parquet'),"
            f" b AS (SELECT key, epoch_us(ts) AS t, unnest([-1, 0, 1]) + t // {width} AS bucket FROM '{folder}/b/*.parquet')"
            f" SELECT count(*) FROM a JOIN b ON a.key = b.key AND a.t // {width} = b.bucket AND abs(a.t - b.t) <= {width}"
        ).fetchall()
    return int(found[0][0])


def read_costs(raw: Iterable[Mapping[str, Any]]) -> list[Cost]:
    """Costs as JSON has them."""
    return [Cost(**{**cost, "point": Point(**cost["point"])}) for cost in raw]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
