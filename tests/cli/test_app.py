"""Mistakes in the command line are told at once, before Spark is started, in one message and with code 2."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.cli.arguments import SinkArgument, Source, query_text, sink, sources, trigger
from watersmeet.errors import WatersmeetError

TEXT = "SELECT a.k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND"
SELF = TEXT.replace("a, b", "a, a b")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A folder of csv, an empty one, a file; and no Java, so that nothing can start Spark."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "0.csv").write_text("k,ts\n1,2026-01-01 00:00:00\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.parquet").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java-here"))
    return tmp_path


def command(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})


@pytest.mark.parametrize("verb", ["run", "explain"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give the query once"),
        ([TEXT, "--query-file", "q.sql"], "give the query once"),
        (["@nowhere.sql"], "nowhere.sql"),
        ([TEXT], "no stream"),
        ([TEXT, "--stream", "clicks"], "NAME=VALUE"),
        ([TEXT, "--stream", "a=nowhere"], "there is no folder nowhere"),
        ([TEXT, "--stream", "a=empty"], "--schema a="),
        ([TEXT, "--stream", "a=text:csv"], "--schema a="),
        ([TEXT, "--stream", "a=text:xml"], "'xml' is not a format"),
        ([TEXT, "--stream", "a=one.parquet"], "is a file"),
        ([TEXT, "--stream", "a=text:csv", "--stream", "a=text:csv"], "twice"),
        ([TEXT, "--stream", "a=text:csv", "--schema", "a=k int", "--time", "b=ts"], "no --stream b"),
        ([TEXT, "--stream", "a=text:csv", "--schema", "a=k int", "--lateness", "a=soon"], "--lateness a=soon"),
        ([TEXT, "--stream", "a=text:csv", "--schema", "a=k int", "--idle", "a=-1 s"], "negative"),
    ],
)
def test_a_mistake_is_named(folders, verb, arguments, said):
    result = command(verb, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sink", "excel:out"], "parquet:FOLDER, json:FOLDER, delta:PATH, kafka:TOPIC@HOST:PORT or console"),
        (["--sink", "parquet"], "name the folder"),
        (["--sink", "console:out"], "no folder"),
        (["--trigger", "often"], "available-now"),
        (["--files-per-trigger", "0"], "files-per-trigger"),
        (["--kernel", "magic"], "kernel"),
        (["--late", "parquet:lost"], "--runtime rounds: add that"),
        (["--late", "parquet:lost", "--runtime", "rounds", "--static"], "--runtime rounds: add that"),
        (["--on-error", "set aside", "--runtime", "rounds"], "such as --late json:FOLDER"),
        (["--keep", "20"], "--keep 20 needs --runtime rounds"),
        (["--late", "delta:lost", "--runtime", "rounds"], "--late delta:lost: write parquet:FOLDER"),
        (["--late", "json:./out", "--sink", "parquet:out", "--runtime", "rounds"], "is the folder of the results"),
    ],
)
def test_a_mistake_in_an_option_of_run(folders, arguments, said):
    result = command("run", TEXT, "--stream", "a=text:csv", "--schema", "a=k int, ts timestamp", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_without_java_the_message_says_how_to_install_it(folders):
    result = command("explain", SELF, "--stream", "a=text:csv", "--schema", "a=k int, ts timestamp")
    assert result.exit_code == 2
    assert "needs Java 17" in result.stderr
    assert "install it with:" in result.stderr


def test_results_of_another_checkpoint_are_not_mixed(folders):
    (folders / "out" / "_spark_metadata").mkdir(parents=True)
    (folders / "out" / "_spark_metadata" / "0").write_text("v1\n")
    (folders / "other").mkdir()
    (folders / "other" / "part-0.parquet").write_text("rows of a batch job")
    given = ("--stream", "a=text:csv", "--schema", "a=k int, ts timestamp")
    for to, said in ("out", "another checkpoint"), ("other", "would vanish"):
        for sinks in ("--sink", f"json:{to}"), ("--runtime", "rounds", "--late", f"json:{to}"):
            result = command("run", SELF, *given, *sinks)
            assert result.exit_code == 2
            assert said in result.stderr


def test_every_command_explains_itself():
    for verb in ("demo", "run", "explain"):
        result = command(verb, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.output


def test_what_is_typed_is_what_is_meant(folders):
    (folders / "q.sql").write_text(TEXT)
    assert query_text("@q.sql", None) == query_text(None, folders / "q.sql") == query_text(TEXT, None) == TEXT
    [found] = sources(
        ["a = text:csv"], ["a=at"], ["a=10 seconds"], ["a=1 hour"], ["a=k bigint, at timestamp"], streaming=True
    )
    path = found.path
    assert found == Source("a", path, "csv", "at", "10 seconds", "1 hour", "k bigint, at timestamp")
    assert sink("console") == SinkArgument("console")
    assert trigger("once") == trigger("available-now") == {"availableNow": True}
    with pytest.raises(WatersmeetError):
        sink("")
