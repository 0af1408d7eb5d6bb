"""What a worker keeps is frozen once there is much of it, what a task lets go of is not, and nothing is when its process ends."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from watersmeet.runtime import worker_heap


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker after its first tasks."""
    monkeypatch.setattr(worker_heap, "_done", worker_heap.FREEZES)
    gc.freeze()
    yield
    gc.unfreeze()


def test_a_heap_that_has_grown_is_frozen_again(settled: None) -> None:
    before = gc.get_freeze_count()
    worker_heap.after_task()
    assert gc.get_freeze_count() == before
    kept = [[] for _ in range(worker_heap.MOST_OBJECTS + 1_000)]  # type: ignore[var-annotated]
    worker_heap.after_task()
    assert gc.get_freeze_count() >= before + len(kept)
    after = gc.get_freeze_count()
    worker_heap.after_task()
    assert gc.get_freeze_count() == after


def test_a_process_that_has_run_tasks_ends_without_a_word() -> None:
    code = "import duckdb, gc; from watersmeet.runtime.worker_heap import after_task; after_task(); assert gc.get_freeze_count()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "", "DuckDB has counted what is left of it"
