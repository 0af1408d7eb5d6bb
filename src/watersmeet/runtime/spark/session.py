"""Spark sessions: a local one that suits watersmeet, and how a query on a local disk is started.

A local session's workers run the driver's interpreter; it has as many shuffle partitions as cores, UTC, the settings that `stream` would
choose, and no web UI. The JVM inherits standard error when it is started, so that points at a log file just then: Spark's
warnings and its Python workers' output go there for good, and the terminal stays with the caller.

By default Spark writes every file of a checkpoint through Hadoop's FileContext. On a local disk that starts a `readlink`
process eight times per file, some thirty per micro-batch: a sixth of the time of a small batch. Hadoop's older interface
does the same work (a file beside, then a rename) without them. On other file systems FileContext is the safer one.
Spark's sources open their logs in the query's own thread, with the settings that the session has at that moment, so `start_query` keeps the
setting until they are open: some milliseconds.

Invariant: after `start_query` the session is as it was. Nothing is set if the checkpoint is not on a local disk or the user has chosen a manager.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.java import java_problem
from watersmeet.runtime.spark.versions import CHECKPOINTING
from watersmeet.runtime.spark.workers import trust_workers
from watersmeet.runtime.stream.dataframe import SETTINGS

VFORK, NEWEST_VFORK = "VFORK", 24
"""How a JVM starts processes, and the newest Java that is known to know it."""
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
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    cores = cores or available_cores()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app)
    for name, value in {**defaults(cores), **(conf or {})}.items():
        builder = builder.config(name, value)
    with _stderr_to(log), _ignore(signal.SIGTERM):
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


STEADY = {
    "spark.sql.streaming.fileSource.log.cleanupDelay": "10s",
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For queries that run for long. A file source lists the folder of its log in every batch, and by default has there what came in ten minutes, at five batches a second 3,000 files. What the last 100 batches need stays whatever
this says. By Unix sockets rows reach Python workers without TCP's waits (from Spark 4.1 on; 4.0 does not know the setting)."""


def jvm_settings(java: int | None) -> dict[str, str]:
    """What the JVM of a query that runs for long is started with, by its version; what a user says of spark.driver.extraJavaOptions wins.

    Hadoop starts a `chmod` for each file that Spark writes into a checkpoint on a local disk, eight times in a small batch, and by VFORK a process starts in half the time. Later versions
    of Java are to lose that way, and one that does not know it starts no process at all.

    >>> jvm_settings(NEWEST_VFORK + 1), jvm_settings(None)
    ({}, {})
    """
    if java is None or java > NEWEST_VFORK or not sys.platform.startswith("linux"):
        return {}
    return {"spark.driver.defaultJavaOptions": f"-Djdk.lang.Process.launchMechanism={VFORK}"}


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
def _ignore(number: signal.Signals) -> Iterator[None]:
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


SETTING = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_MANAGER = f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
LONGEST_WAIT = 5.0
"""Seconds; sources that take longer keep logs of the slower kind."""


def start_query(writer: DataStreamWriter, spark: SparkSession, *, is_local: bool) -> StreamingQuery:
    """Start a query; `is_local` says whether its checkpoint is on a local disk."""
    if not is_local or spark.conf.get(SETTING, None) is not None:
        return writer.start()
    spark.conf.set(SETTING, LOCAL_MANAGER)
    try:
        query = writer.start()
        _await_sources(query)
    finally:
        spark.conf.unset(SETTING)
    return query


def _await_sources(query: StreamingQuery) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while query.status["message"].startswith("Initializing") and query.isActive and time.monotonic() < deadline:
        time.sleep(0.002)
