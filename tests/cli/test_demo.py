"""The demo from beginning to end, shortened."""

from __future__ import annotations

import re

import pytest

from .command import watersmeet


@pytest.mark.spark
def test_the_demo_agrees_with_duckdb_and_keeps_the_screen_clean(tmp_path):
    done = watersmeet("demo", "--seconds", 4, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "WINDOW (c, o) = 10 MINUTES AND DWINDOW (o, r) = 2 HOURS" in done.stdout
    assert "hypercube over 8 units" in done.stdout
    verdict = re.search(r"^([\d,]+) results, equal to DuckDB's \1$", done.stdout, re.MULTILINE)
    assert verdict is not None
    assert int(verdict[1].replace(",", "")) > 0
    late = re.search(r"^late rows: ([\d,]+) sent, \1 counted and dropped$", done.stdout, re.MULTILINE)
    assert late is not None
    assert int(late[1].replace(",", "")) > 0
    assert list(tmp_path.iterdir()) == []
