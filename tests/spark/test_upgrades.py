"""`start(upgrade=True)` on Spark: wider windows, other units, and a stream more, which stands first in FROM; then taken back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.spark.streams import stream, table, write
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoints.upgrade import undo

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
THREE = "SELECT a.v AS x, b.v AS y, c.v AS z FROM u c, s a, t b WHERE a.k = b.k AND b.k = c.k WINDOW = 10 SECONDS"


def rising(first: int, count: int, add: int = 0) -> list[pa.Table]:
    return [
        table([(k, 1000 * add + 100 * b + k, 3 * b + k / 10) for k in range(4)]) for b in range(first, first + count)
    ]


def rows_from(rows: list[Any], b: int) -> Counter[Any]:
    """Results whose members are all of file b or later."""
    return Counter(tuple(r) for r in rows if all(v % 1000 >= 100 * b for v in r))


def test_a_stream_more_meets_what_is_stored_and_can_be_taken_back(spark: Any, tmp_path: Path) -> None:
    got: dict[int, list[Any]] = {}

    def keep(rows: Any, batch: int) -> None:
        got[batch] = [tuple(r) for r in rows.collect()]

    def start(text: str, names: str, **more: Any) -> Any:
        streams = {n: stream(spark, str(tmp_path / n), lateness="2 seconds") for n in names}
        how = {"sink": keep, "checkpoint": tmp_path / "ck", "trigger": "availableNow"}
        handle = wm.sql(text, streams, units=more.pop("units", 2)).start(**how, **more)
        handle.await_termination()
        return handle

    for n, name in enumerate("stu"):
        write(tmp_path, name, rising(0, 5, n))
    start(PAIR, "st")
    before = max(got)
    for n, name in enumerate("stu"):
        write(tmp_path, name, rising(5, 3, n), first=5)
    with pytest.raises(CheckpointError, match="belongs to another query"):
        start(THREE, "stu", units=3)
    with pytest.warns(UserWarning, match="was changed after batch"):
        handle = start(THREE, "stu", units=3, upgrade=True)
    assert "streams and aliases" in str(handle.upgraded)
    assert "was changed after batch" in handle.explain()
    whole = {n: pa.concat_tables([*rising(0, 8, i)]) for i, n in enumerate("stu")}
    expected = wm.local.run(THREE, {n: wm.Stream(t, time="ts") for n, t in whole.items()})
    rows = [tuple(r.values()) for r in expected.to_pylist()]
    found = [row for batch, some in got.items() if batch > before for row in some]
    assert rows_from(found, 2) == rows_from(rows, 2)
    assert sum(rows_from(rows, 2).values()) > 100
    assert not Counter(found) - Counter(rows), "nothing that is no result"

    got_before = {batch: rows for batch, rows in got.items() if batch <= before}
    assert start(THREE, "stu", units=3).upgraded is None
    with pytest.raises(CheckpointError, match="no upgrade that can be undone"):
        undo(tmp_path / "ck", sink=None)
    assert got_before == {batch: rows for batch, rows in got.items() if batch <= before}


def test_an_upgrade_is_taken_back_with_spark_s_logs(spark: Any, tmp_path: Path) -> None:
    got: dict[int, list[Any]] = {}

    def keep(rows: Any, batch: int) -> None:
        got[batch] = [tuple(r) for r in rows.collect()]

    def start(text: str, names: str, **more: Any) -> Any:
        streams = {n: stream(spark, str(tmp_path / n), lateness="2 seconds") for n in names}
        how = {"sink": keep, "checkpoint": tmp_path / "ck", "trigger": "availableNow"}
        handle = wm.sql(text, streams, units=2).start(**how, **more)
        handle.await_termination()
        return handle

    for n, name in enumerate("stu"):
        write(tmp_path, name, rising(0, 3, n))
    start(PAIR, "st")
    last = max(got)
    with pytest.warns(UserWarning, match="was changed after batch"):
        start(THREE, "stu", upgrade=True, keep=20)
    assert max(got) > last
    assert undo(tmp_path / "ck", sink=None) == last
    got = {batch: rows for batch, rows in got.items() if batch <= last}
    for n, name in enumerate("st"):
        write(tmp_path, name, rising(3, 3, n), first=3)
    start(PAIR, "st")
    whole = {n: pa.concat_tables([*rising(0, 6, i)]) for i, n in enumerate("st")}
    expected = wm.local.run(PAIR, {n: wm.Stream(t, time="ts") for n, t in whole.items()})
    assert Counter(row for some in got.values() for row in some) == Counter(
        tuple(r.values()) for r in expected.to_pylist()
    )
