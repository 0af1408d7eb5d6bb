"""`python -m tests.s3.bench [ROWS [TRIALS]]`: `start()` with state and checkpoint in a bucket, beside the same on the local disk.

The 2-way benchmark of `watersmeet bench spark`, 500,000 rows in a batch if ROWS is 1,000,000. In a bucket it runs twice: as `start()` has it, where Spark shuffles tuples to their units, and with tuples
that source tasks post through the bucket. All run in turns, answers are compared with DuckDB's, and the figures are ratios of steady rows/s. The store is a process of the same machine, and takes its share of the cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.bench import MODULE, measure, run_here
from watersmeet_lab.bench.answer import answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.spark import FILES, SEED, WINDOW_US
from watersmeet_lab.bench.trials.measure import Case
from watersmeet_lab.bench.trials.process import run_apart
from watersmeet_lab.bench.trials.trial import Trial
from watersmeet_lab.machines.store import BUCKET, Store, find_missing


def run_there(module: str, trial: Trial, scratch: Path) -> Mapping[str, Any]:
    away = replace(trial, checkpoints=f"s3a://{BUCKET}/{uuid.uuid4().hex}")
    return run_apart(module, asdict(away), module, scratch)[0]


def main(rows: int = 1_000_000, trials: int = 1) -> None:
    why = find_missing()
    if why is not None:
        raise SystemExit(why)
    case = Case("uniform", 2, rows, FILES, FILES // 4, WINDOW_US)
    with tempfile.TemporaryDirectory(prefix="watersmeet-s3-") as scratch, Store() as store:
        root = Path(scratch)
        expected = answer(generate(Dataset(case.rows, case.files, case.keys, SEED), case.ways, root), case.question)
        rates: dict[str, list[float]] = {"disk": [], "bucket": [], "bucket, posted": []}
        for _ in range(trials):
            found = {
                "disk": measure(case, root, expected, {}, run_here),
                "bucket": measure(case, root, expected, store.settings(), partial(run_there, MODULE)),
                "bucket, posted": measure(
                    case, root, expected, store.settings(), partial(run_there, "tests.s3.posting")
                ),
            }
            for name, one in found.items():
                rates[name].append(one.steady)
                print(f"{name} {one.steady:,.0f} rows/s (total {one.total:,.0f})", flush=True)
        for name in ("bucket", "bucket, posted"):
            ratio = statistics.median(a / b for a, b in zip(rates[name], rates["disk"], strict=True))
            print(f"{case.title}: {name} {ratio:.2f} of the local disk", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
