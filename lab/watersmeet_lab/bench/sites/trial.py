"""One run of all sites of a workload under one plan: what crossed the lines, how long it took, how late results were, and whether they are right.

    feed files  -->  one application for each site  -->  folders of results, which are read until all are there, or none comes any more

Invariant: a trial whose rows are not DuckDB's is an error, never a figure.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.log import SinkLog
from watersmeet_lab.bench.sites.lines import Lines
from watersmeet_lab.bench.sites.site import Part
from watersmeet_lab.bench.sites.workload import Workload, feed

PATIENCE_S = 600.0
"""So long nothing new may come before a trial is given up."""


@dataclass
class Outcome:
    """What a trial came to."""

    plan: Any
    tuples: int
    """Of all streams."""
    seconds: float
    """From the first batch until the last result was there."""
    results: int
    sent: dict[str, int]
    """By site the bytes that it sent over its line."""
    letters: dict[str, list[int]]
    """By sender and receiver letters, rows and bytes, as sites count them."""
    latency_s: list[float] = field(default_factory=list)
    """Median, and 95 in 100, from a result's last tuple being there until the result is; empty where files did not come at a pace."""

    @property
    def total_sent(self) -> int:
        return sum(self.sent.values())

    @property
    def tuples_per_s(self) -> float:
        return self.tuples / self.seconds


class Trial:
    """The applications of all sites, in folders of their own."""

    def __init__(self, lines: Lines, workload: Workload, root: Path, name: str, **options: Any) -> None:
        self.lines, self.workload, self.root = lines, workload, root / name
        self.root.mkdir(parents=True)
        self._options, self._name = options, name
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def sites(self) -> Sequence[str]:
        return tuple(self.workload.site_of.values())

    @property
    def data(self) -> Path:
        return self.root / "data"

    def start(self, site: str) -> None:
        """The application of a site, from its checkpoint on."""
        address, conf = self.lines.exchange(site, self._name)
        of = self.workload
        part = Part(
            at=site, query=of.query, sites=of.site_of, schemas={n: of.schema(n) for n in of.names}, data=str(self.data),
            exchange=address, out=str(self.root / f"out-{site}"), checkpoint=str(self.root / f"checkpoint-{site}"),
            stop=str(self.root / "stop"), conf=conf, **self._options,
        )  # fmt: skip
        spec = self.root / f"{site}.json"
        spec.write_text(json.dumps(asdict(part)))
        command: list[str | Path] = [sys.executable, "-m", "watersmeet_lab.bench.sites.site", spec]
        command.append(self.root / f"{site}.batches")
        self._processes[site] = self.lines.start(site, command, self.log(site))

    def log(self, site: str) -> Path:
        return self.root / f"{site}.log"

    def kill(self, site: str) -> None:
        self.lines.kill(self._processes[site])

    def check_alive(self) -> None:
        for site, process in self._processes.items():
            if process.poll() is not None:
                said = self.log(site).read_text(errors="replace")[-4000:]
                raise RuntimeError(f"the application of {site} has ended with code {process.returncode}: {said}")

    def files(self) -> list[Path]:
        """The files of results that sites have committed."""
        return [path for site in self.sites for path in _list_committed(self.root / f"out-{site}")]

    def count(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.files())

    def rows(self) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for path in self.files():
            found.update(zip(*pq.read_table(path).to_pydict().values(), strict=True))
        return found

    def await_rows(self, wanted: int) -> None:
        """Wait until so many results are there."""
        count, since = -1, time.monotonic()
        while True:
            self.check_alive()
            found = self.count()
            if found >= wanted:
                return
            if found != count:
                count, since = found, time.monotonic()
            if time.monotonic() - since > PATIENCE_S:
                raise RuntimeError(f"{found} of {wanted} results are there, and none has come for {PATIENCE_S:.0f} s")
            time.sleep(0.5)

    def check(self, expected: Counter[tuple[Any, ...]]) -> None:
        """Raise if the rows of all sites together are not these."""
        found = self.rows()
        if found != expected:
            lost, doubled = (expected - found).total(), (found - expected).total()
            raise RuntimeError(f"{self._name}: {lost} rows are lost, and {doubled} are none or there twice")

    def batches(self, site: str) -> list[dict[str, Any]]:
        """What a site said of its batches."""
        log = self.root / f"{site}.batches"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def stop(self) -> None:
        """End all applications, and wait for them."""
        (self.root / "stop").touch()
        for process in self._processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                self.lines.kill(process)

    def close(self) -> None:
        for process in self._processes.values():
            self.lines.kill(process)


