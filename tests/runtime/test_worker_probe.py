"""What workers lack is told before a query runs; the report runs on bare interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet import __version__
from watersmeet.errors import WorkerError
from watersmeet.runtime import worker_probe
from watersmeet.runtime.worker_probe import PACKAGES, REPORT, probe_workers, problem_of_failure, problem_of_report


def report(*flags: str) -> dict[str, Any]:
    """What a worker of an interpreter with these flags would say."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", f"{REPORT}\nprint(report(0))"], capture_output=True, check=True
    )
    return json.loads(done.stdout)


def test_a_bare_interpreter_says_what_it_lacks():
    said = report("-I", "-S")
    assert said["python"] == sys.executable
    assert dict.fromkeys(PACKAGES) == said["packages"]
    problem = problem_of_report(said)
    assert problem.startswith(f"Spark's Python workers run {sys.executable}")
    assert problem.endswith(
        "which has no watersmeet and no pyarrow and no pandas and no numpy and no numba and no duckdb"
    )


def test_the_drivers_interpreter_lacks_nothing():
    assert problem_of_report(report()) is None


def test_another_version_of_watersmeet():
    packages = {**dict.fromkeys(PACKAGES, "1"), "watersmeet": "0.0.1"}
    problem = problem_of_report({"python": "p", "version": "3", "packages": packages})
    assert problem.endswith(f"which has watersmeet 0.0.1, and the driver has {__version__}: install the same on both")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark", "which is Python 3.9, and"),
        ("[PYTHON_VERSION_MISMATCH] ...", "which is another Python"),
        ('IOException: Cannot run program "/opt/py": error=2, No such file', "are to run /opt/py, and there is no such"),
        ("Job 0 cancelled", None),
    ],
)  # fmt: skip
def test_failures_of_the_interpreter_are_told_and_others_left(text, said):
    problem = problem_of_failure(text, "python3")
    assert problem is None if said is None else said in problem


def spark(answer: Any, id: str = "app-1") -> SimpleNamespace:
    asked: list[Any] = []

    def collect() -> list[str]:
        asked.append(answer)
        if isinstance(answer, Exception):
            raise answer
        return [json.dumps(answer)]

    rows = SimpleNamespace(map=lambda function: SimpleNamespace(collect=collect))
    context = SimpleNamespace(applicationId=id, parallelize=lambda rows_, n: rows, pythonExec="python3")
    return SimpleNamespace(sparkContext=context, asked=asked)


def test_a_session_is_asked_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_probe, "_ASKED", set())
    good, bare = spark(report()), spark(report("-I", "-S"), "app-2")
    for _ in range(3):
        probe_workers(good)
    assert len(good.asked) == 1
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"no watersmeet.*set PYSPARK_PYTHON to an interpreter.*sys\.executable"):
            probe_workers(bare)
    assert len(bare.asked) == 2
    probe_workers(spark(RuntimeError("Job 0 cancelled"), "app-3"))
    worker_probe.trust_workers(spark({}, "app-4"))
    probe_workers(spark(RuntimeError("Cannot run program"), "app-4"))


@pytest.mark.spark
def test_workers_of_another_interpreter(spark, tmp_path, monkeypatch: pytest.MonkeyPatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o700)
    monkeypatch.setattr(worker_probe, "_ASKED", set())
    for python, said in [(str(bare), "no pyarrow"), (str(tmp_path / "none"), "there is no such program")]:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(WorkerError, match=said):
            probe_workers(spark)
    monkeypatch.undo()
    probe_workers(spark)
