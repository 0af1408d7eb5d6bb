"""Dropped rows on Spark: rows that are late, too far ahead or without a time, from both runtimes, over restarts and over static data."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.spark.streams import RUNTIMES, Runtime, run, stream, table, write

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"
AHEAD = time.time() + 86_400 * 365 - 1_767_225_600
"""A year ahead, as `table` counts seconds."""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_row_a_year_ahead_moves_no_watermark(spark: Any, tmp_path: Path, runtime: Runtime) -> None:
    s = write(tmp_path, "s", [table([(1, 1, 1), (1, 2, AHEAD)]), table([(1, 3, 2), (1, 4, None)])])
    t = write(tmp_path, "t", [table([(1, 10, 1)]), table([(1, 20, 2)])])
    query = wm.sql(PAIR, s=stream(spark, s, max_ahead="1 hour"), t=stream(spark, t))
    out, progress = run(query, tmp_path / "ck", runtime=runtime)
    assert out == Counter((x, y) for x in (1, 3) for y in (10, 20))
    assert [p.late.get("s", 0) for p in progress] == [1, 1]
    assert progress[0].watermarks["s"] == progress[0].watermarks["t"]
