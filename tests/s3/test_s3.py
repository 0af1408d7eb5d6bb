"""State and checkpoints in a bucket: every kind of plan, killed and started again.

Invariant: the sink's rows are DuckDB's, however often the driver died; a bucket that cannot be used is an error of `start()` that names the remedy.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cluster.families import FAMILIES
from tests.cluster.test_cluster import expected
from tests.crash.phases import latest
from tests.crash.streams import assert_same, write_streams, written
from tests.needs import require
from watersmeet_lab.machines.store import BUCKET, Store, find_missing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
PATIENCE_S = 600.0
KILLS = int(os.environ.get("CRASH_KILLS", "4"))
FILES = 8 + 2 * KILLS


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    require(find_missing())
    with Store() as running:
        yield running


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_streams(tmp_path / "data", FILES, 7)
    return tmp_path


def run(
    settings: dict[str, str], work: Path, files: int, checkpoints: str, *families: str, **variables: str
) -> tuple[subprocess.Popen[bytes], Path]:
    """A driver whose sinks are below `work`, in a session of its own, and its log."""
    log = work / f"driver-{time.monotonic_ns()}.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "tests.cluster.families", "start", str(work / "data"), str(work), str(files)]
    with log.open("wb") as out:
        driver = subprocess.Popen(
            [*command, *families],
            stdout=out,
            stderr=out,
            env={**kept, "CRASH_SPARK": json.dumps(settings), "CHECKPOINTS": checkpoints, **variables},
            start_new_session=True,
        )
    return driver, log


def kill(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def end(driver: subprocess.Popen[bytes], log: Path) -> None:
    try:
        assert driver.wait(PATIENCE_S) == 0, log.read_text(errors="replace")[-4000:]
    finally:
        kill(driver)


def check(spark: Any, work: Path, *families: str) -> None:
    for family in families:
        assert_same(written(spark, work / family / "out"), expected(work / "data", family))


def test_every_family_keeps_its_state_in_a_bucket(store: Store, work: Path, spark: Any) -> None:
    end(*run(store.settings(), work, 3, f"s3a://{BUCKET}/all", *FAMILIES))
    check(spark, work, *FAMILIES)


@pytest.mark.parametrize("family", ["multiway", "band", "late_payload"])
def test_a_killed_driver_goes_on_from_the_bucket(store: Store, work: Path, spark: Any, family: str) -> None:
    chance, checkpoints = random.Random(family), f"s3a://{BUCKET}/killed"
    for _ in range(KILLS):
        driver, log = run(store.settings(), work, 1, checkpoints, family)
        sunk, deadline = latest(work / family / "out" / "_spark_metadata"), time.monotonic() + PATIENCE_S
        while latest(work / family / "out" / "_spark_metadata") <= sunk and driver.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(chance.choice((0, chance.uniform(0, 0.1), chance.uniform(0, 1))))
        kill(driver)
        assert "Error" not in (said := log.read_text(errors="replace")), said[-4000:]
    end(*run(store.settings(), work, 1, checkpoints, family))
    check(spark, work, family)


def test_a_delta_table_in_a_bucket_has_every_row_once_however_often_the_driver_dies(store: Store, work: Path) -> None:
    tables, log = f"s3a://{BUCKET}/tables", work / "multiway" / "progress.json"
    for _ in range(KILLS):
        driver, said = run(store.settings(), work, 1, f"s3a://{BUCKET}/delta", "multiway", TABLES=tables)
        entries, deadline = len(store.names("tables/multiway/_delta_log/")), time.monotonic() + PATIENCE_S
        while len(store.names("tables/multiway/_delta_log/")) <= entries and driver.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        kill(driver)
        assert "Error" not in (text := said.read_text(errors="replace")), text[-4000:]
    assert not log.exists(), "a driver ended before it was killed: write more files"
    end(*run(store.settings(), work, 1, f"s3a://{BUCKET}/delta", "multiway", TABLES=tables))
    rows = DeltaTable(f"{tables}/multiway", storage_options=store.options()).to_pyarrow_table()
    assert_same(Counter(zip(*rows.to_pydict().values(), strict=True)), expected(work / "data", "multiway"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "NoSuchBucket"),
        ({"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9"}, "cannot be written"),
        ({"spark.hadoop.fs.s3a.access.key": "", "spark.hadoop.fs.s3a.secret.key": ""}, "cannot be written"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_named_within_a_minute(
    store: Store, work: Path, wrong: dict[str, str], said: str
) -> None:
    bucket = BUCKET if wrong else "nowhere"
    began = time.monotonic()
    driver, log = run(store.settings() | wrong, work, 1, f"s3a://{bucket}/wrong", "hash")
    try:
        assert driver.wait(PATIENCE_S) != 0
    finally:
        kill(driver)
    begin = f"watersmeet.errors.OptionError: checkpoint='s3a://{bucket}/wrong/hash' cannot be written ("
    lines = log.read_text(errors="replace").splitlines()
    told = next((line for line in reversed(lines) if line.startswith(begin)), "")
    assert told, lines[-20:]
    assert said in told
    assert "fs.s3a.access.key" in told
    assert time.monotonic() - began < 60
