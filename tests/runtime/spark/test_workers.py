"""Spark's Python workers: the probe, their errors, their heap."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet import __version__
from watersmeet.errors import DataError, WorkerError
from watersmeet.runtime.spark import workers
from watersmeet.runtime.spark.diary import STARTUP, WRITER, Sieve
from watersmeet.runtime.spark.executors import ask_hosts
from watersmeet.runtime.spark.failures import from_worker
from watersmeet.runtime.spark.workers import (
    PACKAGES,
    REPORT,
    as_task,
    probe_workers,
    problem_of_failure,
    problem_of_report,
)
from watersmeet.runtime.stream.packed import PackedProcessor
from watersmeet.runtime.stream.processor import MANIFEST, UnitMap


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


def spark(answer: Any, id: str = "app-1", master: str = "local[2]") -> SimpleNamespace:
    context = SimpleNamespace(applicationId=id, pythonExec="python3")
    conf = SimpleNamespace(get=lambda name, default: master)
    return SimpleNamespace(sparkContext=context, conf=conf, answer=answer, asked=[])


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions answer by themselves, and nobody has been asked."""

    def ask(session: Any, hosts: list[str], function: Any) -> list[str]:
        session.asked.append(hosts)
        if isinstance(session.answer, Exception):
            raise session.answer
        return [json.dumps({**session.answer, "host": host}) for host in hosts]

    monkeypatch.setattr(workers, "_ASKED", set())
    monkeypatch.setattr(workers, "ask_hosts", ask)


def test_every_host_is_asked_once_and_named(asking: None):
    cluster = spark(report(), "app-1", "spark://here")
    for hosts in (["w1", "w2"], ["w1", "w2"], ["w2", "w3"], []):
        probe_workers(cluster, hosts)
    assert cluster.asked == [["w1", "w2"], ["w3"], [""]]
    with pytest.raises(WorkerError, match=r"workers on w4 run .*no watersmeet"):
        probe_workers(spark(report("-I", "-S"), "app-1", "spark://here"), ["w3", "w4"])
    lost = RuntimeError('Lost task 0.3 (TID 7) (w5 executor 2): Cannot run program "python9": error=2')
    with pytest.raises(WorkerError, match="workers on w5 are to run python9"):
        probe_workers(spark(lost, "app-1", "spark://here"), ["w5"])


def test_a_session_is_asked_once(asking: None):
    good, bare = spark(report()), spark(report("-I", "-S"), "app-2")
    for _ in range(3):
        probe_workers(good)
    assert len(good.asked) == 1
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"no watersmeet.*set PYSPARK_PYTHON to an interpreter.*sys\.executable"):
            probe_workers(bare)
    assert len(bare.asked) == 2
    probe_workers(spark(RuntimeError("Job 0 cancelled"), "app-3"))
    workers.trust_workers(spark({}, "app-4"))
    probe_workers(spark(RuntimeError("Cannot run program"), "app-4"))


@pytest.mark.spark
def test_workers_of_another_interpreter(spark, tmp_path, monkeypatch: pytest.MonkeyPatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o700)
    monkeypatch.setattr(workers, "_ASKED", set())
    for python, said in [(str(bare), "no pyarrow"), (str(tmp_path / "none"), "there is no such program")]:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(WorkerError, match=said):
            probe_workers(spark)
    monkeypatch.undo()
    probe_workers(spark)


@pytest.mark.spark
def test_hosts_are_asked_in_workers_of_the_daemon_that_serves_sql(spark):
    def tell_daemon(_: Any) -> str:
        import os

        return str(os.getppid())

    def daemon_of_sql(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [os.getppid()] * batch.num_rows})

    before = dict(spark.sparkContext.environment)
    [asked] = ask_hosts(spark, [""], tell_daemon)
    [row] = spark.range(0, 1, 1, 1).mapInArrow(daemon_of_sql, "id bigint").collect()
    assert int(asked) == row.id
    assert spark.sparkContext.environment == before


@as_task
def task(error: Exception, rows: Iterator[int]) -> Iterator[int]:
    yield from rows
    try:
        raise ValueError("deep inside")
    except ValueError as inner:
        raise error from inner


def as_spark_tells(error: Exception) -> str:
    """The text that Spark's worker makes of an exception."""
    with pytest.raises(type(error)) as raised:
        list(task(error, iter([1])))
    return "".join(traceback.TracebackException.from_exception(raised.value, compact=True).format())


