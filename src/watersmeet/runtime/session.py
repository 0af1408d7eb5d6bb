"""A local Spark session that suits watersmeet, and says nothing on the screen.

Workers run the driver's interpreter; as many shuffle partitions as cores; UTC; the settings that `spark_stream` would
choose; no web UI. The JVM inherits standard error when it is started, so that points at a log file just then: Spark's
warnings and its Python workers' chatter go there for good, and the terminal stays with the caller.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.java import java_problem
from watersmeet.runtime.spark_stream import SETTINGS
from watersmeet.runtime.worker_probe import trust_workers

_GB = 2**30
_STDERR = 2


@contextmanager
def local_session(
    app: str = "watersmeet", *, cores: int | None = None, log: Path | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Spark in this process; `log` gets what the JVM would print, `conf` wins over the defaults.

    A session that is active already is taken as it is, and outlives this one.
    """
    problem = java_problem()
    if problem:
        raise WatersmeetError(problem)
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    cores = cores or available_cores()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app)
    for name, value in {**defaults(cores), **(conf or {})}.items():
        builder = builder.config(name, value)
    with _stderr_to(log), _ignoring(signal.SIGTERM):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    trust_workers(spark)
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


def defaults(cores: int) -> dict[str, str]:
    """The settings of a local session.

    >>> defaults(4)["spark.sql.shuffle.partitions"]
    '4'
    """
    return {
        "spark.driver.memory": f"{driver_memory_gb()}g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **SETTINGS,
    }


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def driver_memory_gb() -> int:
    """A quarter of the machine, from 1 to 8 GB: the Python workers need room beside the JVM."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2
    return int(min(max(total / 4 // _GB, 1), 8))


@contextmanager
def _ignoring(number: signal.Signals) -> Iterator[None]:
    """A process started now ignores the signal: who ends the process group ends this process, which then stops Spark."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """While it lasts, file descriptor 2 is the log: a process started now keeps it so."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(_STDERR)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), _STDERR)
        yield
    finally:
        os.dup2(saved, _STDERR)
        os.close(saved)
