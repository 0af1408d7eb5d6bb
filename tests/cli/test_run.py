"""`watersmeet run` from folders to a folder: interrupted, continued, and refused with another placement."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm

from .command import COMMAND, watersmeet

QUERY = "SELECT c.k, c.v, o.v AS w FROM clicks c, orders o WHERE c.k = o.k AND c.v < o.v DWINDOW (c, o) = 2 SECONDS"
OPTIONS = (
    *("--stream", "clicks=clicks", "--stream", "orders=orders:parquet", "--time", "orders=at"),
    *("--lateness", "clicks=1 minute", "--lateness", "orders=1 minute", "--sink", "parquet:out"),
)


def write(folder: Path, number: int) -> None:
    """One more file of each stream."""
    random = np.random.default_rng(number)
    for name, time in (("clicks", "ts"), ("orders", "at")):
        ts = 1_767_225_600_000_000 + number * 5_000_000 + random.integers(0, 5_000_000, 200)
        table = pa.table(
            {
                "k": random.integers(0, 20, 200),
                "v": random.random(200),
                time: pa.array(ts, pa.timestamp("us", tz="UTC")),
            }
        )
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(table, folder / name / f".{number}")
        (folder / name / f".{number}").rename(folder / name / f"{number}.parquet")


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(folder: Path) -> Counter[tuple[object, ...]]:
    tables = {
        name: wm.Stream(pq.read_table(folder / name), time=time, lateness="1 minute")
        for name, time in (("clicks", "ts"), ("orders", "at"))
    }
    return bag(wm.local.run(QUERY, tables))


def results(folder: Path) -> Counter[tuple[object, ...]]:
    return bag(pa.concat_tables(pq.read_table(f, partitioning=None) for f in (folder / "out").glob("*.parquet")))


@pytest.mark.spark
def test_stop_go_on_and_refuse(tmp_path):
    for number in range(3):
        write(tmp_path, number)
    running = subprocess.Popen(
        [*COMMAND, "run", QUERY, *OPTIONS, "--trigger", "200 ms"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("batch 0: 1,200 rows")
    running.send_signal(signal.SIGINT)
    said, noise = running.communicate(timeout=120)
    assert (running.returncode, noise) == (0, "")
    assert f"stopped; the same command goes on from {Path('out/_checkpoint')}" in said
    assert results(tmp_path) == expected(tmp_path)

    write(tmp_path, 3)
    again = watersmeet("run", QUERY, *OPTIONS, "--trigger", "available-now", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert "results in out from 400 rows in 1 micro-batch" in again.stdout
    assert results(tmp_path) == expected(tmp_path)

    write(tmp_path, 4)
    other = watersmeet("run", QUERY, *OPTIONS, "--trigger", "available-now", "--units", 3, cwd=tmp_path)
    assert other.returncode == 2
    assert other.stderr.startswith("the checkpoint belongs to another query or placement")
    assert "Traceback" not in other.stderr


@pytest.mark.spark
def test_a_backfill_of_csv_to_the_console_and_a_query_that_cannot_be_bound(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.csv").write_text("k,at\n1,2026-01-01 00:00:00\n2,2026-01-01 00:00:01\n")
    (tmp_path / "q.sql").write_text("SELECT x.k, y.at FROM a x, a y WHERE x.k = y.k WINDOW = 1 SECOND")
    done = watersmeet("run", "@q.sql", "--static", "--stream", "a=a:csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2026-01-01 00:00:01" in done.stdout
    assert done.stdout.rstrip().endswith("2 results")

    plan = watersmeet("explain", "@q.sql", "--stream", "a=a:csv", "--schema", "a=k int, at timestamp", cwd=tmp_path)
    assert (plan.returncode, plan.stderr) == (0, "")
    assert "x, y: |y - x| <= 1 s (written)" in plan.stdout
    assert "exactly once" in plan.stdout

    wrong = watersmeet(
        "explain", "SELECT x.z FROM a x, a y WHERE x.k = y.k", "--static", "--stream", "a=a:csv", cwd=tmp_path
    )
    assert wrong.returncode == 2
    assert wrong.stderr == "alias 'x' (stream 'a') has no column 'z'; its columns are k, at\n"
