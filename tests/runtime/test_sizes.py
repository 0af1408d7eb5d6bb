"""More than 2 GiB, in earnest: what `tests/columns/test_arrow.py` does with small blocks. Each test takes up to 5 GB of memory."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import watersmeet as wm

pytestmark = pytest.mark.slow

TS = pa.timestamp("us", tz="UTC")


def rows(texts: pa.ChunkedArray, keys: np.ndarray) -> pa.Table:
    return pa.table({"k": keys, "s": texts, "ts": pa.array(np.arange(len(keys)), TS)})


def hot(n: int, width: int) -> pa.Table:
    """Rows of one key, with texts of their own."""
    return rows(pa.array([f"{i:06}" * (width // 6) for i in range(n)]), np.ones(n, np.int64))


def test_results_of_one_key_pass_2_gib():
    n, width = 240, 40_020
    found = wm.local.run("SELECT a.s, b.ts FROM x a, x b WHERE a.k = b.k WITHIN 1 SECOND", {"x": hot(n, width)})
    assert found.num_rows == n * n
    assert found.column("s").type == pa.string()
    assert found.column("s").nbytes > 2**31
    assert {
        length for chunk in found.column("s").chunks for length in pc.unique(pc.binary_length(chunk)).to_pylist()
    } == {width}


def test_answers_of_registered_queries_pass_2_gib():
    n, width = 240, 40_020
    table = hot(n, width)
    subs = wm.local.subscriptions({"x": table.slice(0, 0)})
    subs.add("SELECT a.s FROM x a, x b WHERE a.k = b.k WINDOW = 1 SECOND", id="q")
    found = subs.push({"x": table})
    assert found.num_rows == n * n
    assert found.column("answer").nbytes > 2**31
    assert len(json.loads(found.column("answer")[n].as_py())["s"]) == width


def test_one_column_of_a_unit_passes_2_gib():
    """2.3 GB of texts arrive at one unit in one batch, are stored, and are met one by one in the next."""
    one = pa.array(["t" * 1_000_000] * 100)
    wide = rows(pa.chunked_array([one] * 23), np.arange(2300))
    narrow = pa.table({"k": np.arange(2300), "ts": pa.array(np.arange(2300) + 2300, TS)})
    found = wm.local.run(
        "SELECT a.k, length(a.s) AS n, b.ts FROM x a, y b WHERE a.k = b.k AND length(a.s) > b.k WITHIN 1 SECOND",
        {"x": wide, "y": narrow},
    )
    assert found.num_rows == 2300
    assert set(found.column("n").to_pylist()) == {1_000_000}
