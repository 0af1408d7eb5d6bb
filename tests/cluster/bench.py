"""`python -m tests.cluster.bench [TRIALS]`: `start()` on a cluster of two hosts with one core each, beside `local[2]` of the same machine.

The 2-way benchmark of `watersmeet bench spark` with 100,000 and with 500,000 rows per micro-batch. There are more micro-batches than there, so that the JVMs of the hosts, of which
each compiles for itself, are settled in the second half. Both run in turns, answers are compared with DuckDB's, and the figure is the ratio of steady rows/s.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.cluster.standalone import ROOT, Standalone
from watersmeet_lab.bench.answer import Answer, answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.memory import Peak
from watersmeet_lab.bench.spark import SEED, WINDOW_US
from watersmeet_lab.bench.trials.measure import Case, Outcome, outcome
from watersmeet_lab.bench.trials.process import run_apart
from watersmeet_lab.bench.trials.trial import Trial
from watersmeet_lab.machines.hosts import Hosts, find_missing

MODULE = "watersmeet_lab.bench.trials.trial"
WARMUP = Dataset(rows=20_000, files=4, seed=2)
SHAPES = ((50_000, 240), (250_000, 40))
"""Rows of each stream in a micro-batch, and how many micro-batches."""
EXECUTORS = {"spark.executor.memory": "2g", "spark.executor.extraJavaOptions": ""}
Conf = Mapping[str, str]
Start = Callable[[Trial, Path], Mapping[str, Any]]


def run_on(cluster: Standalone, trial: Trial, scratch: Path) -> Mapping[str, Any]:
    """A trial whose driver is on the cluster's hub."""
    spec, result = scratch / "spec.json", scratch / "result.json"
    spec.write_text(json.dumps(asdict(trial)))
    driver, log = cluster.start_driver(MODULE, spec, result)
    if driver.wait() != 0:
        raise SystemExit(log.read_text(errors="replace")[-4000:])
    return json.loads(result.read_text())  # type: ignore[no-any-return]


def run_here(trial: Trial, scratch: Path) -> Mapping[str, Any]:
    return run_apart(MODULE, asdict(trial), "local[2]", scratch)[0]


def measure(case: Case, root: Path, expected: Answer, conf: Conf, start: Start) -> Outcome:
    """One trial; a wrong answer ends it all."""
    folder = generate(Dataset(case.rows, case.files, case.keys, SEED), case.ways, root)
    warmup = generate(WARMUP, case.ways, root)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        trial = Trial("rounds", case.question, case.files_per_trigger, str(folder), str(warmup), conf=conf)
        found = outcome(case, "rounds", 0, start(trial, Path(scratch)), expected, Peak())
    if not found.right:
        raise SystemExit(f"{case.title}: the answer is {found.answer}, and DuckDB's {found.expected}")
    return found


def main(trials: int = 1) -> None:
    why = find_missing()
    if why is not None:
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix="watersmeet-cluster-", dir="/var/tmp") as scratch:
        root = Path(scratch)
        with Hosts(["w1", "w2"], root / "hosts", [ROOT, Path(sys.prefix)]) as hosts:
            (root / "shared").mkdir()
            cluster = Standalone(hosts, root / "shared", memory="3g")
            for host in ("w1", "w2"):
                cluster.add_worker(host)
            for rows, batches in SHAPES:
                compare(cluster, Case("uniform", 2, rows * batches, batches, 1, WINDOW_US), root / "shared", trials)


def compare(cluster: Standalone, case: Case, root: Path, trials: int) -> None:
    """Print the rates of both, and their ratio."""
    folder = generate(Dataset(case.rows, case.files, case.keys, SEED), case.ways, root)
    expected = answer(folder, case.question)
    conf = cluster.settings() | EXECUTORS
    pairs = []
    for _ in range(trials):
        here = measure(case, root, expected, {}, run_here)
        there = measure(case, root, expected, conf, lambda trial, at: run_on(cluster, trial, at))
        pairs.append((here, there))
        print(
            f"local[2] {here.steady:,.0f} rows/s (total {here.total:,.0f}), two hosts {there.steady:,.0f} ({there.total:,.0f});"
            f" by quarters {_by_quarters(here)} and {_by_quarters(there)}",
            flush=True,
        )
    ratio = statistics.median(there.steady / here.steady for here, there in pairs)
    print(f"{case.title}: {ratio:.2f} of local[2]", flush=True)


def _by_quarters(found: Outcome) -> str:
    """How rows/s grow while JVMs compile."""
    size = len(found.batches) // 4
    quarters = [found.batches[n * size : (n + 1) * size] for n in range(4)]
    return ", ".join(f"{statistics.median(batch.rate for batch in quarter):,.0f}" for quarter in quarters)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
