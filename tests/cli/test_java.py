"""Which Java there is, and what is said if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from watersmeet.runtime.spark import java


def fake_java(home: Path, says: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21.0.2" 2024-01-16', None),
        ('openjdk version "11.0.22" 2024-01-16', "is Java 11"),
        ('java version "1.8.0_392"', "is Java 8"),
        ("no such thing", "does not start"),
    ],
)
def test_the_version_decides(tmp_path, monkeypatch, says, problem):
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = java.java_problem()
    assert (said is None) == (problem is None)
    assert said is None or (problem in said and "install it with: " in said)


def test_none_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.java_problem() == (
        "watersmeet needs Java 17, and there is none here; install it with: sudo apt-get install -y openjdk-17-jre-headless"
    )


def test_the_makefile_may_ask_before_anything_is_installed(tmp_path):
    asked = subprocess.run(
        [sys.executable, "-I", java.__file__],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 1
    assert asked.stderr.startswith("watersmeet needs Java 17")
