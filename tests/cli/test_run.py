"""`watersmeet run` from folders to a folder: interrupted, continued, and refused with another placement."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli import app

from .command import COMMAND, ENVIRONMENT

QUERY = "SELECT c.k, c.v, o.v AS w FROM clicks c, orders o WHERE c.k = o.k AND c.v < o.v DWINDOW (c, o) = 2 SECONDS"
OPTIONS = (
    *("--stream", "clicks=clicks", "--stream", "orders=orders:parquet", "--time", "orders=at"),
    *("--lateness", "clicks=1 minute", "--lateness", "orders=1 minute", "--sink", "parquet:out"),
)


def write(folder: Path, number: int) -> None:
    """One more file of each stream."""
    random = np.random.default_rng(abs(number))
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


def command(*arguments: object) -> Any:
    """In this process, on the session that the tests share."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "300"})


@pytest.mark.spark
@pytest.mark.thorough
def test_stop_go_on_and_refuse(spark, tmp_path, monkeypatch):
    for number in range(3):
        write(tmp_path, number)
    running = subprocess.Popen(
        [*COMMAND, "run", QUERY, *OPTIONS, "--trigger", "200 ms"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("batch 0: 1,200 rows")
    running.send_signal(signal.SIGINT)
    said, noise = running.communicate(timeout=900)
    assert (running.returncode, noise) == (0, "")
    assert f"stopped; the same command goes on from {Path('out/_checkpoint')}" in said
    assert results(tmp_path) == expected(tmp_path)

    monkeypatch.chdir(tmp_path)
    write(tmp_path, 3)
    again = command("run", QUERY, *OPTIONS, "--trigger", "available-now")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "results in out from 400 rows in 1 micro-batch" in again.stdout
    assert results(tmp_path) == expected(tmp_path)

    write(tmp_path, 4)
    other = command("run", QUERY, *OPTIONS, "--trigger", "available-now", "--units", 3)
    assert other.exit_code == 2, other.stdout
    assert other.stderr.startswith("the checkpoint belongs to another query or placement")
    assert "Traceback" not in other.stderr


@pytest.fixture
def csv(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.csv").write_text("k,at\n1,2026-01-01 00:00:00\n2,2026-01-01 00:00:01\n")
    (tmp_path / "q.sql").write_text("SELECT x.k, y.at FROM a x, a y WHERE x.k = y.k WINDOW = 1 SECOND")
    monkeypatch.chdir(tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("how", [("--static",), ("--trigger", "once", "--schema", "a=k int, at timestamp", "--serve")])
def test_csv_to_the_console(spark, csv, how):
    done = command("run", "@q.sql", "--stream", "a=a:csv", *how)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2026-01-01 00:00:01" in done.stdout
    assert "2 results" in done.stdout
    assert ("live page: http://127.0.0.1:" in done.stdout) == ("--serve" in how)


@pytest.mark.spark
def test_groups_are_shown_as_they_change_and_not_written_to_files(spark, csv):
    query = (
        "SELECT x.k, count(*) AS n, max(y.at) AS latest FROM a x, a y WHERE x.k = y.k WINDOW = 1 SECOND GROUP BY x.k"
    )
    how = ("--stream", "a=a:csv", "--trigger", "once", "--schema", "a=k int, at timestamp")
    done = command("run", query, *how)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2026-01-01 00:00:01" in done.stdout
    refused = command("run", query, *how, "--sink", "parquet:out")
    assert refused.exit_code == 2
    assert "--runtime rounds" in refused.stderr


@pytest.mark.spark
def test_a_backfill_to_json_needs_a_new_folder(spark, csv, tmp_path):
    done = command("run", "@q.sql", "--stream", "a=a:csv", "--static", "--sink", "json:out")
    assert done.stdout == "2 results in out\n"
    rows = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(rows) == [f'{{"k":{k},"at":"2026-01-01T00:00:0{k - 1}.000Z"}}' for k in (1, 2)]
    again = command("run", "@q.sql", "--stream", "a=a:csv", "--static", "--sink", "json:out")
    assert again.exit_code == 2
    assert "the folder exists" in again.stderr


@pytest.mark.spark
def test_explain(spark, csv):
    plan = command("explain", "@q.sql", "--stream", "a=a:csv", "--schema", "a=k int, at timestamp")
    assert (plan.exit_code, plan.stderr) == (0, "")
    assert plan.stdout.splitlines()[0] == "windows    |y - x| <= 1 s"
    assert len(plan.stdout.splitlines()) == 4
    plan = command("explain", "@q.sql", "--stream", "a=a:csv", "--schema", "a=k int, at timestamp", "--full")
    assert "x, y: |y - x| <= 1 s (written)" in plan.stdout
    assert "exactly once" in plan.stdout
    spread = command(
        "explain", "@q.sql", "--stream", "a=a:csv", "--schema", "a=k int, at timestamp", "--routing", "contrand(2, 1)"
    )
    assert "biclique, contrand" in spread.stdout


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("SELECT x.z FROM a x, a y WHERE x.k = y.k", (), "alias 'x' (stream 'a') has no column 'z'"),
        ("SELECT x.k FROM a x, b WHERE x.k = b.k", (), "'b' is not supplied"),
        ("@q.sql", ("--time", "a=k"), "not a timestamp"),
        ("@q.sql", ("--schema", "a=k int"), "--time a=COLUMN"),
        ("@q.sql", ("--schema", "a=k whatever"), "stream a: Spark cannot read a as csv"),
        ("@q.sql", ("--units", "0"), "units=0"),
        ("@q.sql", ("--routing", "magic"), "routing='magic'"),
    ],
)
def test_what_cannot_be_bound_is_one_message(spark, csv, query, options, said):
    wrong = command("explain", query, "--static", "--stream", "a=a:csv", *options)
    assert wrong.exit_code == 2
    assert said in wrong.stderr
    assert wrong.stderr.count("\n") == 1


@pytest.mark.spark
def test_rounds_go_on_where_they_stopped(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = (
        *OPTIONS,
        "--runtime",
        "rounds",
        "--trigger",
        "available-now",
        "--files-per-trigger",
        1,
        "--late",
        "json:lost",
        "--keep",
        3,
    )
    for number in (0, 2):
        write(tmp_path, number)
        write(tmp_path, number + 1)
        said = command("run", QUERY, *options, "--shipping", "full")
        assert said.exit_code == 0, said.output
        assert "results in out from 800 rows in 2 micro-batches" in " ".join(said.output.split())
    assert results(tmp_path) == (want := expected(tmp_path))
    again = command("run", QUERY, *options)
    assert again.exit_code == 0, "nothing is new, so nothing runs"
    write(tmp_path, -30)
    late = command("run", QUERY, *options, "--serve")
    assert "live page: http://127.0.0.1:" in late.output
    assert "from 400 rows in 1 micro-batch" in late.output
    assert "; 400 late rows in lost" in late.output
    lost = [json.loads(line) for file in (tmp_path / "lost").glob("*.json") for line in file.read_text().splitlines()]
    assert Counter(row["stream"] for row in lost) == {"clicks": 200, "orders": 200}
    assert results(tmp_path) == want
    explained = command(
        "explain", QUERY, *OPTIONS[:-2], "--runtime", "rounds", "--checkpoint", "out/_checkpoint"
    ).output
    assert "runs on    rounds: " in explained
    assert "after batch 4: this query goes on from it" in explained
    watched = command("watch", "out/_checkpoint", "--seconds", 0).output
    assert [line.partition(":")[0] for line in watched.splitlines() if line.startswith("batch")] == [
        f"batch {n}" for n in range(5)
    ]