@contextmanager
def open_trial(lines: Lines, workload: Workload, root: Path, name: str, **options: Any) -> Iterator[Trial]:
    """A trial that leaves no processes."""
    trial = Trial(lines, workload, root, name, **options)
    try:
        yield trial
    finally:
        trial.close()


def run(
    lines: Lines, workload: Workload, root: Path, name: str, files_per_s: float | None = None, **options: Any
) -> Outcome:
    """All of a workload: files come at a pace when all sites are up, or are there before."""
    expected = workload.compute_expected()
    before = {site: lines.count_sent(site) for site in workload.site_of.values()}
    with open_trial(lines, workload, root, name, **options) as trial:
        came: dict[str, list[float]] = {}
        if files_per_s is None:
            feed(workload, trial.data, None)
        else:
            for stream in workload.names:
                (trial.data / stream).mkdir(parents=True)
        for site in trial.sites:
            trial.start(site)
        if files_per_s is not None:
            _await_all_up(trial)
            feeder = threading.Thread(target=lambda: came.update(feed(workload, trial.data, files_per_s)))
            feeder.start()
        trial.await_rows(expected.total())
        trial.check(expected)
        ended = max(path.stat().st_mtime for path in trial.files())
        sent = {site: lines.count_sent(site) - before[site] for site in trial.sites}
        trial.stop()
        batches = {site: trial.batches(site) for site in trial.sites}
        began = min(b["at"] - b["seconds"] for of in batches.values() for b in of if b["rows"] > 1)
        tuples = workload.streams * workload.tuples
        latency = _latency(trial, came) if came else []
        return Outcome(
            options.get("plan", "auto"), tuples, ended - began, expected.total(), sent, _letters(batches), latency
        )


def _await_all_up(trial: Trial) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(trial.batches(site) for site in trial.sites):
        trial.check_alive()
        if time.monotonic() > deadline:
            raise RuntimeError("sites do not begin")
        time.sleep(0.2)


def _letters(batches: dict[str, list[dict[str, Any]]]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for of in batches.values():
        for batch in of:
            for sender, to, *counts in batch["shipped"]:
                known = out.setdefault(f"{sender} {to}", [0, 0, 0])
                known[:] = [x + y for x, y in zip(known, counts, strict=True)]
    return out


def _latency(trial: Trial, came: dict[str, list[float]]) -> list[float]:
    """Of every result, from the last of its tuples being there until the result's file is."""
    of = trial.workload
    per_file = -(-of.tuples // of.files)
    late: list[np.ndarray] = []
    for path in trial.files():
        table = pq.read_table(path)
        if table.num_rows:
            there = [np.asarray(came[n])[table.column(f"{n}_id").to_numpy() // per_file] for n in of.names]
            late.append(path.stat().st_mtime - np.max(there, axis=0))
    return [float(x) for x in np.percentile(np.concatenate(late), (50, 95))] if late else []


def _list_committed(out: Path) -> list[Path]:
    """The files that the log of a folder of results names."""
    log = SinkLog(SinkFolder(str(out)))
    if not (out / "_spark_metadata").exists():
        return []
    lines = [line for name in log.needed_names() for line in log.lines(name)]
    return [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
