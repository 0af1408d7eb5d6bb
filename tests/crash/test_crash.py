"""A real driver, killed with SIGKILL at random moments, loses nothing and writes nothing twice.

Invariant: after any number of kills on one checkpoint, and a last life that ends, the sink's rows are DuckDB's.
CRASH_KILLS sets the number of kills (`make crash`), CRASH_SEED repeats a run's moments.
"""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.life import MOST_BATCHES, PATIENCE_S, Life, driving, go_by_jobs, live
from tests.crash.phases import Death, draw
from tests.crash.state import assert_no_orphans, units_ever
from tests.crash.streams import (
    LATE_RUNS,
    ROWS_PER_FILE,
    assert_same,
    expected,
    expected_late,
    write_streams,
    written,
    written_late,
)

ASKED = int(os.environ.get("CRASH_KILLS", "0"))
KILLS = dict.fromkeys(("stream", "rounds", "theta", "outer", "settled", "marked", "late", "delta"), ASKED or 2) | {
    "scaling": ASKED or 3
}
"""Without a word: a few; `test_steps` dies at every step of the rounds."""
RUNS = [run if run == "stream" else pytest.param(run, marks=pytest.mark.thorough) for run in KILLS]
MANY = 20
"""So many kills and more surely hit the short time between the sink's commit and the batch's."""


def killed(run: str, data: Path, work: Path, rng: random.Random) -> list[Death]:
    """The deaths of a runtime's KILLS, one after the other on the same checkpoint."""
    deaths: list[Death] = []
    for kill in draw(run, KILLS[run], rng):
        go_by_jobs(work, rng.random() < 0.5)
        death = live(partial(Life.die, kill=kill), work, driving(run, data, work))
        assert death, f"the driver ended after {len(deaths)} kills: write more files"
        deaths.append(death)
        print(death)
    return deaths


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 60 * max(KILLS.values()))
@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_lost_or_doubled_by_kills(run: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"CRASH_SEED={seed} repeats the moments of this run")  # shown when the test fails
    data = tmp_path / "data"
    kills, files = KILLS[run], KILLS[run] * MOST_BATCHES + 10
    write_streams(data, files, seed)

    deaths = killed(run, data, tmp_path, random.Random(seed))
    assert sum(death.replayed for death in deaths) >= kills // 2, "too few kills hit a batch: little was tested"
    if kills >= MANY:
        assert any(death.between_commits for death in deaths), "no kill came between the sink's commit and the batch's"

    said = live(Life.end, tmp_path, driving(run, data, tmp_path, files_per_trigger=1 if run in LATE_RUNS else 10))
    assert "query started" in said
    assert "Streaming TransformWithState" not in said, "a line of Spark's workers reaches the terminal"
    want = expected(data, run)
    assert len(want) > files * ROWS_PER_FILE or run in LATE_RUNS
    spark: Any = request.getfixturevalue("spark")  # late, so that the drivers have the machine to themselves
    assert_same(written(spark, tmp_path / "out"), want)
    if run in LATE_RUNS:
        assert_same(written_late(spark, tmp_path, run), expected_late(data))
    if run in ("rounds", "scaling", "settled", "late", "delta"):
        assert_no_orphans(tmp_path)
    if run == "scaling":
        assert units_ever(tmp_path) > 6, "units hardly came and went: little was tested"
