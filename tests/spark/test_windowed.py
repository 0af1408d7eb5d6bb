"""Groups that end, on Spark: static, streaming with a restart and in rounds, batch by batch as the oracle says; values and time zones as Spark's own SQL has them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.oracle import Arrival, run
from tests.spark.test_trees import count_of, write
from tests.trees import KINDS, TreeCase, counted, generate

pytestmark = pytest.mark.spark
SPARKS = "CAST(lower(CAST(c.k AS string)) AS bigint)"
"""A key that only Spark evaluates."""


def make(title: str) -> TreeCase:
    """Three streams at three units, an inner join, or a full one under a right one."""
    case = generate(random.Random(9), ("inner",) if title == "inner" else KINDS, 3, rows=12, grouped=True)
    if title == "projected by Spark":
        case.sql = case.sql.replace("c.k AS", f"{SPARKS} AS").replace(", c.k, b.k", f", {SPARKS}, b.k")
        assert case.sql.count(SPARKS) == 2
    return case


RUNS = [(runtime, title) for runtime in ("stream", "rounds") for title in ("inner", "tree")]


@pytest.mark.parametrize(("runtime", "title"), [*RUNS, ("stream", "projected by Spark")])
def test_streaming(spark: Any, tmp_path: Path, runtime: str, title: str) -> None:
    """The query stops after the first batch, and goes on from its checkpoint; no group leaves twice."""
    case = make(title)
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
        if runtime == "stream":
            writer = query.dataframe().writeStream.foreachBatch(sink).trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
        else:
            query.start(sink=sink, checkpoint=tmp_path / "ck", trigger="availableNow").await_termination()
    for number in range(count):
        assert out[number] == counted(wanted.in_batch(number)), (number, case.sql)
    assert sum(out.values(), Counter()), "a query without results tests little"


@pytest.mark.parametrize("title", ["tree", "projected by Spark"])
def test_static(spark: Any, tmp_path: Path, title: str) -> None:
    case = make(title)
    write(case, tmp_path, range(count_of(case)))
    whole = {s: Arrival([[r for b in a.batches for r in b]], 10**12) for s, a in case.arrivals.items()}
    streams = {s: wm.Stream(spark.read.parquet(str(tmp_path / s)), time="ts") for s in case.arrivals}
    found = wm.sql(case.sql, streams, **case.options).dataframe().collect()
    assert counted(found) == counted(run(case.query, whole, ends=True).rows), case.sql
