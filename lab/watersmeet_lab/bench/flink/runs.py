"""Settled runs of Flink beside those of `start()`: the same shapes and files, each trial a file of its own, as in `trials.settled`.

    flink-heap       state on the JVM's heap          ...-checkpoints    one each second, to a local folder
    flink-rocksdb    state in RocksDB

Flink has no micro-batches. What stands for one is the time in which its sources read as many rows: the moments at which these were read lie between two looks at its
figures, on a straight line.

Invariant: the answer of a run with files is compared by count and checksum; of one without, Flink tells the count alone, and that is compared.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from watersmeet_lab.bench import machine
from watersmeet_lab.bench.answer import Answer, Question, answer
from watersmeet_lab.bench.data import ALIASES, INTERARRIVAL_US, START_US
from watersmeet_lab.bench.flink.install import find_hadoop
from watersmeet_lab.bench.memory import MemorySampler, Peak
from watersmeet_lab.bench.trials.process import TrialError
from watersmeet_lab.bench.trials.settled import SHAPES, WINDOW_US, Runs
from watersmeet_lab.bench.trials.trial import Sink

MEMORY = "4g"
"""The JVM's heap, as Spark's driver has it in the benchmark."""
_REST = {"rest.address": "127.0.0.1", "metrics.fetcher.update-interval": "250"}
_ALIGNED = {"pipeline.watermark-alignment.allow-unaligned-source-splits": "true"}
"""A reader of files cannot pause one of them alone; it pauses as a whole."""
_ROCKSDB = {"state.backend.type": "rocksdb", "taskmanager.memory.managed.size": "1g"}
SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "flink-heap": {"state.backend.type": "hashmap"},
    "flink-heap-checkpoints": {"state.backend.type": "hashmap", "execution.checkpointing.interval": "1 s"},
    "flink-rocksdb": _ROCKSDB,
    "flink-rocksdb-checkpoints": {
        **_ROCKSDB,
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.incremental": "true",
    },
}


@dataclass(frozen=True)
class FlinkRuns(Runs):
    """Trials of `start()` and of Flink."""

    python: Path = field(default=Path(), kw_only=True)
    """That has Flink."""
    cores: int = field(default=2, kw_only=True)

    def _try(self, name: str, sink: Sink, system: str) -> dict[str, Any]:
        if system not in SYSTEMS:
            return super()._try(name, sink, system)
        shape, question = SHAPES[name], Question(SHAPES[name].ways, WINDOW_US)
        folder, _ = self.generate(shape)
        expected = answer(folder, question)
        with tempfile.TemporaryDirectory(prefix="watersmeet-flink-") as scratch:
            spec = self._describe(system, sink, question, folder, Path(scratch), shape.rows)
            seen, peak = self._run(spec, f"{system}, {name}", Path(scratch))
            found = {"count": seen["count"]} if sink == "noop" else asdict(read_answer(Path(spec["rows"]), question))
        return {
            "shape": name,
            "sink": sink,
            "system": system,
            "batches": cut_batches(seen["progress"], shape.rows * shape.ways, self.batches),
            "answer": found,
            "expected": {key: value for key, value in asdict(expected).items() if key in found},
            "workers_rss": 0,
            "workers_settled_rss": 0,
            "jvm_rss": peak.jvm_rss,
            "machine": machine.describe(),
        }

    def _describe(
        self, system: str, sink: Sink, question: Question, data: Path, scratch: Path, rows: int
    ) -> dict[str, Any]:
        port = _free_port()
        settings = {**_REST, **_ALIGNED, **SYSTEMS[system], "rest.port": f"{port}", "rest.bind-port": f"{port}"}
        settings["execution.checkpointing.dir"] = (scratch / "checkpoints").as_uri()
        return {
            "aliases": ALIASES[: question.ways],
            "data": str(data),
            "sink": sink,
            "window_us": question.window_us,
            "cores": self.cores,
            "port": port,
            "total": rows * self.batches * question.ways,
            # Before a chain of sources goes on, each reader has read its file: so far one of them must be let ahead of another.
            "drift_us": question.window_us + self.cores * rows * INTERARRIVAL_US,
            "rows": str(scratch / "rows"),
            "settings": settings,
        }

    def _run(self, spec: Mapping[str, Any], title: str, scratch: Path) -> tuple[dict[str, Any], Peak]:
        told, result, log = scratch / "spec.json", scratch / "result.json", scratch / "log"
        told.write_text(json.dumps(spec))
        classpath = os.pathsep.join(map(str, find_hadoop()))
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = own | {"HADOOP_CLASSPATH": classpath, "JVM_ARGS": f"-Xmx{MEMORY}"}
        job = Path(__file__).with_name("job.py")
        with log.open("wb") as out:
            process = subprocess.Popen([self.python, job, told, result], stdout=out, stderr=out, env=environment)
            with MemorySampler(process.pid) as peak:
                code = process.wait()
        if code:
            raise TrialError(f"{title}: the process ended with code {code}.\n{log.read_text(errors='replace')[-4000:]}")
        return json.loads(result.read_text()), peak


def cut_batches(progress: Sequence[tuple[float, int]], rows: int, batches: int) -> list[tuple[int, float]]:
    """(rows, milliseconds) of each time that so many rows more had been read.

    >>> cut_batches([(1.0, 0), (2.0, 100), (4.0, 200), (9.0, 200)], 50, 4)
    [(50, 500.0), (50, 500.0), (50, 1000.0), (50, 1000.0)]
    """
    before = [seen for seen in progress if seen[1] == 0][-1:] or [(0.0, 0)]
    first = {
        count: at for at, count in reversed(progress) if count > 0
    }  # the job is watched for a while after the last row
    seen = before + sorted((at, count) for count, at in first.items())
    times, counts = (np.array(column, float) for column in zip(*seen, strict=True))
    at = np.interp(np.arange(batches + 1) * rows, counts, times)
    return [(rows, round(1000 * float(span), 3)) for span in np.diff(at)]


def read_answer(folder: Path, question: Question) -> Answer:
    """Count and checksum of the files that Flink has written; those that it has not completed begin with a dot."""
    aliases = ALIASES[: question.ways]
    files = [str(path) for path in folder.rglob("*") if path.is_file() and path.name[0] not in "._"]
    if not files:
        return Answer(0, 0)
    summed = " + ".join(["key", *(f"{alias}_ts - {START_US}" for alias in aliases)])
    with duckdb.connect() as con:
        row = con.execute(f"SELECT count(*), sum({summed}) FROM read_parquet(?)", [files]).fetchone()
    assert row is not None
    return Answer(int(row[0]), int(row[1] or 0))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
