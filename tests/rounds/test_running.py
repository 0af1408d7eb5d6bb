"""Rounds that run in the driver: the same results and the same state as by jobs, whatever is carried how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.rounds.lives import HERE, patch
from tests.rounds.mini_spark import plain
from tests.rounds.stage import Stage
from watersmeet import Stream
from watersmeet.plan.options import Options
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds import files, posting, running, worker
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.checkpoint import MAIL, StateFolder
from watersmeet.runtime.rounds.files import Orders, PostOffice, this_task
from watersmeet.runtime.rounds.running import Batches, Running
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse
from watersmeet.storage.manifest import BatchManifest, Identity

BATCHES, ROWS = 5, 20
QUERIES = {
    "one round": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 9 SECONDS",
    "two rounds": "SELECT DISTINCT r.k AS x, s.k % 3 AS y FROM r, s WHERE r.k = s.k WINDOW = 9 SECONDS",
}


def prepare(text: str) -> LocalRun:
    tables = {}
    for n, name in enumerate("rs"):
        times = pa.array([(1_700_000_000 + i) * 1_000_000 for i in range(BATCHES * ROWS)], pa.timestamp("us", "UTC"))
        keys = [(i * (7 + n)) % 11 for i in range(BATCHES * ROWS)]
        tables[name] = pa.table({"id": range(BATCHES * ROWS), "k": keys, "ts": times})
    sources = {name: source_of(name, Stream(table, time="ts")) for name, table in tables.items()}
    join = parse(text, {name: spec for name, (_, spec) in sources.items()})
    return LocalRun(join, {name: table for name, (table, _) in sources.items()}, Options(units=3))


def play(text: str, folder: Path, here: Collection[int]) -> tuple[list[Counter[Any]], dict[str, int], list[Account]]:
    """By batch the results; the rows in state in the end; what batches did."""
    run = prepare(text)
    stage: Any = Stage(run.plan, run, StateFolder.under(str(folder)))
    stage.folder.prepare()
    for module in (files, posting):
        module.TaskContext = stage  # type: ignore[attr-defined]
    state, out, accounts = BatchManifest.fresh(Identity.of(run.plan), "id"), [], []
    for number in range(BATCHES):
        stage.joins_here = number in here
        found: list[pa.RecordBatch] = []
        taken = {alias: wire.slice(number * ROWS, ROWS) for alias, wire in run.wires.items()}
        attempt = f"{number}-x"
        batch = running.Batch(stage.taken(taken, {}, attempt), state, attempt)
        deliver = lambda rows, found=found: found.extend(rows if isinstance(rows, Batches) else rows())  # noqa: E731
        accounts.append(Running(stage, batch, deliver).run())
        state.batch = number
        out.append(Counter(tuple(row) for row in plain(pa.Table.from_batches([b]) for b in found)))
    rows: dict[str, int] = {}
    for unit, alias, info in state.segments():
        rows[f"{unit} {alias}"] = rows.get(f"{unit} {alias}", 0) + info.rows
    return out, rows, accounts


@HERE
@pytest.mark.parametrize("most", [0, running.MOST_CARRIED], ids=["mail to files", "mail in memory"])
@pytest.mark.parametrize("query", QUERIES)
def test_where_rounds_run_changes_nothing(
    query: str, most: int, here: Collection[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    monkeypatch.setattr(running, "MOST_CARRIED", most)
    want = play(QUERIES[query], tmp_path / "jobs", ())
    found = play(QUERIES[query], tmp_path / "found", here)
    assert sum(want[0], Counter()), "nothing was joined"
    assert found[:2] == want[:2]
    assert [a.rounds for a in found[2]] == [a.rounds for a in want[2]]


def test_no_file_of_mail_is_written_for_a_small_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    for here in (range(9), ()):
        folder = tmp_path / str(len(here))
        play(QUERIES["two rounds"], folder, here)
        assert bool(StateFolder.under(str(folder)).names(MAIL)) == (not here)


@pytest.mark.parametrize("limit", ["MOST_STATE", "MOST_MAIL"])
def test_what_is_large_goes_by_jobs(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    monkeypatch.setattr(running, limit, 100)
    play(QUERIES["one round"], tmp_path, range(9))
    assert StateFolder.under(str(tmp_path)).names(MAIL)


def test_a_batch_with_many_results_sends_the_next_one_to_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    monkeypatch.setattr(running, "MOST_RESULTS", 1)
    play(QUERIES["one round"], tmp_path, range(9))
    assert {name.partition("-")[0] for name in StateFolder.under(str(tmp_path)).names(MAIL)} == {"1", "2", "3", "4"}


def test_mail_is_held_up_to_a_number_of_bytes(tmp_path: Path) -> None:
    folder = StateFolder.under(str(tmp_path))
    folder.prepare()
    table = pa.table({"x": range(100)})
    for holds, is_held in ((0, False), (1500, False), (10_000, True)):
        post = PostOffice(folder, "7", holds)
        for unit in range(2):
            post.post(worker.Message(unit, "a", table.slice(unit)), 0)
        post.close()
        assert (post.held is not None) == is_held
        folder.write(MAIL, post.name, post.held) if post.held is not None else None
        assert [t for _, t in files.open_parcels(folder, post.parcels)] == [table, table.slice(1)]


def test_the_driver_is_task_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_task() == (0, 0)
    assert Orders("1-x", 0).report_name(this_task()[0]) == "1-x.0.0"
