"""Settled runs: what is there is not run again, order turns, and wrong answers form no ratio."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from watersmeet_lab.bench.trials.settled import Runs, ratio, read_trial, render

SYSTEMS: Any = ("rounds", "spark-default")


def trial(shape: str, sink: str, system: str, ms: int, count: int = 7) -> dict[str, Any]:
    batches = [(2000, 10 * ms)] * 20 + [(2000, ms)] * 10
    answers = {"answer": {"count": count, "checksum": 1}, "expected": {"count": 7, "checksum": 1}}
    sizes = {"workers_rss": 2**20, "workers_settled_rss": 2**19, "jvm_rss": 2**20, "machine": {}}
    return {"shape": shape, "sink": sink, "system": system, "batches": batches, **answers, **sizes}


def runs(folder: Path) -> Runs:
    return Runs(["small"], ("noop", "parquet"), SYSTEMS, 2, 30, folder / "into", folder)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str]] = []

    def run_one(self: Runs, shape: str, sink: str, system: str) -> dict[str, Any]:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append((sink, system))
        return trial(shape, sink, system, 100 if system == "rounds" else 250)

    monkeypatch.setattr(Runs, "_try", run_one)
    with pytest.raises(KeyboardInterrupt):
        runs(tmp_path).run(lambda said: None)
    first = list(ran)
    ran.clear()
    with pytest.raises(KeyboardInterrupt):
        runs(tmp_path).run(lambda said: None)
    assert first + ran == [(sink, system) for _, sink, _, system in runs(tmp_path).trials()][:6]
    ran.clear()
    found = runs(tmp_path).run(lambda said: None)
    assert len(ran) == 2
    assert len(found) == 8
    assert [t[3] for t in runs(tmp_path).trials()][:4] == ["rounds", "spark-default", "spark-default", "rounds"]
    assert {one.rows_per_s for one in found} == {20_000.0, 8_000.0}
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render(found))
    assert "2.50" in shown.get()


def test_no_ratio_with_a_wrong_answer() -> None:
    ours = read_trial(json.loads(json.dumps(trial("small", "noop", "rounds", 100))), 0)
    theirs = replace(ours, system="spark-default", median_ms=300)
    assert ratio([ours], [theirs]) == "3.00"
    assert not read_trial(trial("small", "noop", "rounds", 100, count=8), 0).is_right
    assert ratio([ours], [replace(theirs, is_right=False)]) == ""
