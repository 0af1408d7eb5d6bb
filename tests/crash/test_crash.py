"""A real driver, killed with SIGKILL at random moments, loses nothing and writes nothing twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crash.life import MOST_BATCHES, Death, Life, Starved, draw

T = TypeVar("T")

RESTARTS = 20
FILES = RESTARTS * MOST_BATCHES + 10
ROWS_PER_FILE, KEYS = 50, 80
START_US = 1_767_225_600_000_000  # 2026-01-01
SPACING_US = 20_000
LIFE_S = 300.0

EXPECTED = """
    SELECT a.id, b.id, c.id, a.k FROM a, b, c
    WHERE a.k = b.k AND b.k = c.k
      AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 2000000 AND epoch_us(c.ts) - epoch_us(b.ts) BETWEEN 0 AND 3000000
"""


def write_streams(folder: Path, seed: int) -> None:
    """Three streams, in disorder within their lateness of one second, some keys NULL, one file per micro-batch."""
    rng = np.random.default_rng(seed)
    count = FILES * ROWS_PER_FILE
    for name in "abc":
        ts = START_US + np.arange(count) * SPACING_US + rng.integers(0, 900_000, count)
        keys = pa.array(rng.integers(0, KEYS, count), mask=rng.random(count) < 0.02)
        table = pa.table({"id": np.arange(count), "k": keys, "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})
        (folder / name).mkdir(parents=True)
        for n in range(FILES):
            path = folder / name / f"part-{n:03d}.parquet"
            pq.write_table(table.slice(n * ROWS_PER_FILE, ROWS_PER_FILE), path)
            os.utime(path, (1_767_225_600 + n, 1_767_225_600 + n))


def expected(folder: Path) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as con:
        for name in "abc":
            con.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{name}/*.parquet'")
        return Counter(con.execute(EXPECTED).fetchall())


def killed(data: Path, work: Path, rng: random.Random) -> list[Death]:
    """The deaths of RESTARTS lives, one after the other on the same checkpoint."""
    deaths: list[Death] = []
    for kill in draw(RESTARTS, rng):
        death = live(data, work, 1, partial(Life.die, kill=kill, timeout_s=LIFE_S))
        assert death, f"the driver ended after {len(deaths)} kills: write more files"
        deaths.append(death)
        print(death)
    return deaths


def live(data: Path, work: Path, files_per_trigger: int, act: Callable[[Life], T]) -> T:
    """Start a driver and do something to it; again, a few times, if the machine did not let it start."""
    for _ in range(5):
        life = Life(data, work, files_per_trigger)
        try:
            return act(life)
        except Starved:
            print("a driver could not start: the machine is busy")
        finally:
            life.kill()
    raise Starved


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_over_twenty_kills(tmp_path: Path, spark: Any) -> None:
    seed = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"CRASH_SEED={seed} repeats the moments of this run")  # shown when the test fails
    data = tmp_path / "data"
    write_streams(data, seed)
    want = expected(data)

    deaths = killed(data, tmp_path, random.Random(seed))
    assert len(deaths) >= RESTARTS
    assert sum(death.replayed for death in deaths) >= RESTARTS // 2, "too few kills hit a batch: little was tested"
    assert any(death.between_commits for death in deaths), "no kill came between the sink's commit and the batch's"

    live(data, tmp_path, 10, partial(Life.end, timeout_s=LIFE_S))
    got = Counter(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert len(want) > 10_000
    assert got - want == Counter(), "rows that should not be there, or are there twice"
    assert want - got == Counter(), "rows lost"
