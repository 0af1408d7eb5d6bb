"""What Spark's Python workers say, without Spark."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from watersmeet.errors import DataError
from watersmeet.runtime import worker_words
from watersmeet.runtime.failures import from_worker
from watersmeet.runtime.spark_sequencer import SequencerProcessor
from watersmeet.runtime.spark_state import MANIFEST, UnitState
from watersmeet.runtime.worker_words import Sieve, errors_first


@errors_first
def task(rows: Iterator[int], error: Exception) -> Iterator[int]:
    yield from rows
    try:
        raise ValueError("deep inside")
    except ValueError as inner:
        raise error from inner


def as_spark_tells(error: Exception) -> str:
    """The text that Spark's worker makes of an exception."""
    with pytest.raises(type(error)) as raised:
        list(task(iter([1]), error))
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
    rows = task(iter([1, 2]), DataError("late"))
    assert (next(rows), next(rows)) == (1, 2)
    with pytest.raises(DataError, match="late"):
        next(rows)


def test_the_diary_is_dropped_where_it_is_written_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    pickle.loads(pickle.dumps(SequencerProcessor(None)))
    assert sys.stdout is out
    monkeypatch.setitem(sys.modules, worker_words._PREPARES, ModuleType("worker"))
    pickle.loads(pickle.dumps(SequencerProcessor(None)))
    pickle.loads(pickle.dumps(SequencerProcessor(None)))
    assert isinstance(sys.stdout, Sieve)
    print("Streaming TransformWithStateInPandas Python worker Completed execution of UDF: f.\n")
    print("mine")
    print()
    sys.stdout.flush()
    assert out.getvalue() == "mine\n\n"


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
    monkeypatch.setattr("watersmeet.runtime.spark_state.Manifest", fresh)
    state = UnitState(SimpleNamespace(getMapState=lambda *_: Map()))
    assert state.read_manifest(None) == "fresh"
    state.put(MANIFEST, b"kept")
    assert state.read_manifest(None) == "kept"
