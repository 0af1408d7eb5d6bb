"""The program that the tests of a cluster run: families of plans, one after the other in one session.

`python -m tests.cluster.families RUNTIME DATA WORK FILES_PER_TRIGGER FAMILY...` runs until all files are read by every family. Results of a family lie in
WORK/FAMILY/out, its checkpoint beside them or, if there is a variable CHECKPOINTS, in FAMILY below that; with a variable TABLES results are in Delta tables below that. What `start()` says of its batches is in WORK/FAMILY/progress.json. RUNTIME is "dataframe" or "start".

It is a user's script: it knows the public surface. `EXPECTED` is for the tests: the same in DuckDB's SQL.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import watersmeet as wm
from tests.crash.driver import BAND_QUERY, OUTER_QUERY, QUERY, ROWS_QUERY, SCHEMA, session
from tests.crash.streams import EXPECTED as EXPECTED_MULTIWAY
from tests.crash.streams import EXPECTED_BAND, EXPECTED_OUTER, EXPECTED_ROWS

NEAR = "abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 1000000"
HASH = "SELECT a.id AS a_id, b.id AS b_id FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND"
EXPECTED_HASH = f"SELECT a.id, b.id FROM a, b WHERE a.k = b.k AND {NEAR}"
COLUMNS = ("*", "concat('the payload of tuple ', id, repeat('.', 60)) AS text")


@dataclass(frozen=True)
class Family:
    """A query, and what it must give."""

    text: str
    expected: str
    options: Mapping[str, Any] = field(default_factory=dict)
    streams: str = "ab"


FAMILIES = {
    "hash": Family(HASH, EXPECTED_HASH, {"units": 4}),
    "multiway": Family(QUERY, EXPECTED_MULTIWAY, streams="abc"),
    "rows": Family(ROWS_QUERY, EXPECTED_ROWS, streams="abc"),
    "band": Family(BAND_QUERY, EXPECTED_BAND, {"units": 5}),
    "outer": Family(OUTER_QUERY, EXPECTED_OUTER, streams="abc"),
    "as_of": Family(
        "SELECT a.id AS a_id, b.id AS b_id FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
        "SELECT a.id, b.id FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
    ),
    "windowed": Family(
        "SELECT count(*) AS n, sum(b.id) AS s, a.k AS k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND GROUP BY window(a.ts, '2 seconds'), a.k",
        f"SELECT count(*), sum(b.id)::BIGINT, a.k FROM a, b WHERE a.k = b.k AND {NEAR} GROUP BY epoch_us(a.ts) // 2000000, a.k",
    ),
    "distinct": Family(
        "SELECT DISTINCT a.k AS k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND",
        f"SELECT k FROM (SELECT DISTINCT a.k, epoch_us(greatest(a.ts, b.ts)) // 1000000 FROM a, b WHERE a.k = b.k AND {NEAR})",
    ),
    "late_payload": Family(
        "SELECT a.id AS a_id, b.text AS b_text FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND",
        f"SELECT a.id, 'the payload of tuple ' || b.id || repeat('.', 60) FROM a, b WHERE a.k = b.k AND {NEAR}",
        {"shipping": "semijoin"},
    ),
    "subscriptions": Family(HASH, EXPECTED_HASH),
}
ON_START_ONLY = ("late_payload", "subscriptions")
ON_DATAFRAMES = tuple(name for name in FAMILIES if name not in ON_START_ONLY)


class Run:
    """One family on one runtime."""

    def __init__(self, spark: Any, name: str, data: str, work: Path, files: str) -> None:
        self.spark, self.family, self.name, self.folder = spark, FAMILIES[name], name, work / name
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)
        self.streams = {
            alias: wm.Stream(reader.parquet(f"{data}/{alias}").selectExpr(*COLUMNS), time="ts", lateness="1 second")
            for alias in self.family.streams
        }
        elsewhere = os.environ.get("CHECKPOINTS")
        self.out = str(self.folder / "out")
        tables = os.environ.get("TABLES")
        self.sink = f"delta:{tables}/{name}" if tables else self.out
        self.checkpoint = f"{elsewhere}/{name}" if elsewhere else str(self.folder / "checkpoint")

    def dataframe(self) -> None:
        rows = wm.sql(self.family.text, **self.streams, **self.family.options).dataframe()
        sink = rows.writeStream.format("parquet").option("path", self.out)
        sink.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start().awaitTermination()

    def start(self) -> None:
        if self.name == "subscriptions":
            self.subscribe()
            return
        query = wm.sql(self.family.text, **self.streams, **self.family.options)
        handle = query.start(sink=self.sink, checkpoint=self.checkpoint, trigger="availableNow")
        handle.await_termination()
        said = [{"batch": p.batch_id, "fetched": p.fetched_bytes, "seconds": p.seconds} for p in handle.history()]
        self.folder.mkdir(parents=True, exist_ok=True)  # results and checkpoint may both be elsewhere
        (self.folder / "progress.json").write_text(json.dumps(said))

    def subscribe(self) -> None:
        subs = wm.subscriptions(
            self.streams, checkpoint=self.checkpoint, sink=f"{self.out}-all", trigger="availableNow"
        )
        subs.add(self.family.text, id="one")
        subs.start().await_termination()
        subs.answers(self.spark.read.parquet(f"{self.out}-all"), "one").drop("ts").write.parquet(self.out)


def main(runtime: str, data: str, work: str, files: str, *names: str) -> None:
    spark = session()
    for name in names:
        run = Run(spark, name, data, Path(work), files)
        (run.dataframe if runtime == "dataframe" else run.start)()
        print(f"ended: {name}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
