"""A project that depends on watersmeet: strict type checks find its types and its mistakes, and it runs.

The package lies in the site-packages of an environment of its own, as a wheel puts it there: types count only if `py.typed` came along.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[1]
CONSUMER = ROOT / "tests" / "fixtures" / "consumer"
SETTINGS = """
[mypy]
strict = True
[mypy-pyarrow.*]
ignore_missing_imports = True
[mypy-pyspark.*,pandas.*,numba.*,duckdb.*,sqlglot.*]
follow_imports = skip
"""
"""A consumer writes the first two; the last spares us minutes in packages that are none of ours."""


def unpack(folder: Path, into: Path) -> None:
    """What the wheel holds: a built one where the build backend is installed, else the files that it would take."""
    if find_spec("hatchling") is None:
        shutil.copytree(
            ROOT / "src" / "watersmeet", into / "watersmeet", ignore=shutil.ignore_patterns("__pycache__", "*.nb*")
        )
        return
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, ROOT]
    subprocess.run(wheel, check=True)
    with zipfile.ZipFile(next(folder.glob("watersmeet-*.whl"))) as built:
        built.extractall(into)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of an environment that has watersmeet and, by reference, its dependencies."""
    folder = tmp_path_factory.mktemp("consumer")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    unpack(folder, packages)
    (packages / "dependencies.pth").write_text(f"{Path(pa.__file__).parents[1]}\n")
    (folder / "mypy.ini").write_text(SETTINGS)
    return folder / "env" / "bin" / "python"


def run(python: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Outside the source tree, and without what the tests' own environment says about paths."""
    return subprocess.run(command, cwd=python.parents[2], env={}, capture_output=True, text=True, check=False)


def check_types(python: Path, file: str) -> str:
    where = ["--config-file", "mypy.ini", "--python-executable", python]
    return run(python, sys.executable, "-m", "mypy", *where, CONSUMER / file).stdout


def test_strict_types_hold(python):
    assert check_types(python, "consumer.py").strip() == "Success: no issues found in 1 source file"


def test_strict_types_find_mistakes(python):
    found = check_types(python, "wrong.py")
    lines = (CONSUMER / "wrong.py").read_text().splitlines()
    body = {n for n, line in enumerate(lines, start=1) if line.startswith("    ")}
    assert {int(n) for n in re.findall(r"wrong\.py:(\d+): error", found)} == body, found


def test_it_runs(python):
    done = run(python, python, CONSUMER / "consumer.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 answer; sql() needs streams: sql(text, {'clicks': wm.Stream(...)})")


def test_the_module_is_the_command(python):
    done = run(python, python, "-m", "watersmeet", "run", "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: watersmeet run" in done.stdout


def test_the_wheel_takes_the_whole_package():
    """Where the backend is missing, the files are taken to be those of the folder: the settings must say so."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build == {"targets": {"wheel": {"packages": ["src/watersmeet"]}}}
    assert (ROOT / "src" / "watersmeet" / "py.typed").exists()
