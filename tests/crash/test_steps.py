"""A driver dies at every step of the rounds protocol, and the next one does what is left of the batch, and only that.

Invariant: life k dies at moment k of a chain on one checkpoint; the next begins with the batch that was not committed,
repeats its steps if its manifest is missing and none of them otherwise. In the end the sink's rows are DuckDB's, and
the state folder holds what the last two manifests name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.crash import driver
from tests.crash.life import PATIENCE_S, Life, driving, go_by_jobs, live
from tests.crash.phases import committed, planned, sunk
from tests.crash.state import assert_no_orphans, has, state_folder
from tests.crash.stepping import BATCH, SAID, STEPS
from tests.crash.streams import assert_same, expected, write_streams, written

CHAINS = {
    "rounds": [
        ("after collect", 0),
        ("after commit", 1),
        ("after deliver", 3),
        ("before deliver", 3),  # the sink has the batch, and the replay dies as well
        ("after intend", 5),
    ],
    "rows": [
        ("after intend", 0),
        ("before deliver", 2),
        ("after deliver", 2),
        ("after commit", 4),
        ("after collect", 6),
    ],
}
BY_JOBS = ("rounds",)
"""Whose batches run by jobs; those of others run in the driver."""
IN_SHORT = [("after intend", 0), ("after deliver", 2)]
"""Two real deaths; `tests/rounds` plays one at every step, in process."""
LONG = pytest.mark.skipif(
    "CRASH_KILLS" not in os.environ, reason="`make crash` runs it; the two-round chain has all steps"
)


def steps(batch: int, done: bool) -> list[str]:
    """The moments of a whole batch."""
    inside = [] if done else [f"{side} {step} {batch}" for step in STEPS for side in ("before", "after")]
    return [f"before {BATCH} {batch}", *inside, f"after {BATCH} {batch}"]


def until(moment: str, batch: int, first: int, done: bool) -> list[str]:
    """All that a life says that begins with batch `first`, which may be done already, and dies at a moment."""
    said = [word for n in range(first, batch + 1) for word in steps(n, done and n == first)]
    return said[: said.index(f"{moment} {batch}") + 1]


def fall(run: str, data: Path, work: Path, dies: tuple[str, int]) -> None:
    """One life of a chain, and what it must have done and left."""
    moment, batch = dies
    first, had = committed(work) + 1, sunk(work)
    done = has(work, "manifests", first)
    said = live(Life.fall, work, driving(run, data, work, dies=dies))
    assert re.findall(f"^{SAID}(.*)$", said, re.MULTILINE) == until(moment, batch, first, done)
    assert (planned(work), committed(work)) == (batch, batch - 1)
    assert has(work, "intents", batch)
    assert has(work, "manifests", batch) == (moment in ("after commit", "after collect"))
    assert sunk(work) == max(had, batch - (moment in ("after intend", "before deliver")))
    is_on_its_way = run in BY_JOBS and moment not in ("after intend", "after collect")
    assert any((state_folder(work) / "mail").iterdir()) == is_on_its_way


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("run", "chain"),
    [
        pytest.param("rounds", CHAINS["rounds"], marks=LONG, id="rounds"),
        pytest.param("rows", CHAINS["rows"], marks=pytest.mark.thorough, id="rows"),
        pytest.param("rows", IN_SHORT, id="rows in short"),
    ],
)
def test_every_step_can_be_the_last(
    run: str, chain: list[tuple[str, int]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data, files = tmp_path / "data", chain[-1][1] + 6
    write_streams(data, files, seed=7)
    go_by_jobs(tmp_path, run in BY_JOBS)
    for dies in chain:
        fall(run, data, tmp_path, dies)
    live(Life.end, tmp_path, driving(run, data, tmp_path))
    assert (planned(tmp_path), committed(tmp_path)) == (files - 1, files - 1)
    assert_no_orphans(tmp_path)
    spark: Any = request.getfixturevalue("spark")
    assert_same(written(spark, tmp_path / "out"), expected(data, run))


@pytest.mark.spark
@pytest.mark.parametrize("run", [pytest.param("rounds", marks=pytest.mark.thorough), "rows", "delta"])
def test_a_replay_does_nothing_twice(run: str, tmp_path: Path, spark: Any) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    write_streams(data, 8, seed=8)
    query = driver.query(spark, run, str(data), "2")

    def replayed() -> list[int]:
        handle = query.start(sink=driver.sink_of(run, str(out)), checkpoint=str(checkpoint), trigger="availableNow")
        handle.await_termination()
        assert committed(tmp_path) == 3
        for batch in handle.history():
            assert batch.rounds == (2 if run == "rows" else 1)
            assert batch.results or batch.batch_id < 3, "the batch that is replayed is empty: nothing was tested"
        return [batch.batch_id for batch in handle.history()]

    def uncommit() -> None:
        for name in ("3", ".3.crc"):
            (checkpoint / "commits" / name).unlink()

    assert replayed() == [0, 1, 2, 3]
    state, sink = files(state_folder(tmp_path)), files(out)
    uncommit()
    assert replayed() == []
    assert (files(state_folder(tmp_path)), files(out)) == (state, sink), (
        "its manifest was there: nothing was to be done"
    )

    uncommit()
    (state_folder(tmp_path) / "manifests" / "3.json").unlink()
    assert replayed() == [3]
    assert files(out) == sink, "the sink had the batch"
    assert_no_orphans(tmp_path)
    assert_same(written(spark, out), expected(data, run))


def files(folder: Path) -> dict[Path, int]:
    """All files below a folder, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
