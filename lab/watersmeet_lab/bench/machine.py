"""Where and with what a benchmark ran: commit, versions, machine. Part of every raw result."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("watersmeet", "pyspark", "pyarrow", "numpy", "numba", "pandas", "duckdb")


def describe() -> dict[str, Any]:
    """Commit, versions, cores, processor, memory and load."""
    return {
        "commit": _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"),
        "versions": {
            "python": platform.python_version(),
            "java": _java(),
            **{name: version(name) for name in _PACKAGES},
        },
        "cores": len(os.sched_getaffinity(0)),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "load_average": os.getloadavg(),
    }


def _java() -> str | None:
    text = _output("java", "-version")
    return text.splitlines()[0] if text else None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