def test_an_error_of_ours_stands_in_the_first_line_without_our_frames():
    text = as_spark_tells(DataError("a.x * b.x cannot be evaluated"))
    told = text.replace("Traceback (most recent call last):\n", "", 1)
    assert told.startswith("watersmeet.errors.DataError: a.x * b.x cannot be evaluated\n")
    assert "deep inside" not in text
    assert "in task" not in text
    assert str(from_worker(text)) == "a.x * b.x cannot be evaluated"


def test_other_errors_keep_their_frames():
    text = as_spark_tells(KeyError("k"))
    assert "in task" in text
    assert "deep inside" in text


def test_a_task_is_lazy_and_passes_its_results_on():
    rows = task(DataError("late"), iter([1, 2]))
    assert (next(rows), next(rows)) == (1, 2)
    with pytest.raises(DataError, match="late"):
        next(rows)


def test_the_diary_is_dropped_where_it_is_written_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    pickle.loads(pickle.dumps(PackedProcessor(None)))
    assert sys.stdout is out
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", WRITER])
    pickle.loads(pickle.dumps(PackedProcessor(None)))
    pickle.loads(pickle.dumps(PackedProcessor(None)))
    assert isinstance(sys.stdout, Sieve)
    print("Starting Streaming TransformWithStateInPandas Python worker.\n")
    print("Streaming TransformWithStateInPandas Python worker Completed execution of UDF: f.\n")
    print("mine")
    print()
    sys.stdout.flush()
    assert out.getvalue() == "mine\n\n"


DECLARES = """
import pickle, sys
from types import SimpleNamespace
given, sys.orig_argv = sys.stdin.buffer.read(), [*sys.orig_argv, {writer!r}]
pickle.loads(given).init(SimpleNamespace(getMapState=lambda *state: print(*state)))
print(*(name for name in ("numba", "pandas", "pyarrow", "duckdb") if name in sys.modules))
"""


def test_who_only_declares_the_state_does_not_load_the_engine():
    packed = pickle.dumps(PackedProcessor(UnitMap(None)))
    command = [sys.executable, "-c", DECLARES.format(writer=WRITER)]
    done = subprocess.run(command, input=packed, capture_output=True, check=True)
    assert done.stdout.decode() == "unit id string blob binary\n\n"


def started(folder: Path, module: str) -> str:
    """What a module says in a Python that has our folder first on its path, and behind it another one with the module."""
    place = folder
    for part in module.split(".")[:-1]:
        place /= part
        place.mkdir()
        (place / "__init__.py").touch()
    lines = ["Starting Streaming TransformWithStateInPandas Python worker.\n", "mine"]
    (place / f"{module.split('.')[-1]}.py").write_text(f"for line in {lines}: print(line)")
    path = os.pathsep.join(map(str, (STARTUP, folder)))
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_the_first_line_of_the_diary_is_dropped_by_what_python_imports_first(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    assert started(tmp_path, WRITER) == "theirs\nmine\n"
    assert "Starting Streaming" in started(tmp_path, "another")
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_this_name")
    assert "nothing_of_this_name" in started(tmp_path, "broken")


class Map:
    """Spark's MapState, which warns when it is asked for a key that it has not."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def containsKey(self, key: Any) -> bool:
        return key in self.held

    def getValue(self, key: Any) -> Any:
        return self.held[key]

    def updateValue(self, key: Any, value: Any) -> None:
        self.held[key] = value


def test_a_unit_does_not_ask_for_a_manifest_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    fresh = SimpleNamespace(fresh=lambda plan: "fresh", from_json=lambda text, plan: text)
    monkeypatch.setattr("watersmeet.runtime.stream.processor.Manifest", fresh)
    state = UnitMap(Map())
    assert state.read_manifest(None) == "fresh"
    state.put(MANIFEST, b"kept")
    assert state.read_manifest(None) == "kept"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker after its first tasks."""
    monkeypatch.setattr(workers, "_done", workers.FREEZES)
    gc.freeze()
    yield
    gc.unfreeze()


def test_a_heap_that_has_grown_is_frozen_again(settled: None) -> None:
    before = gc.get_freeze_count()
    workers.after_task()
    assert gc.get_freeze_count() == before
    kept = [[] for _ in range(workers.MOST_OBJECTS + 1_000)]  # type: ignore[var-annotated]
    workers.after_task()
    assert gc.get_freeze_count() >= before + len(kept)
    after = gc.get_freeze_count()
    workers.after_task()
    assert gc.get_freeze_count() == after


def test_a_process_that_has_run_tasks_ends_without_a_word() -> None:
    code = "import duckdb, gc; from watersmeet.runtime.spark.workers import after_task; after_task(); assert gc.get_freeze_count()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "", "DuckDB has counted what is left of it"
