"""The Spark tier on every version of Spark that watersmeet runs on: `make matrix`, `make matrix SPARKS="4.0 4.1"`.

`python -m tests.matrix [VERSION ...] [-- PYTEST ARGUMENT ...]`, a VERSION being 4.0 to 4.3, or connect-4.1 to connect-4.3, makes a virtualenv for each version, .venv-spark-4.0 and so on, with the newest
patch release that there is, runs the tests with it and prints a table. It needs the standard library only.

Tests that fail are repeated once, by themselves: Spark gives a Python worker ten seconds to connect, which is too little on a machine that is busy with two JVMs. The table says how many there were.

Invariant: the exit code is 0 only if every version ran, nothing failed, and at least one test passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
CONNECT = tuple(f"connect-{version}" for version in VERSIONS[1:])
"""Clients of Spark Connect: their own tests, thorough ones too."""
TESTS = ("-m", "spark and not thorough", "--numprocesses", "2", "--dist", "worksteal")
CONNECT_TESTS = ("-m", "spark", "tests/spark/test_connect.py")


@dataclass(frozen=True)
class Row:
    """What one version came to."""

    spark: str
    passed: int
    failed: int
    skipped: int
    minutes: float
    repeated: int = 0
    """Of those that passed, how many did when they were repeated."""

    @property
    def is_green(self) -> bool:
        return self.passed > 0 and not self.failed


def main(arguments: Sequence[str]) -> int:
    """Run the versions that are named, or all versions and the newest Connect; what follows `--` goes to pytest instead of the whole tier."""
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    asked, tests = given[:at] or [*VERSIONS, CONNECT[-1]], given[at + 1 :]
    unknown = [version for version in asked if version not in VERSIONS + CONNECT]
    if unknown:
        print(
            f"no Spark {', '.join(unknown)} in the matrix; there are {', '.join(VERSIONS + CONNECT)}", file=sys.stderr
        )
        return 2
    rows = [run(version, CONNECT_TESTS if version in CONNECT else [*TESTS, *tests]) for version in asked]
    print(table(rows))
    return 0 if all(row.is_green for row in rows) else 1


def run(version: str, tests: Sequence[str]) -> Row:
    """The tests with one version, in its own virtualenv."""
    number = version.removeprefix("connect-")
    python = virtualenv(number)
    spark = version.removesuffix(number) + _output(python, "-c", "import pyspark; print(pyspark.__version__)")
    print(f"Spark {spark}: {' '.join(tests)}", flush=True)
    begin = time.monotonic()
    first = row(spark, _report(python, "-o", f"cache_dir=.pytest_cache/{spark}", *tests))
    if first.failed and first.passed:
        alone = (*tests, "--numprocesses", "0")
        again = row(spark, _report(python, "-o", f"cache_dir=.pytest_cache/{spark}", "--last-failed", *alone))
        if again.passed + again.failed == first.failed:
            first = replace(first, passed=first.passed + again.passed, failed=again.failed, repeated=again.passed)
    return replace(first, minutes=(time.monotonic() - begin) / 60)


def _report(python: str, *arguments: str) -> str:
    """Run pytest; its XML report, empty if there is none."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_HOME")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run([python, "-m", "pytest", f"--junitxml={report}", *arguments], cwd=ROOT, env=plain, check=False)
        return report.read_text() if report.exists() else ""


def row(spark: str, report: str) -> Row:
    """Counts from pytest's XML report; a run that left none has failed.

    >>> row("4.3.0", '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
    Row(spark='4.3.0', passed=5, failed=2, skipped=2, minutes=0.0, repeated=0)
    >>> row("4.3.0", "").is_green
    False
    """
    if not report:
        return Row(spark, 0, 1, 0, 0.0)
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.fromstring(report).iter("testsuite"):
        counts = {name: count + int(suite.get(name, "0")) for name, count in counts.items()}
    failed = counts["failures"] + counts["errors"]
    return Row(spark, counts["tests"] - failed - counts["skipped"], failed, counts["skipped"], 0.0)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown.

    >>> print(table([Row("4.3.0", 5, 2, 2, 3.0)]))
    | Spark | passed | of these when repeated | failed | skipped | minutes |
    | --- | --- | --- | --- | --- | --- |
    | 4.3.0 | 5 | 0 | 2 | 2 | 3.0 |
    """
    names = ("Spark", "passed", "of these when repeated", "failed", "skipped", "minutes")
    figures = ((r.spark, r.passed, r.repeated, r.failed, r.skipped, f"{r.minutes:.1f}") for r in rows)
    lines = [names, ["---"] * len(names), *figures]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def virtualenv(version: str) -> str:
    """The interpreter of a version's virtualenv, which is made if it is missing or older than a pyproject.toml."""
    folder = ROOT / f".venv-spark-{version}"
    python, ready = str(folder / "bin" / "python"), folder / ".ready"
    changed = max((ROOT / where / "pyproject.toml").stat().st_mtime for where in (".", "lab"))
    if ready.exists() and ready.stat().st_mtime > changed:
        return python
    print(f"setting up {folder.name}; the first time takes some minutes", flush=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "pip>=25.1"],
        [*pip, "--editable", ".[spark]", "--editable", "./lab", "--group", "dev", f"pyspark=={version}.*"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    ready.touch()
    return python


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
