"""`watersmeet bench flink` without Flink: a script in its place writes what it would. What it cannot install it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet_lab.bench.flink import install as install_module
from watersmeet_lab.bench.flink import job
from watersmeet_lab.bench.flink.runs import SYSTEMS, FlinkRuns
from watersmeet_lab.commands import bench_app

STUB = """#!{python}
import json, sys, duckdb
spec = json.load(open(sys.argv[2]))
data, rows, limit = spec["data"], spec["rows"], {limit}
import os; os.makedirs(rows + "/part")
us = "epoch_us(x.ts) AS a_ts, epoch_us(y.ts) AS b_ts"
sql = f"SELECT x.key, {{us}} FROM '{{data}}/a/*.parquet' x, '{{data}}/b/*.parquet' y WHERE x.key = y.key AND abs(epoch_us(x.ts) - epoch_us(y.ts)) <= {{spec['window_us']}} LIMIT {{limit}}"
duckdb.execute(f"COPY ({{sql}}) TO '{{rows}}/part/part-0' (FORMAT parquet)")
open(rows + "/part/.part-1.inprogress", "w").write("not complete")
count = duckdb.execute(f"SELECT count(*) FROM read_parquet('{{rows}}/part/part-0')").fetchone()[0]
json.dump({{"progress": [[3.0, 0], [4.0, 9000], [6.0, 18000]], "count": count, "wall_s": 6.0}}, open(sys.argv[3], "w"))
"""


def stub(folder: Path, limit: int) -> Path:
    python = folder / f"python-{limit}"
    python.write_text(STUB.format(python=sys.executable, limit=limit))
    python.chmod(0o700)
    return python


@pytest.mark.parametrize(("limit", "is_right"), [(10**9, True), (100, False)])
def test_answers_of_both_sinks_are_compared(tmp_path: Path, limit: int, is_right: bool) -> None:
    systems: Any = [*SYSTEMS][:1]
    runs = FlinkRuns(["small"], ("noop", "parquet"), systems, 1, 9, tmp_path / "into", tmp_path, python=stub(tmp_path, limit))  # fmt: skip
    found = runs.run(lambda said: None)
    assert [one.is_right for one in found] == [is_right] * 2
    assert {one.median_ms for one in found} == {444.444}, "the last third, read in the second half"


def test_the_text_that_flink_gets() -> None:
    sql = job.join_sql({"aliases": ["a", "b", "c"], "window_us": 10_000_000})
    assert "c.`time` BETWEEN a.`time` - INTERVAL '10.001' SECOND(2, 3) AND" in sql
    assert sql.endswith("ABS(c.ts - a.ts) <= 10000000 AND ABS(c.ts - b.ts) <= 10000000")
    assert "`c_payload` STRING) WITH ('connector' = 'blackhole')" in job.sink_sql(
        {"aliases": ["a", "c"], "sink": "noop"}
    )


def test_what_cannot_be_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*command: str) -> str:
        raise subprocess.CalledProcessError(1, command, stderr="no matching distribution")

    monkeypatch.setattr(install_module, "_run", refuse)
    got = CliRunner().invoke(bench_app, ["flink", "--environment", str(tmp_path / "none")])
    assert got.exit_code == 2
    assert "could not be installed" in " ".join(got.output.split())
    assert "no matching distribution" in " ".join(got.output.split())
    assert CliRunner().invoke(bench_app, ["flink", "--shape", "round"]).exit_code == 2


def test_flink_is_not_imported() -> None:
    text = "import watersmeet_lab.bench.flink, sys, json; print(json.dumps([m for m in sys.modules if 'pyflink' in m]))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
