"""Spark for the length of one command, its noise in a log that is kept only if something went wrong; and Ctrl-C as a request to stop.

PySpark's own handler of Ctrl-C cancels the running jobs, which would make the query fail; here the first Ctrl-C sets an event and
the second one is Python's again.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from watersmeet.cli.failure import THEIRS, report_errors
from watersmeet.runtime.spark.java import find_version
from watersmeet.runtime.spark.session import LOCAL_MANAGER, SETTING, STEADY, jvm_settings, local_session

LOCAL_CHECKPOINTS = {SETTING: LOCAL_MANAGER}
"""The command keeps checkpoints in local folders only."""
ZONE = "spark.sql.session.timeZone"
NOISY = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers of what a query fails with, as JSON on the terminal: the command says it in words."""


@dataclass(frozen=True)
class LocalSpark:
    """What a command works with."""

    spark: Any
    console: Console
    scratch: Path
    """A folder that is removed at the end."""


@contextmanager
def local_spark(name: str, timezone: str = "UTC", jars: str | None = None) -> Iterator[LocalSpark]:
    """Start Spark, run the command inside, stop Spark; errors become messages and exit codes."""
    console = Console()
    log = Path(tempfile.mkstemp(prefix="watersmeet-spark-", suffix=".log")[1])
    silence()
    keep = False
    conf = {**LOCAL_CHECKPOINTS, **STEADY, **jvm_settings(find_version()), ZONE: timezone}
    conf |= {} if jars is None else {"spark.jars": jars}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="watersmeet-", ignore_cleanup_errors=True) as scratch,
            report_errors(log),
            console.status("starting Spark") as status,
            local_session(f"watersmeet {name}", log=log, conf=conf) as spark,
        ):
            status.stop()
            yield LocalSpark(spark, console, Path(scratch))
    except typer.Exit as end:
        keep = end.exit_code == THEIRS
        raise
    finally:
        if not keep:
            log.unlink(missing_ok=True)


def silence() -> None:
    """Keep PySpark from telling of errors before the command does."""
    from pyspark.logger import PySparkLogger

    for name in NOISY:
        PySparkLogger.getLogger(name).disabled = True


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """While it lasts, SIGINT and SIGTERM set the event."""
    asked = threading.Event()

    def ask(number: int, _: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
