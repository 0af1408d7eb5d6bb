"""Wrong names, columns and folders are told before Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.cli import spark as cli_spark
from watersmeet.cli.arguments import check_query, schema_of, sources
from watersmeet.errors import StreamError, WatersmeetError

TABLE = pa.table({"k": [1], "ts": pa.array([1], pa.timestamp("us", tz="UTC"))})
QUERY = "SELECT x.k FROM a x, a y WHERE x.k = y.k WINDOW = 1 SECOND"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    pq.write_table(TABLE, tmp_path / "a" / "0.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (QUERY.replace("x.k FROM", "x.kk FROM"), "no column 'kk'"),
        (QUERY.replace("a y", "b y"), "'b' is not supplied"),
        (QUERY.replace("1 SECOND", "1 SOCKET"), "SOCKET"),
        (QUERY.replace("x.k = y.k", "x.k = y.k AND x.k < y.ts"), "bigint and timestamp"),
        (QUERY, None),
    ],
)
def test_a_query_over_parquet_files(folder, query, said):
    if said is None:
        check_query(query, sources(["a=a"]))
        return
    with pytest.raises(WatersmeetError, match=said):
        check_query(query, sources(["a=a"]))


@pytest.mark.parametrize("option", [{"times": ["a=at"]}, {"times": ["a=k"]}])
def test_the_time_column(folder, option):
    with pytest.raises(StreamError, match="time column"):
        check_query(QUERY, sources(["a=a"], **option))


def test_what_only_spark_can_tell_is_left_to_it(folder: Path):
    wrong = QUERY.replace("x.k FROM", "x.kk FROM")
    pq.write_table(TABLE.append_column("kk", pa.array([1])), folder / "a" / "1.parquet")
    check_query(wrong, sources(["a=a"]))
    (folder / "p" / "kk=1").mkdir(parents=True)
    pq.write_table(TABLE, folder / "p" / "kk=1" / "0.parquet")
    check_query(wrong, sources(["a=p"]))
    (folder / "broken").mkdir()
    (folder / "broken" / "0.parquet").write_text("no parquet")
    check_query(wrong, sources(["a=broken"]))
    check_query(wrong, sources(["a=a"], schemas=["a=kk array<int>, ts timestamp"]))


def test_the_time_zone_is_checked_and_is_the_sessions(folder: Path, monkeypatch: pytest.MonkeyPatch):
    command = ["explain", QUERY, "--stream", "a=a", "--timezone"]
    wrong = CliRunner().invoke(app, [*command, "Europe/Atlantis"])
    assert wrong.exit_code == 2
    assert "unknown time zone 'Europe/Atlantis'" in " ".join(wrong.stderr.split())
    asked: list[object] = []

    def session(*_: object, conf: dict[str, str], **__: object) -> None:
        asked.append(conf["spark.sql.session.timeZone"])
        raise WatersmeetError("no Spark here")

    monkeypatch.setattr(cli_spark, "local_session", session)
    assert "no Spark here" in CliRunner().invoke(app, [*command, "PST"]).stderr
    assert asked == ["America/Los_Angeles"]


def test_hidden_files_are_not_read(folder: Path):
    (folder / "a" / "_checkpoint").mkdir()
    (folder / "a" / "_checkpoint" / "0.parquet").write_text("no parquet")
    assert schema_of(sources(["a=a"])[0]) == {"k": "bigint", "ts": "timestamp"}


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_folder_of_another_format(folder: Path, format: str):
    (folder / "c").mkdir()
    (folder / "c" / f"0.{format}").write_text("")
    with pytest.raises(StreamError, match=rf"c holds {format} files; write --stream a=c:{format}"):
        sources(["a=c"])


def test_the_command_says_so_without_a_jvm(folder: Path):
    command = [sys.executable, "-m", "watersmeet", "run", QUERY.replace("x.k FROM", "x.kk FROM"), "--stream", "a=a"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": "", "JAVA_HOME": "/none"}, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no column 'kk'" in done.stderr
