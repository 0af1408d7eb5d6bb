"""The command as users start it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import FAST_START

COMMAND = [sys.executable, "-m", "watersmeet"]
ENVIRONMENT = {**os.environ, "JDK_JAVA_OPTIONS": FAST_START, "PYTHONUNBUFFERED": "1"}


def watersmeet(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
