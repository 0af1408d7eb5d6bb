"""Spark for the length of one command, its noise in a log that is kept only if something went wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from watersmeet.cli.failure import THEIRS, reported
from watersmeet.runtime.checkpoint_files import LOCAL_MANAGER, SETTING
from watersmeet.runtime.session import local_session

LOCAL_CHECKPOINTS = {SETTING: LOCAL_MANAGER}
"""The command keeps checkpoints in local folders only."""


@dataclass(frozen=True)
class Stage:
    """What a command works with."""

    spark: Any
    console: Console
    scratch: Path
    """A folder that is removed at the end."""


@contextmanager
def stage(name: str) -> Iterator[Stage]:
    """Start Spark, run the command inside, stop Spark; errors become messages and exit codes."""
    console = Console()
    log = Path(tempfile.mkstemp(prefix="watersmeet-spark-", suffix=".log")[1])
    keep = False
    try:
        with (
            tempfile.TemporaryDirectory(prefix="watersmeet-", ignore_cleanup_errors=True) as scratch,
            reported(log),
            console.status("starting Spark") as status,
            local_session(f"watersmeet {name}", log=log, conf=LOCAL_CHECKPOINTS) as spark,
        ):
            status.stop()
            yield Stage(spark, console, Path(scratch))
    except typer.Exit as end:
        keep = end.exit_code == THEIRS
        raise
    finally:
        if not keep:
            log.unlink(missing_ok=True)
