"""Every family of plans on a cluster whose hosts share one folder and nothing else; hosts die and others come.

Invariant: the sink's rows are DuckDB's, whoever died.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Hosts, missing
from tests.cluster.standalone import Standalone
from tests.crash.phases import committed, planned
from tests.crash.streams import assert_same, expected, write_streams, written

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
FILES, PATIENCE_S = 12, 900.0
RUNS = ("stream", "rounds", "rows", "theta", "scaling", "outer", "settled")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standalone]:
    """A master and two workers. The shared folder is not below /tmp, of which every host has its own."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    root = Path(tempfile.mkdtemp(prefix="watersmeet-cluster-", dir="/var/tmp"))
    try:
        with Hosts(["w1", "w2", "w3"], root / "hosts") as hosts:
            (root / "shared").mkdir()
            made = Standalone(hosts, root / "shared")
            for host in ("w1", "w2"):
                made.add_worker(host)
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


def start(cluster: Standalone, run: str, work: Path) -> tuple[subprocess.Popen[bytes], Path]:
    return cluster.start_driver(
        "tests.crash.driver", run, work / "data", work / "out", work / "checkpoint", 1 if run != "rows" else 3
    )


def end(driver: subprocess.Popen[bytes], log: Path) -> None:
    assert driver.wait(PATIENCE_S) == 0, log.read_text(errors="replace")[-4000:]


@pytest.fixture
def work(cluster: Standalone, request: pytest.FixtureRequest) -> Path:
    folder = cluster.shared / request.node.name.replace("/", "-")
    folder.mkdir()
    write_streams(folder / "data", FILES, 7)
    return folder


@pytest.mark.parametrize("run", RUNS)
def test_plans_answer_on_two_hosts(cluster: Standalone, work: Path, spark: Any, run: str) -> None:
    end(*start(cluster, run, work))
    assert_same(written(spark, work / "out"), expected(work / "data", run))


@pytest.mark.parametrize("run", ["stream", "rounds", "scaling", "settled"])
def test_a_host_dies_and_another_comes(cluster: Standalone, work: Path, spark: Any, run: str) -> None:
    driver, log = start(cluster, run, work)
    deadline = time.monotonic() + PATIENCE_S
    while (
        planned(work) <= max(committed(work), 1) and driver.poll() is None
    ):  # in the middle of a batch after the second
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert driver.poll() is None, log.read_text(errors="replace")[-4000:]
    time.sleep(random.Random(run).uniform(0, 0.5))
    dead, new = sorted(cluster.workers)[0], next(h for h in ("w1", "w2", "w3") if h not in cluster.workers)
    cluster.kill_worker(dead)
    cluster.add_worker(new)
    end(driver, log)
    assert_same(written(spark, work / "out"), expected(work / "data", run))
