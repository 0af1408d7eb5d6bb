"""One Spark application for each site, on hosts of their own: killed at random moments, and with a line that is cut; and bytes as the kernel counts them.

Invariant: the rows of all sites together are DuckDB's, whoever died and however long the line was cut.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.needs import require
from watersmeet_lab.bench.sites.lines import Carrier, HostLines, open_lines, why_not
from watersmeet_lab.bench.sites.trial import Trial, open_trial, run
from watersmeet_lab.bench.sites.workload import Workload, feed
from watersmeet_lab.machines.hosts import find_missing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("CRASH_KILLS", "2"))
CUT_S = float(os.environ.get("CUT_SECONDS", "60"))
SMALL = Workload(tuples=4_000, text_bytes=60, rarity=4, window_s=3.0, tuples_per_s=100.0, files=40)
PLAN = {"a": "b SM-S2", "b": "a SM-D2"}
PATIENCE_S = 300.0


@pytest.fixture
def root() -> Iterator[Path]:
    """Not below /tmp, of which every host has its own."""
    require(find_missing())
    with tempfile.TemporaryDirectory(prefix="watersmeet-wire-", dir="/var/tmp") as folder:
        yield Path(folder)


def require_carrier(carrier: Carrier) -> None:
    require(why_not(carrier, has_hosts=True))


def await_batch(trial: Trial, site: str, before: int) -> None:
    """Wait until a site has said something of a further batch."""
    deadline = time.monotonic() + PATIENCE_S
    while len(trial.batches(site)) <= before:
        trial.check_alive()
        assert time.monotonic() < deadline, trial.log(site).read_text(errors="replace")[-3000:]
        time.sleep(0.05)


@pytest.mark.parametrize("carrier", ["folder", "kafka"])
def test_applications_that_are_killed_lose_and_double_nothing(root: Path, carrier: Carrier) -> None:
    """Both applications run; every kill hits one of them, mostly in a batch, sometimes while it starts."""
    require_carrier(carrier)
    kills, rng = max(1, KILLS // 2), random.Random(carrier)
    workload = replace(SMALL, tuples=100 * (20 + 5 * kills), files=20 + 5 * kills)
    expected = workload.compute_expected()
    with (
        open_lines(root, tuple(workload.site_of.values()), carrier, None) as lines,
        open_trial(lines, workload, root, "killed", plan=PLAN, trigger="0 seconds") as trial,
    ):
        feed(workload, trial.data, None)
        for site in trial.sites:
            trial.start(site)
        for _ in range(kills):
            site = rng.choice(trial.sites)
            if rng.random() < 0.3:
                time.sleep(rng.uniform(0, 15))
            else:
                await_batch(trial, site, len(trial.batches(site)))
                time.sleep(rng.choice((0, rng.uniform(0, 0.3), rng.uniform(0, 2))))
            trial.check_alive()
            trial.kill(site)
            trial.start(site)
        trial.await_rows(expected.total())
        trial.check(expected)
        print(f"{carrier}: {kills} kills, {expected.total()} rows")


@pytest.mark.parametrize("carrier", ["s3", "kafka"])
def test_a_line_that_is_cut_makes_results_late_and_nothing_else(root: Path, carrier: Carrier) -> None:
    require_carrier(carrier)
    expected = SMALL.compute_expected()
    with (
        open_lines(root, tuple(SMALL.site_of.values()), carrier, None) as lines,
        open_trial(lines, SMALL, root, "cut", plan=PLAN, trigger="0 seconds") as trial,
    ):
        assert isinstance(lines, HostLines)
        feed(SMALL, trial.data, None)
        for site in trial.sites:
            trial.start(site)
        for site in trial.sites:
            await_batch(trial, site, 1)
        victim = trial.sites[0]
        lines.set_line(victim, is_up=False)
        time.sleep(CUT_S)
        lines.set_line(victim, is_up=True)
        trial.await_rows(expected.total())
        trial.check(expected)
        said = trial.log(victim).read_text(errors="replace")
        if CUT_S >= 60:
            assert f"site {victim} does not reach its exchange" in said
            assert f"site {victim} reaches its exchange" in said


def test_only_keys_and_matching_tuples_cross_the_line(root: Path) -> None:
    require_carrier("s3")
    workload = replace(SMALL, tuples=5_000, text_bytes=1000, rarity=100, window_s=10.0, tuples_per_s=1000.0, files=5)
    sent: dict[str, int] = {}
    plans: dict[str, Any] = {"simple": {"a": "b SP-D", "b": "a SP-S"}, "keys": {"a": "b SM-S1", "b": "a SM-S1"}}
    with open_lines(root, tuple(workload.site_of.values()), "s3", None) as lines:
        for name, plan in plans.items():
            sent[name] = run(lines, workload, root, name, plan=plan).total_sent
    assert sent["simple"] > workload.tuples * workload.text_bytes
    assert sent["keys"] < sent["simple"] / 5
