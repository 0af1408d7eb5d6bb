"""Outer, semi and anti joins on Spark: batch by batch what the oracle says, on both runtimes and on static data, over a restart."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import Arrival, run
from tests.spark.streams import Runtime, feed
from tests.trees import KINDS, SCHEMA, TreeCase, counted, generate

pytestmark = pytest.mark.spark
SEEDS = {"two streams": (73, 2), "three streams": (23, 3), "four streams": (30, 4), "as of": (3, 3)}
"""A condition without a key at several units, joins on both sides of a join, a chain; and as-of joins."""


def count_of(case: TreeCase) -> int:
    return max(len(a.batches) for a in case.arrivals.values())


def write(case: TreeCase, folder: Path, batches: Iterable[int]) -> None:
    """A folder for every stream, a file for every batch."""
    for name, arrival in case.arrivals.items():
        (folder / name).mkdir(exist_ok=True)
        for n in batches:
            rows = arrival.batches[n] if n < len(arrival.batches) else []
            kinds = {f.name: pa.timestamp("us", "UTC") if f.name == "ts" else f.type for f in SCHEMA}
            table = pa.table({name: pa.array([r[name] for r in rows], kind) for name, kind in kinds.items()})
            pq.write_table(table, folder / name / f"{n}.parquet")
            os.utime(folder / name / f"{n}.parquet", (10**9 + n, 10**9 + n))


def play_in_two_lives(spark: Any, tmp_path: Path, case: TreeCase, runtime: Runtime) -> None:
    """Run a case over a restart after its first batch; every batch has the oracle's rows."""
    wanted, count = case.expected(), count_of(case)
    out: dict[int, Counter[Any]] = defaultdict(Counter)

    def sink(frame: Any, number: int) -> None:
        out[number].update(counted(frame.collect()))

    for batches in (range(1), range(1, count)):
        write(case, tmp_path, batches)
        schema = spark.read.parquet(str(tmp_path / next(iter(case.arrivals)))).schema
        streams = {}
        for name, arrival in case.arrivals.items():
            source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
            streams[name] = wm.Stream(source, time="ts", lateness=f"{arrival.lateness_us} microseconds")
        query = wm.sql(case.sql, streams, **case.options)
        feed(query, tmp_path / "ck", sink, runtime)
    assert max(out, default=0) < count
    for number in range(count):
        assert out[number] == counted(wanted.in_batch(number)), (number, case.sql)
    assert sum(out.values(), Counter()), "a query without results tests little"


@pytest.mark.parametrize("title", SEEDS)
def test_static(spark: Any, tmp_path: Path, title: str) -> None:
    seed, most = SEEDS[title]
    kinds = ("asof", "asof left") if title == "as of" else KINDS
    case = generate(random.Random(seed), kinds, most, rows=12)
    write(case, tmp_path, range(count_of(case)))
    whole = {s: Arrival([[r for b in a.batches for r in b]], 10**12) for s, a in case.arrivals.items()}
    streams = {s: wm.Stream(spark.read.parquet(str(tmp_path / s)), time="ts") for s in case.arrivals}
    found = wm.sql(case.sql, streams, **case.options).dataframe().collect()
    assert counted(found) == counted(run(case.query, whole, ends=True).rows), case.sql


RUNS = [
    pytest.param(runtime, title, marks=pytest.mark.thorough)
    if runtime + title in ("streamthree streams", "streamfour streams")
    else (runtime, title)
    for runtime in ("stream", "rounds")
    for title in SEEDS
]
"""`start()` runs chains of three and four streams here, and `dataframe()` one of two, and as-of joins; its longer chains take many stages, each with a start of its own."""


@pytest.mark.parametrize(("runtime", "title"), RUNS)
def test_streaming(spark: Any, tmp_path: Path, title: str, runtime: Runtime) -> None:
    """The query stops after the first batch, and goes on from its checkpoint."""
    seed, most = SEEDS[title]
    kinds = ("asof", "asof left") if title == "as of" else KINDS
    case = generate(random.Random(seed), kinds, most, rows=12)
    play_in_two_lives(spark, tmp_path, case, runtime)
