"""Processes that serve something until a test or a benchmark is over: how they start, and when they are ready."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Start = Callable[[Sequence[str | Path], Path], "subprocess.Popen[bytes]"]
"""Starts a command whose output goes to a log."""


def start_here(command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
    """On this machine itself."""
    with log.open("ab") as out:
        return subprocess.Popen([str(word) for word in command], stdout=out, stderr=out)


def await_text(process: subprocess.Popen[bytes], log: Path, text: bytes, patience_s: float = 120.0) -> None:
    """Wait until a process says that it is ready."""
    deadline = time.monotonic() + patience_s
    while not (log.exists() and text in log.read_bytes()):
        said = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        if process.poll() is not None:
            raise RuntimeError(f"it has ended: {said}")
        if time.monotonic() > deadline:
            raise TimeoutError(said)
        time.sleep(0.1)
