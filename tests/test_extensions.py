"""What another distribution brings is asked for by name; without it every way to ask says what to install."""

from __future__ import annotations

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
        (lambda: wm.local.run(TEXT, TABLES, sites={"a": "paris", "b": "tokyo"}), "sites={'a': 'paris'"),
        (lambda: wm.local.explain(TEXT, TABLES, sites={"a": "paris", "b": "tokyo"}), "sites={'a': 'paris'"),
    ],
)
def test_what_is_missing_is_said_with_its_distribution(call, wanted):
    with pytest.raises(wm.OptionError, match=f"{wanted}.* comes with another distribution: {INSTALL}"):
        call()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["Link", "Network", "Protocol", "Sites"])
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
