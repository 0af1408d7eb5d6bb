"""`watersmeet bench drivers` on a few tuples: every policy is timed, and only right answers."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet_lab.bench.drivers import on_spark, run


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


def test_no_wrong_number_of_results_is_timed_on_spark(monkeypatch, tmp_path):
    counts = {"auto": 7, "timestamp": 6}
    monkeypatch.setattr(on_spark, "_run", lambda spark, text, tables, root, policy, name: (counts[policy], 1.0, 2.0))
    with pytest.raises(SystemExit, match="VI: timestamp and auto differ"):
        on_spark._take_turns(None, "VI", run.TEXT, {}, tmp_path, ("auto", "timestamp"), 1)


@pytest.mark.spark
def test_policies_take_turns_under_start(spark, tmp_path):
    [workload] = [w for w in run.list_paper(1000) if w.name == "VI, 10 batches"]
    on_spark.write_files(workload.tables, 1_000_000, 10, tmp_path)
    assert sum(pq.read_table(tmp_path / n).num_rows for n in "stu") == sum(t.num_rows for t in workload.tables.values())
    policies = ("auto", "timestamp")
    found = on_spark._take_turns(spark, workload.name, run.TEXT, workload.tables, tmp_path, policies, 1)
    assert found.results == 1000, "one key, 1 x 10 x 100"
    assert all(min(found.units[p]) > 0 and min(found.batches[p]) > 0 for p in policies)
    assert found.ratio("auto", "units") == 1
