"""`python -m tests.s3.bench [ROWS [TRIALS]]`: `start()` with state and checkpoint in a bucket, beside the same on the local disk.

The 2-way benchmark of `watersmeet bench spark`, 500,000 rows in a batch if ROWS is 1,000,000. Both run in turns, answers are compared with DuckDB's, and the figure is the
ratio of steady rows/s. The store is a process of the same machine, and takes its share of the cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.bench import measure, run_here
from tests.s3.store import BUCKET, Store, missing
from watersmeet_lab.bench.answer import answer
from watersmeet_lab.bench.data import Dataset, generate
from watersmeet_lab.bench.spark import FILES, SEED, WINDOW_US
from watersmeet_lab.bench.trials.measure import Case
from watersmeet_lab.bench.trials.trial import Trial


def run_there(checkpoints: str, trial: Trial, scratch: Path) -> Mapping[str, Any]:
    return run_here(replace(trial, checkpoints=checkpoints), scratch)


def main(rows: int = 1_000_000, trials: int = 1) -> None:
    why = missing()
    if why is not None:
        raise SystemExit(why)
    case = Case("uniform", 2, rows, FILES, FILES // 4, WINDOW_US)
    with tempfile.TemporaryDirectory(prefix="watersmeet-s3-") as scratch, Store() as store:
        root = Path(scratch)
        expected = answer(generate(Dataset(case.rows, case.files, case.keys, SEED), case.ways, root), case.question)
        ratios = []
        for _ in range(trials):
            away = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
            here = measure(case, root, expected, {}, run_here)
            there = measure(case, root, expected, store.settings(), partial(run_there, away))
            ratios.append(there.steady / here.steady)
            print(
                f"disk {here.steady:,.0f} rows/s (total {here.total:,.0f}), bucket {there.steady:,.0f} ({there.total:,.0f})",
                flush=True,
            )
        print(f"{case.title}: {statistics.median(ratios):.2f} of the local disk", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
