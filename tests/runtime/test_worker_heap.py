"""What a worker has frozen is let go when its process ends."""

from __future__ import annotations

import subprocess
import sys


def test_a_process_that_has_run_tasks_ends_without_a_word() -> None:
    code = "import duckdb, gc; from watersmeet.runtime.worker_heap import after_task; after_task(); assert gc.get_freeze_count()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "", "DuckDB has counted what is left of it"
