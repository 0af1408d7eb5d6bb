"""The commands that the laboratory adds are in the help, list what they have, and pass options on."""

from __future__ import annotations

from tests.cli.test_app import command


def test_they_are_in_the_help():
    shown = command("--help").output
    assert "Measure, answers checked" in shown
    assert "Reproduce a paper's evaluation" in shown


def test_reproduce():
    assert "reproduce bistream" in command("reproduce").output
    result = command("reproduce", "cobol")
    assert result.exit_code == 2
    assert "there is no reproduction 'cobol'; there are: bistream, wjoin" in result.stderr
    for name in ("bistream", "rjoin"):
        assert "--plots" in command("reproduce", name, "--help").output
    assert "--plots" in command("reproduce", "semijoin", "--help").output


def test_bench():
    assert "bench spark" in command("bench").output
    assert command("bench", "cobol").exit_code == 2
    assert "--files-per-trigger" in command("bench", "spark", "--help").output
