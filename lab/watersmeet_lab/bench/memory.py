"""Peak memory of a trial's process tree, sampled from /proc by a thread of the parent.

Workers are the executors' Python processes (pyspark.daemon and its forks). Two sums over them: resident set sizes (RSS),
which count a page that forks share once for each of them, and proportional set sizes (PSS), which divide it among
them. The first is the bound that is promised, the second what the machine gives. Apart from them stand the process that
transformWithState keeps at the driver's side, and the JVM.
"""

from __future__ import annotations

import os
import statistics
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_PERIOD_S = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """A process and its memory in bytes."""

    command: str
    rss: int
    pss: int

    @property
    def program(self) -> str:
        """The first word of the command."""
        return self.command.partition(" ")[0]


@dataclass
class Peak:
    """The highest sums seen, in bytes, and the Python processes at the moment of the workers' highest RSS.

    Workers are at their highest in the first seconds, when they load libraries. So all sums of theirs are there as well.
    """

    workers_rss: int = 0
    workers_pss: int = 0
    driver_worker_rss: int = 0
    jvm_rss: int = 0
    processes: list[Process] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    """RSS of the workers in each sample in which there were any."""

    @property
    def workers_settled_rss(self) -> int:
        """The median of the last third of what was seen.

        >>> Peak(seen=[900, 700, 500, 400, 410, 420]).workers_settled_rss
        415
        """
        last = self.seen[len(self.seen) * 2 // 3 :]
        return int(statistics.median(last)) if last else 0

    def add(self, processes: list[Process]) -> None:
        """Take one sample of all processes."""
        python = [process for process in processes if "python" in process.program]
        workers = [process for process in python if "pyspark.daemon" in process.command]
        rss = sum(process.rss for process in workers)
        self.seen += [rss] if rss else []
        if rss > self.workers_rss:
            self.workers_rss, self.processes = rss, python
        self.workers_pss = max(self.workers_pss, sum(process.pss for process in workers))
        others = sum(process.rss for process in python if process not in workers)
        self.driver_worker_rss = max(self.driver_worker_rss, others)
        self.jvm_rss = max(self.jvm_rss, sum(process.rss for process in processes if process.program.endswith("java")))


class MemorySampler:
    """A context that watches the descendants of one process: `with MemorySampler(pid) as peak: ...`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = Peak()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self._peak

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._peak.add(sample(descendants(self._pid)))


def sample(pids: list[int]) -> list[Process]:
    """These processes, now."""
    return [_process(pid) for pid in pids]


def descendants(root: int) -> list[int]:
    """All processes below `root`, without it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(_parent(int(name)), []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _process(pid: int) -> Process:
    command = _read(pid, "cmdline").replace("\0", " ").strip()
    if "python" not in command.partition(" ")[0]:  # reading the JVM's page tables would disturb it
        resident = int((_read(pid, "statm").split() or "00")[1]) * _PAGE
        return Process(command[:200], resident, resident)
    sizes = {"Rss": 0, "Pss": 0}
    for line in _read(pid, "smaps_rollup").splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024
    return Process(command[:200], sizes["Rss"], sizes["Pss"])


def _parent(pid: int) -> int:
    # "pid (name) state ppid ...": the name may hold blanks and parentheses
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # it ended between two looks
        return ""
