"""Spark Connect: `dataframe()`, `start()` and subscriptions run there, and what cannot says so in one line."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.crash.driver import LATENESS
from tests.crash.life import members
from tests.crash.streams import assert_same, expected, expected_late, write_streams
from tests.spark.on_connect import QUERY
from tests.spark.streams import table, write
from watersmeet.runtime.spark.versions import INSTALLED

pytestmark = pytest.mark.spark
RUNS = INSTALLED >= (4, 1)
ROOT = Path(__file__).parents[2]
FILES = 3
needs_connect = pytest.mark.skipif(not RUNS, reason="Connect cannot keep state in Python before 4.1")


@pytest.fixture(autouse=True)
def port() -> Iterator[None]:
    """A machine has one port for local servers of Spark Connect, and one test at a time has it."""
    with (Path(tempfile.gettempdir()) / "watersmeet-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def begin(folder: Path, *programs: str, **environment: str) -> subprocess.Popen[str]:
    """A client, and its server with it, in a session of their own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.on_connect", str(folder), *programs],
        cwd=ROOT,
        env=plain | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *programs: str, **environment: str) -> list[Any]:
    """What programs have seen."""
    process = begin(folder, *programs, **environment)
    out, errors = process.communicate()
    assert process.returncode == 0, errors[-6000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def bag(rows: list[list[Any]]) -> Counter[Any]:
    return Counter(map(tuple, rows))


def by_duckdb(folder: Path, text: str) -> Counter[Any]:
    with duckdb.connect() as con:
        for name in "ab":
            con.execute(f"CREATE VIEW {name} AS SELECT *, epoch_us(ts) AS us FROM '{folder}/data/{name}/*.parquet'")
        return Counter(con.execute(text).fetchall())


@pytest.mark.thorough  # like all here: `make matrix` runs them
def test_dataframe_start_and_errors(tmp_path: Path) -> None:
    batches = {
        name: [table([(k, 10 * b + k + n, 5 * b + k) for k in range(3)]) for b in range(2)]
        for n, name in enumerate("ab")
    }
    batches["a"].append(table([(9, 9, 0)]))
    for name, tables in batches.items():
        write(tmp_path, name, tables)
    write_streams(tmp_path / "data", FILES, seed=1)
    seen, *started = run(tmp_path, "dataframe", *(["start=settled"] if RUNS else []))
    local = wm.local.run(QUERY, {name: pa.concat_tables(tables) for name, tables in batches.items()})
    want = sorted(map(list, zip(*(c.to_pylist() for c in local.columns), strict=True)))
    assert want
    assert bool(seen["refused"]) != RUNS
    assert seen["streaming"] == (want if RUNS else [])
    assert seen["late"] == ([[2, "late"]] if RUNS else [])
    assert seen["static"] == (want if RUNS else seen["refused"])
    for what in ("start", "subscriptions", *([] if RUNS else ["refused"])):
        kind, message = seen[what]
        assert kind == ("OptionError" if RUNS else "StreamError")
        assert "Spark Connect" in message
        assert "classic" in message
        assert "\n" not in message
    if RUNS:
        check_start(tmp_path, started[0], "settled")


def check_start(folder: Path, seen: dict[str, Any], run: str) -> None:
    assert_same(bag(seen["rows"]), expected(folder / "data", run))
    assert seen["batches"] == list(range(FILES))
    assert seen["told"][-1] == FILES - 1
    assert seen["figures"][0] > 0
    assert seen["figures"][2] == ["a", "b", "c"]
    assert seen["state"]


@needs_connect
@pytest.mark.thorough
def test_subscriptions_come_and_go(tmp_path: Path) -> None:
    write_streams(tmp_path / "data", FILES, seed=2)
    (tmp_path / "feed").mkdir()
    fed = {
        "id": "fed",
        "action": "add",
        "sql": "SELECT a.id AS x FROM a, b WHERE a.k = b.k AND a.k < 20 WINDOW = 1 SECOND",
    }
    (tmp_path / "feed" / "0.json").write_text(json.dumps(fed))
    pair = "FROM a, b WHERE a.k = b.k AND abs(a.us - b.us) <= 1000000"
    known = {
        "low": by_duckdb(tmp_path, f"SELECT a.id, b.id {pair} AND a.k < 40"),
        "higher": by_duckdb(tmp_path, f"SELECT a.id, b.id {pair} AND a.k >= 60 AND least(a.id, b.id) >= 50"),
        "high": by_duckdb(tmp_path, f"SELECT a.id, b.id {pair} AND a.k >= 40 AND greatest(a.id, b.id) < 50"),
        "fed": by_duckdb(tmp_path, f"SELECT a.id {pair} AND a.k < 20"),
    }
    (seen,) = run(tmp_path, "subscriptions")
    assert seen["listed"] == {id: ["running", 0] for id in ("fed", "low", "high")}
    assert seen["after"] == {"fed": ["running", 0], "low": ["running", 0], "higher": ["running", 1]}
    for id, rows in seen["answers"].items():
        assert_same(bag(rows), known[id])
    assert seen["high"] == known["high"].total() > 0
    assert seen["queries"] == 3


@needs_connect
@pytest.mark.thorough
def test_sinks_groups_tables_and_errors_from_afar(tmp_path: Path) -> None:
    write_streams(tmp_path / "data", FILES, seed=3)
    pair = "FROM a, b WHERE a.k = b.k AND abs(a.us - b.us) <="
    (seen,) = run(tmp_path, "sinks")
    last: dict[int, Any] = {}
    for k, n, high, _ in sorted(seen["grouped"], key=lambda row: row[3]):
        last[k] = (k, n, high)
    assert_same(
        Counter(last.values()), by_duckdb(tmp_path, f"SELECT a.k, count(*), max(b.id) {pair} 1000000 GROUP BY a.k")
    )
    closed = (
        "HAVING min(a.us) < 1767225600000000 + 3600000000"  # the last row is far ahead, and its own window stays open
    )
    windowed = f"SELECT strftime(time_bucket(INTERVAL 1 SECOND, a.ts::TIMESTAMP), '%H:%M:%S'), count(*), sum(b.id)::BIGINT {pair} 500000 GROUP BY 1 {closed}"
    assert_same(bag(seen["windowed"]), by_duckdb(tmp_path, windowed))
    named = f"SELECT a.id, b.id, CASE WHEN a.k % 2 = 0 AND b.id > 0 THEN 'even ' || a.k END {pair} 300000"
    assert_same(bag(seen["named"]), by_duckdb(tmp_path, named))
    assert seen["raised"]
    kind, message = seen["overflow"]
    assert kind == "DataError"
    assert message


@needs_connect
@pytest.mark.thorough
@pytest.mark.parametrize("run_", ["rounds", "rows", "scaling", "late", "delta"])
def test_every_way_of_routing(tmp_path: Path, run_: str) -> None:
    assert run_ in LATENESS
    write_streams(tmp_path / "data", FILES, seed=4)
    (seen,) = run(tmp_path, f"start={run_}")
    assert_same(bag(seen["rows"]), expected(tmp_path / "data", run_))
    if run_ == "late":
        want = Counter(
            (stream, batch, reason) for stream, batch, reason, _ in expected_late(tmp_path / "data").elements()
        )
        assert_same(bag(seen["late"]), want)


@needs_connect
@pytest.mark.thorough
def test_client_and_server_killed(tmp_path: Path) -> None:
    files = 8
    write_streams(tmp_path / "data", files, seed=5)
    work = tmp_path / "settled"
    for batch in (2, 4):
        process = begin(tmp_path, "start=settled")
        try:
            deadline = time.monotonic() + 300
            while not (work / f"checkpoint/watersmeet/manifests/{batch}.json").exists():
                assert process.poll() is None, process.communicate()[1][-6000:]
                assert time.monotonic() < deadline, "no progress"
                time.sleep(0.002)
        finally:
            kill(process)
    (seen,) = run(tmp_path, "start=settled")
    assert seen["batches"][-1] == files - 1
    assert seen["batches"][0] > 2, "it went on from the checkpoint"
    assert_same(bag(seen["rows"]), expected(tmp_path / "data", "settled"))


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL a client and all that it has started, the server among them."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    while left := members(process.pid):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@needs_connect
@pytest.mark.thorough
def test_a_server_without_watersmeet_is_refused_when_the_query_starts(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    write_streams(tmp_path / "data", FILES, seed=6)
    (seen,) = run(tmp_path, "refused", SERVER_PYTHON=str(bare / "bin/python"))
    kind, message = seen["start"]
    assert kind == "WorkerError"
    assert "no watersmeet" in message
    assert str(bare) in message
    assert "Spark Connect server" in message
    assert f"install watersmeet {wm.__version__}" in message
