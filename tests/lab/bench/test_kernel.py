"""`watersmeet bench kernel` on a few rows: every kernel is timed, and only right answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet_lab.bench import kernel


def test_every_kernel_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "TURN_S", 0.0)
    monkeypatch.setattr(kernel, "BATCH", 300)
    monkeypatch.setattr(
        kernel, "CASES", [replace(c, rows=1000, keys=50, in_window=min(c.in_window, 100)) for c in kernel.CASES]
    )
    result = CliRunner().invoke(app, ["bench", "kernel", "--repeat", "1", "--json", str(tmp_path / "raw")])
    assert result.exit_code == 0, result.output
    for case in json.loads((tmp_path / "raw").read_text())["cases"]:
        assert case["answer"]["count"] > 0 or case["case"]["name"] == "silent"
        assert set(case["seconds"]) == {*case["case"]["systems"], "DuckDB, range", "DuckDB, abs"}
        assert all(compared > 0 for compared in case["comparisons"].values())


def test_no_wrong_answer_is_timed(monkeypatch):
    monkeypatch.setitem(kernel.WHOLE, "hw", lambda s: kernel.probe_keys(kernel.Streams(s.keys, s.ts, s.window_us // 2)))
    with pytest.raises(SystemExit, match="answers differ"):
        kernel.measure(replace(kernel.CASES[0], rows=1000, keys=50, in_window=100), 1, print)
