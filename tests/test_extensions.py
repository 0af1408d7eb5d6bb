"""What another distribution brings is asked for by name; without it every way to ask says what to install."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.cli.test_app import command
from watersmeet import extensions
from watersmeet.kernels.catalogue import find_kernel

TEXT = "SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND"
TABLES = {"s": pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us", tz="UTC"))})}
INSTALL = "pip install watersmeet-lab"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other distribution is installed."""
    monkeypatch.setattr(extensions, "entry_points", lambda group: ())
    extensions.find_pieces.cache_clear()
    yield
    extensions.find_pieces.cache_clear()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: wm.local.run(TEXT, TABLES, kernel="ripple"), "kernel='ripple'"),
        (lambda: wm.local.explain(TEXT, TABLES, kernel="gca(xjoin)"), r"kernel='gca\(xjoin\)'"),
        (lambda: find_kernel("xjoin"), "kernel='xjoin'"),
        (lambda: wm.local.run(TEXT, TABLES, network=object()), "network="),
        (lambda: wm.local.run(TEXT, TABLES, sites={"a": "paris", "b": "tokyo"}, network=object()), "network="),
    ],
)
def test_what_is_missing_is_said_with_its_distribution(call, wanted):
    with pytest.raises(wm.OptionError, match=f"{wanted}.* comes with another distribution: {INSTALL}"):
        call()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["Link", "Network", "Protocol"])
def test_names_that_are_missing(name):
    assert name in dir(wm.local)
    assert not hasattr(wm.local, name)
    with pytest.raises(AttributeError, match=f"local.{name} comes with another distribution: {INSTALL}"):
        getattr(wm.local, name)


def test_names_that_nobody_has():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = wm.local.Nonsense


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("verb", ["bench", "reproduce"])
def test_commands_that_are_missing(verb):
    result = command(verb, "spark", "--quick")
    assert result.exit_code == 2
    assert f"watersmeet {verb} comes with another distribution: {INSTALL}" in result.stderr
    shown = command("--help").output
    assert verb not in shown
    assert "explain" in shown


def test_a_command_that_nobody_has():
    result = command("cobol")
    assert result.exit_code == 2
    assert "No such command 'cobol'" in result.stderr


WITHOUT_SPARK = """
import sys


class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoSpark())
from importlib import util
found = util.find_spec
util.find_spec = lambda name, package=None: None if name == "pyspark" else found(name, package)
"""


def run_without_spark(code: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter that has neither pyspark nor pandas."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK + code], capture_output=True, text=True, check=False, timeout=300
    )


def test_joins_in_process_need_no_spark():
    done = run_without_spark(
        "import pyarrow as pa, watersmeet as wm\n"
        "t = pa.table({'k': [1, 2], 'ts': pa.array([0, 1], pa.timestamp('us'))})\n"
        "print(wm.local.run('SELECT a.k FROM t a LEFT JOIN t b ON a.k = b.k + 1 WINDOW = 1 SECOND', t=t).num_rows)\n"
        "print(wm.testing.QueryTest, wm.local.explain('SELECT a.k FROM t a, t b WHERE a.k = b.k WINDOW = 1 SECOND', t=t))\n"
        "wm.local.subscriptions(t=t)\n"
        "assert not {'pyspark', 'pandas'} & set(sys.modules)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2\n")


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import watersmeet as wm; wm.Handle", "wm.Handle"),
        ("from watersmeet import Subscriptions", "wm.Subscriptions"),
        ("sys.argv[1:] = ['demo']; from watersmeet.cli import app; app()", "watersmeet demo"),
        ("sys.argv[1:] = ['run', 'SELECT 1']; from watersmeet.cli import app; app()", "watersmeet run"),
        ("sys.argv[1:] = ['explain', 'SELECT 1']; from watersmeet.cli import app; app()", "watersmeet explain"),
    ],
)
def test_what_needs_spark_names_what_to_install(code, wanted):
    done = run_without_spark(code)
    assert done.returncode != 0
    message = f"{wanted} needs Spark, and this Python has no pyspark: pip install 'watersmeet[spark]'"
    assert message in " ".join(done.stderr.split())
