"""Spark Connect: `dataframe()` runs there, and what cannot says so in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.spark.on_connect import QUERY
from tests.spark.streams import table, write
from watersmeet.runtime.spark.versions import INSTALLED

pytestmark = pytest.mark.spark


def test_a_session_of_spark_connect(tmp_path: Path) -> None:
    batches = {
        name: [table([(k, 10 * b + k + n, 5 * b + k) for k in range(3)]) for b in range(2)]
        for n, name in enumerate("ab")
    }
    batches["a"].append(table([(9, 9, 0)]))
    for name, tables in batches.items():
        write(tmp_path, name, tables)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    command = [sys.executable, "-m", "tests.spark.on_connect", str(tmp_path)]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], env=plain, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    seen = json.loads(ran.stdout.splitlines()[-1])
    local = wm.local.run(QUERY, {name: pa.concat_tables(tables) for name, tables in batches.items()})
    want = sorted(map(list, zip(*(c.to_pylist() for c in local.columns), strict=True)))
    assert want
    runs = INSTALLED >= (4, 1)
    assert bool(seen["refused"]) != runs
    assert seen["streaming"] == (want if runs else [])
    assert seen["late"] == ([[2, "late"]] if runs else [])
    assert seen["static"] == (want if runs else seen["refused"])
    for what in ("start", "subscriptions", *([] if runs else ["refused"])):
        kind, message = seen[what]
        assert kind == "StreamError"
        assert "Spark Connect" in message
        assert "dataframe()" in message
        assert "\n" not in message
