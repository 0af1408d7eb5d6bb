"""One run in a process of its own, with its own JVM: `python -m watersmeet_lab.bench.registered.trial SPEC RESULT`.

A JVM gives no memory back, and workers keep what they have compiled: in one process the figures of a run would be those of
all runs before it. A small run of the same system comes first (workers, imports, generated code).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from watersmeet.runtime.spark.session import local_session
from watersmeet_lab.bench.registered.systems import SYSTEMS, Load, Outcome
from watersmeet_lab.bench.registered.watch import Limits
from watersmeet_lab.bench.registered.workload import queries

WARM_QUERIES = {False: 10, True: 2}
"""Of the warm-up: registered, or apart."""
GRACE_S = 240
"""Beyond the time limit of a run: session, warm-up, registering, checking."""
_CONF = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}


@dataclass(frozen=True)
class Trial:
    """What to run, on what."""

    system: str
    count: int
    folder: str
    window_ms: int
    batches: int
    rows: int
    seed: int
    seconds: float
    memory_gb: float


def run(trial: Trial) -> Outcome:
    """The trial in a process of its own; a process that dies is an outcome, too."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-trial-") as scratch:
        spec, result, log = (Path(scratch) / name for name in ("spec.json", "result.json", "log"))
        spec.write_text(json.dumps(asdict(trial)))
        command = [sys.executable, "-m", "watersmeet_lab.bench.registered.trial", str(spec), str(result)]
        with log.open("wb") as out, _group(command, out) as process:
            try:
                code: int | str = process.wait(trial.seconds + GRACE_S + trial.count * 0.02)
            except subprocess.TimeoutExpired:
                code = "none: it had to be killed"
        if result.exists():
            return Outcome(**json.loads(result.read_text()))
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:200]
        why = f"failed: the process ended with code {code}: {last}"
        return Outcome(trial.system, trial.count, 0, 0, 0, 0, 0, 0, 0, 0, why, None)


@contextmanager
def _group(command: list[str], out: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that takes its JVM and workers along when it goes."""
    process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(spec: Path, result: Path) -> None:
    """Run what the file `spec` describes, and write the outcome to the file `result`."""
    trial = Trial(**json.loads(spec.read_text()))
    system, scratch, limits = SYSTEMS[trial.system], result.parent, Limits(trial.seconds, trial.memory_gb)
    texts = queries(max(trial.count, WARM_QUERIES[system.apart]), trial.window_ms, trial.seed)
    load = Load(
        Path(trial.folder), texts[: trial.count], scratch / "run", trial.window_ms, trial.batches, trial.rows, limits
    )
    warm = replace(load, texts=texts[: WARM_QUERIES[system.apart]], scratch=scratch / "warm")
    with local_session("bench-subscriptions", log=scratch / "spark.log", conf=_CONF) as spark:
        for each in (warm, load):
            each.scratch.mkdir()
            outcome = system.run(spark, each)
        result.with_suffix(".part").write_text(json.dumps(asdict(outcome)))
        result.with_suffix(".part").rename(result)
        os._exit(0)  # jobs that a limit has stopped are not waited for


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
