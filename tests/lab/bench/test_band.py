"""`watersmeet bench band` on a few rows: it measures what it says, and only right answers."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet_lab.bench import band


def test_every_system_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(band, "TURN_S", 0.0)
    options = ("--rows", "400", "--batch-rows", "150", "--repeat", "1", "--json", str(tmp_path / "raw"))
    result = CliRunner().invoke(app, ["bench", "band", *options])
    assert result.exit_code == 0, result.output
    raw = json.loads((tmp_path / "raw").read_text())
    assert [case["case"]["name"] for case in raw["cases"]] == ["band", "inequality"]
    for case in raw["cases"]:
        assert case["answer"]["count"] > 0
        assert len(case["ratios"]) == len(case["case"]["duckdb"]) == len(case["seconds"]) - 1


def test_no_wrong_answer_is_timed(monkeypatch):
    monkeypatch.setattr(band, "QUERY", band.QUERY.replace("10 SECONDS", "1 SECOND"))
    with pytest.raises(SystemExit, match="answers differ"):
        band.measure(band.CASES[0], {a: band.stream(3000, n) for n, a in enumerate("ab")}, 1000, 1, print)
