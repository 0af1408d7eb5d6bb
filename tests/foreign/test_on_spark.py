"""A sample of the foreign suites on both Spark runtimes: batch by batch the same answers as in process, over a restart."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.foreign.streams import lefts, rights
from tests.spark.streams import Runtime, feed
from watersmeet.testing import QueryTest, table


@dataclass(frozen=True)
class Script:
    """A case: its query, the columns of all its streams, and what comes and leaves in every batch."""

    text: str
    columns: str
    lateness: str
    batches: list[dict[str, list[tuple[Any, ...]]]]
    answers: list[list[tuple[Any, ...]]]

    @property
    def streams(self) -> list[str]:
        return sorted({name for batch in self.batches for name in batch})

    def write(self, folder: Path, numbers: range) -> None:
        """A folder for every stream, a file for every batch."""
        for name in self.streams:
            (folder / name).mkdir(exist_ok=True)
            for n in numbers:
                file = folder / name / f"{n}.parquet"
                pq.write_table(table(self.columns, self.batches[n].get(name, [])), file)
                os.utime(file, (10**9 + n, 10**9 + n))


SCRIPTS = {
    "windowed full outer join": Script(
        "SELECT coalesce(l.k, r.k) AS k, l.v AS lv, r.v AS rv FROM lefts l FULL JOIN rights r ON l.k = r.k AND l.ts = r.ts",
        "k int, v int, ts timestamp",
        "10 seconds",
        [
            {"lefts": lefts(1, 2, 3, 4, 5), "rights": rights(3, 4, 5, 6, 7)},
            {"lefts": lefts(21), "rights": rights(22)},
            {"lefts": lefts(22)},
            {"lefts": lefts(1)},
            {"rights": rights(5)},
        ],
        [[(3, 6, 9), (4, 8, 12), (5, 10, 15)], [(1, 2, None), (2, 4, None), (6, None, 18), (7, None, 21)], [(22, 44, 66)], [], []],
    ),
    "SPARK-49829 two chained stream-stream left outer joins": Script(
        "SELECT unix_timestamp(a.ts) AS at, a.v, b.v AS w, c.v AS x FROM a LEFT JOIN b ON a.ts = b.ts LEFT JOIN c ON a.ts = c.ts",
        "v int, ts timestamp",
        "0 seconds",
        [
            {"a": [(1, 20)], "b": [(1, 20)], "c": [(1, 20)]},
            {"a": [(2, 21)], "b": [(2, 21)]},
            {"a": [(3, 22)], "c": [(3, 22)]},
            {"a": [(4, 23)]},
            {"a": [(5, 24)], "b": [(5, 24)], "c": [(5, 24)]},
            {"a": [(6, 100)]},
        ],
        [[(20, 1, 1, 1)], [], [(21, 2, 2, None)], [], [(24, 5, 5, 5), (22, 3, None, 3), (23, 4, None, None)], []],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCRIPTS)
def test_in_process(case: str) -> None:
    script = SCRIPTS[case]
    streams = {name: wm.Stream(table(script.columns), time="ts", lateness=script.lateness) for name in script.streams}
    test = QueryTest(wm.sql(script.text, streams))
    for batch, answers in zip(script.batches, script.answers, strict=True):
        test.batch(batch).check(*answers)


FULL, CHAINED = SCRIPTS


@pytest.mark.spark
@pytest.mark.parametrize(
    ("case", "runtime"),
    [
        (FULL, "stream"),
        (FULL, "rounds"),
        (CHAINED, "rounds"),
        pytest.param(CHAINED, "stream", marks=pytest.mark.thorough),
    ],
)
def test_on_spark(spark: Any, tmp_path: Path, case: str, runtime: Runtime) -> None:
    script, out = SCRIPTS[case], defaultdict[int, Counter[Any]](Counter)

    def sink(frame: Any, number: int) -> None:
        out[number].update(tuple(row) for row in frame.collect())

    for numbers in (range(1), range(1, len(script.batches))):
        script.write(tmp_path, numbers)
        schema = spark.read.parquet(str(tmp_path / script.streams[0])).schema
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams = {
            name: wm.Stream(source.parquet(str(tmp_path / name)), time="ts", lateness=script.lateness)
            for name in script.streams
        }
        query = wm.sql(script.text, streams, units=2)
        feed(query, tmp_path / "ck", sink, runtime)
    for number, answers in enumerate(script.answers):
        assert out[number] == Counter(answers), number
    assert max(out, default=0) < len(script.batches)
