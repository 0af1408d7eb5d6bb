"""A trial's process: it reads what to do from one file and writes what it saw to another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watersmeet_lab.bench.memory import MemorySampler, Peak


class TrialError(RuntimeError):
    """A trial's process failed; the message ends with what it said last."""


def run_apart(module: str, trial: Mapping[str, Any], title: str, scratch: Path) -> tuple[dict[str, Any], Peak]:
    """What `python -m module SPEC RESULT` saw, and how much memory it took."""
    spec, result, log = scratch / "spec.json", scratch / "result.json", scratch / "log"
    spec.write_text(json.dumps(trial))
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", module, spec, result], stdout=out, stderr=out)
        with MemorySampler(process.pid) as peak:
            code = process.wait()
    if code:
        raise TrialError(f"{title}: the process ended with code {code}.\n{log.read_text(errors='replace')[-4000:]}")
    return json.loads(result.read_text()), peak
