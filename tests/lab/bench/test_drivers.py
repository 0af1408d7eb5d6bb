"""`watersmeet bench drivers` on a few tuples: every policy is timed, and only right answers."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet_lab.bench.drivers import run


def test_every_policy_is_timed(tmp_path):
    raw = tmp_path / "raw"
    options = ["--repeat", "1", "--scale", "1000", "--only", "VI, 10 ", "--json", str(raw)]
    result = CliRunner().invoke(app, ["bench", "drivers", *options])
    assert result.exit_code == 0, result.output
    [found] = json.loads(raw.read_text())["workloads"]
    assert set(found["seconds"]) == set(run.POLICIES)
    assert found["results"] == 1000, "one key, 1 x 10 x 100"


def test_no_wrong_answer_is_timed(monkeypatch):
    [workload] = [w for w in run.list_paper(1000) if w.name == "V, 10 batches"]
    whole = run.wm.local.run

    def lose_a_row(text, tables, *, driver, **how):
        found = whole(text, tables, driver=driver, **how)
        return found if driver == "auto" else found.slice(1)

    monkeypatch.setattr(run.wm.local, "run", lose_a_row)
    with pytest.raises(SystemExit, match="output_rate and auto differ"):
        run.measure(workload, 1, ("output_rate",))
    assert isinstance(workload.tables["s"], pa.Table)
