"""Peak memory of a trial's process tree, sampled from /proc by a thread of the parent.

Resident set sizes (statm), summed over all Python processes below the trial except the trial's own driver, and over its
JVM. Pages that forked workers share are counted once for each of them, so the sum is an upper bound.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PERIOD_S = 0.25


@dataclass
class Peak:
    """The highest sums seen, in bytes."""

    workers: int = 0
    jvm: int = 0


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
            sizes = {"python": 0, "java": 0}
            for pid in descendants(self._pid):
                name = _command(pid)
                for kind in sizes:
                    if name.startswith(kind):
                        sizes[kind] += _rss(pid)
            self._peak.workers = max(self._peak.workers, sizes["python"])
            self._peak.jvm = max(self._peak.jvm, sizes["java"])


def descendants(root: int) -> list[int]:
    """All processes below `root`, without it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it ended between two looks
        return b""


def _parent(pid: int) -> int:
    # "pid (name) state ppid ...": the name may hold blanks and parentheses
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _command(pid: int) -> str:
    return os.path.basename(_read(pid, "cmdline").split(b"\0")[0].decode(errors="replace"))


def _rss(pid: int) -> int:
    fields = _read(pid, "statm").split()
    return int(fields[1]) * _PAGE if fields else 0
