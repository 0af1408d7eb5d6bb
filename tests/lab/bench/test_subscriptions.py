"""`watersmeet bench subscriptions` without Spark: which runs are made, what stops them, and what is shown."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench import subscriptions
from watersmeet_lab.bench.registered import by_units
from watersmeet_lab.bench.registered import trial as trials
from watersmeet_lab.bench.registered.systems import SYSTEMS, Outcome
from watersmeet_lab.bench.registered.trial import Trial
from watersmeet_lab.bench.registered.watch import Limits, Watch, rate
from watersmeet_lab.bench.registered.workload import ask_duckdb, queries, write


def outcome(trial: Trial, **what: object) -> Outcome:
    said: dict[str, object] = {
        "rate": 100.0, "whole_rate": 50.0, "first_seconds": 1.0, "adding_ms": 2.0, "answers": 7, "state_rows": 3, "state_bytes": 4,
        "memory_bytes": 5, "stopped": "", "right": True,
    }  # fmt: skip
    return Outcome(trial.system, trial.count, **{**said, **what})  # type: ignore[arg-type]


def bench(monkeypatch: pytest.MonkeyPatch, run: object, *options: str) -> tuple[int, str]:
    monkeypatch.setattr(subscriptions, "run", run)
    result = CliRunner().invoke(app, ["bench", "subscriptions", "--rows", "100", "--batches", "4", *options])
    return result.exit_code, result.output


def test_jobs_are_doubled_until_a_limit_stops_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(trial: Trial) -> Outcome:
        stops = SYSTEMS[trial.system].apart and trial.count >= 8
        return outcome(trial, stopped="memory: over 1 GB" if stops else "", right=None if stops else True)

    raw = tmp_path / "raw.json"
    code, _ = bench(monkeypatch, run, "--sizes", "20,30", "--memory", "1", "--json", str(raw))
    assert code == 0
    made = [(r["system"], r["queries"]) for r in json.loads(raw.read_text())["runs"]]
    doubled = [(name, n) for name in ("jobs", "spark") for n in (1, 2, 4, 8)]
    assert made == [(name, n) for name in ("registered", "rjoin") for n in (20, 30)] + doubled


def test_a_wrong_answer_fails_and_an_unknown_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = bench(monkeypatch, lambda t: outcome(t, right=False), "--systems", "jobs", "--jobs", "1")
    assert code == 1
    code, said = bench(monkeypatch, outcome, "--systems", "flink")
    assert code == 2
    assert "flink" in said


def test_a_process_that_dies_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = trials.run(Trial("jobs", 3, str(tmp_path), 50, 4, 100, 1, 10, 1))
    assert found.stopped.startswith("failed: the process ended with code 1")
    assert found.right is None


def test_rates_count_from_when_all_jobs_are_warm() -> None:
    assert rate([[1.0, 2.0, 3.0, 4.0, 5.0]], 1) == 1.0
    assert rate([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], 1) == 1.0, "what was done before all ran is not counted"
    assert rate([[1.0, 2.0], []], 1) == 0.0, "a job that has done nothing: no rate"


class Handle:
    """A job that ends after some looks, or fails."""

    def __init__(self, looks: int, error: str = "") -> None:
        self.looks, self.error = looks, error

    def await_termination(self, timeout: float) -> bool:
        self.looks -= 1
        if self.error:
            raise WatersmeetError(self.error)
        return self.looks <= 0


def test_a_watch_says_which_limit_was_met() -> None:
    watch = Watch(Limits(60, 64))
    watch.wait([Handle(2), Handle(1)])
    assert watch.stopped == ""
    assert watch.memory_bytes > 10_000_000
    for limits, said in ((Limits(0, 64), "time: over 0 s"), (Limits(60, 0.001), "memory: over 0.001 GB")):
        watch = Watch(limits)
        watch.wait([Handle(9)])
        assert watch.stopped == said
    watch = Watch(Limits(60, 64))
    watch.wait([Handle(9, "out of heap\nat line 1"), Handle(1)])
    assert watch.stopped == "failed: out of heap"


def test_the_workload_depends_on_the_seed_alone(tmp_path: Path) -> None:
    assert queries(30, 50, 1) == queries(40, 50, 1)[:30]
    assert queries(30, 50, 1) != queries(30, 50, 2)
    sums = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, 4, 2_000, 1)
        sums.append([ask_duckdb(tmp_path / name, 50, text) for text in queries(5, 50, 1)])
    assert sums[0] == sums[1]
    assert all(count for count, _ in sums[0])


def test_both_engines_are_compared_by_units(tmp_path: Path) -> None:
    written = tmp_path / "units.json"
    given = ["--units", "1,64", "--sizes", "15", "--rows", "300", "--batches", "4", "--window", "100"]
    result = CliRunner().invoke(app, ["bench", "subscriptions", *given, "--json", str(written)])
    assert result.exit_code == 0, result.output
    found = json.loads(written.read_text())
    runs = {(run["engine"], run["units"]): run for run in found["runs"]}
    assert set(runs) == {("shared", 1), ("rjoin", 1), ("shared", 64), ("rjoin", 64)}
    assert len({run["answers"] for run in runs.values()}) == 1
    assert runs["shared", 1]["answers"] > 0
    assert runs["shared", 64]["all_rows"] > runs["shared", 1]["all_rows"], "tuples are copied to units"
    assert all(run["rounds"] == 1 for (engine, _), run in runs.items() if engine == "shared")
    assert runs["rjoin", 64]["rounds"] > 1
    assert found["winner"] in result.output


def test_engines_that_differ_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 4, 300, 1)
    right = by_units.run_units

    def run(folder: Path, engine: str, *rest: Any) -> Any:
        found = right(folder, engine, *rest)
        return replace(found, rows=Counter()) if engine == "rjoin" else found

    monkeypatch.setattr(by_units, "run_units", run)
    with pytest.raises(WatersmeetError, match="15 queries, 2 units: RJoin's answers are not those of the shared plan"):
        list(by_units.compare(tmp_path, [2], [15], 4, 100, 1))


def test_a_comparison_without_answers_says_so(tmp_path: Path) -> None:
    write(tmp_path, 4, 300, 1)
    found = list(by_units.compare(tmp_path, [2], [3], 4, 1, 1))
    assert {o.answers for o in found} == {0}
    assert "none had an answer" in str(by_units.show_units(found).title)
