"""The systems of `watersmeet bench subscriptions` on a small load: each gives DuckDB's answers, and says what it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watersmeet_lab.bench.registered.systems import SYSTEMS, Load
from watersmeet_lab.bench.registered.watch import Limits
from watersmeet_lab.bench.registered.workload import queries, write

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_system_answers_as_duckdb_does(spark: Any, tmp_path: Path, name: str) -> None:
    data, scratch = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    scratch.mkdir()
    write(data, 4, 500, 1)
    load = Load(data, queries(2, 200, 1), scratch, 200, 4, 500, Limits(300, 64))
    found = SYSTEMS[name].run(spark, load)
    assert (found.stopped, found.right) == ("", True)
    assert found.answers > 0
    assert found.rate > 0
    assert found.memory_bytes > 10_000_000
