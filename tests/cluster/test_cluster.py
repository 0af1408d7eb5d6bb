"""Every family of plans on a cluster whose hosts share one folder and nothing else; hosts die and others come.

Invariant: the sink's rows are DuckDB's, whoever died.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cluster.families import FAMILIES, ON_DATAFRAMES
from tests.cluster.standalone import ROOT, Standalone
from tests.crash.phases import committed, planned
from tests.crash.streams import assert_same, write_streams, written
from tests.needs import require
from watersmeet_lab.machines.hosts import Hosts, find_missing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
PATIENCE_S = 600.0
KILLS = int(os.environ.get("CRASH_KILLS", "1"))
FILES = 10 + 3 * KILLS
WORKERS = ("w1", "w2", "w3")
SETTLED = 3
"""Batches after which hosts have been the same for a while: a session's executors come one by one."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standalone]:
    """A master and two workers. The shared folder is not below /tmp, of which every host has its own."""
    require(find_missing())
    root = Path(tempfile.mkdtemp(prefix="watersmeet-cluster-", dir="/var/tmp"))
    try:
        with Hosts(WORKERS, root / "hosts", [ROOT, Path(sys.prefix)]) as hosts:
            (root / "shared").mkdir()
            made = Standalone(hosts, root / "shared")
            for host in WORKERS[:2]:
                made.add_worker(host)
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def work(cluster: Standalone, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own; Spark takes a name with brackets for a pattern."""
    folder = cluster.shared / re.sub(r"\W", "-", request.node.name)
    folder.mkdir()
    write_streams(folder / "data", FILES, 7)
    return folder


def run(
    cluster: Standalone, runtime: str, work: Path, files: int, *families: str
) -> tuple[subprocess.Popen[bytes], Path]:
    return cluster.start_driver("tests.cluster.families", runtime, work / "data", work, files, *families)


def end(driver: subprocess.Popen[bytes], log: Path) -> None:
    assert driver.wait(PATIENCE_S) == 0, log.read_text(errors="replace")[-4000:]


def expected(data: Path, family: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as con:
        for name in "abc":
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM '{data}/{name}/*.parquet'")
        return Counter(con.execute(FAMILIES[family].expected).fetchall())


def check(spark: Any, work: Path, *families: str) -> None:
    for family in families:
        assert_same(written(spark, work / family / "out"), expected(work / "data", family))


def fetched(work: Path, family: str) -> list[int]:
    """What every batch had to fetch."""
    return [batch["fetched"] for batch in json.loads((work / family / "progress.json").read_text())]


def await_batch(driver: subprocess.Popen[bytes], log: Path, folder: Path, rng: random.Random) -> None:
    """Wait until a driver has committed a batch, and is in the middle of a later one."""
    deadline, before = time.monotonic() + PATIENCE_S, committed(folder)
    while planned(folder) <= committed(folder) or committed(folder) <= before:
        assert driver.poll() is None, log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.5))


@pytest.mark.parametrize("runtime", ["dataframe", "start"])
def test_every_family_answers_and_a_steady_state_fetches_nothing(
    cluster: Standalone, work: Path, spark: Any, runtime: str
) -> None:
    families = ON_DATAFRAMES if runtime == "dataframe" else tuple(FAMILIES)
    end(*run(cluster, runtime, work, 2 if runtime == "start" else 4, *families))
    check(spark, work, *families)
    if runtime == "start":
        for family in ("hash", "multiway", "band", "outer"):
            found = fetched(work, family)
            assert len(found) > SETTLED
            assert not any(found[SETTLED:]), f"{family} has fetched {found} bytes"


@pytest.mark.parametrize(("runtime", "family"), [("dataframe", "multiway"), ("start", "hash"), ("start", "outer")])
def test_hosts_die_and_others_come(cluster: Standalone, work: Path, spark: Any, runtime: str, family: str) -> None:
    rng = random.Random(family)
    driver, log = run(cluster, runtime, work, 1, family)
    for _ in range(KILLS):
        await_batch(driver, log, work / family, rng)
        new = next(h for h in WORKERS if h not in cluster.workers)
        cluster.kill_worker(rng.choice(sorted(cluster.workers)))
        cluster.add_worker(new)
    end(driver, log)
    check(spark, work, family)
    if runtime == "start":
        assert sum(fetched(work, family)) > 0, "units of a host that is gone fetch their segments"


@pytest.mark.parametrize(("runtime", "family"), [("dataframe", "outer"), ("start", "band")])
def test_the_driver_dies_and_starts_again(
    cluster: Standalone, work: Path, spark: Any, runtime: str, family: str
) -> None:
    rng = random.Random(family)
    for _ in range(KILLS):
        driver, log = run(cluster, runtime, work, 1, family)
        await_batch(driver, log, work / family, rng)
        cluster.hosts.kill(driver)
    end(*run(cluster, runtime, work, 1, family))
    check(spark, work, family)


def test_executors_follow_the_units(cluster: Standalone, work: Path, spark: Any) -> None:
    """Two units need one executor, so the other one is let go; four need both, and Spark is asked for them."""
    end(*cluster.start_driver("tests.cluster.allocation", work / "data", work))
    found = json.loads((work / "executors.json").read_text())
    assert any("all sides: 2 -> 4 units" in word for word in found["said"]), found
    counted = found["counted"]
    assert 1 in counted, found
    assert 2 in counted[counted.index(1) :], found
    assert_same(written(spark, work / "out"), expected(work / "data", "hash"))


@pytest.mark.parametrize("installed", ["none", "0.0.1"])
def test_a_host_without_the_drivers_watersmeet_is_named(cluster: Standalone, work: Path, installed: str) -> None:
    cover = work / "src"
    cover.mkdir()
    if installed != "none":
        shutil.copytree(ROOT / "src" / "watersmeet", cover / "watersmeet")
        (cover / f"watersmeet-{installed}.dist-info").mkdir()
        (cover / f"watersmeet-{installed}.dist-info" / "METADATA").write_text(
            f"Name: watersmeet\nVersion: {installed}\n"
        )
    bad = next(host for host in WORKERS if host not in cluster.workers)
    cluster.hosts.cover(bad, ROOT / "src", cover)
    cluster.add_worker(bad)
    try:
        driver, log = run(cluster, "start", work, 1, "hash")
        assert driver.wait(PATIENCE_S) != 0
    finally:
        cluster.kill_worker(bad)
        cluster.hosts.cover(bad, ROOT / "src", None)
    lines = log.read_text(errors="replace").splitlines()
    told = next((line for line in reversed(lines) if line.startswith("watersmeet.errors.WorkerError: ")), "")
    assert told, lines[-20:]
    for said in (
        f"on {cluster.hosts.addresses[bad]}",
        f"watersmeet {installed}" if installed != "none" else "no watersmeet",
    ):
        assert said in told
    assert "PYSPARK_PYTHON" in told
