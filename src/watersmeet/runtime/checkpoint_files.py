"""How Spark writes its own logs of a query whose checkpoint lies on a local disk.

By default Spark writes every file of a checkpoint through Hadoop's FileContext. On a local disk that starts a `readlink`
process eight times per file, some thirty per micro-batch: a sixth of the time of a small batch. Hadoop's older interface
does the same work (a file beside, then a rename) without them. On other file systems FileContext is the safer one.

Spark's sources open their logs in the query's own thread, with the settings that the session has at that moment, so the
setting stands until they are there: some milliseconds.

Invariant: after `started` the session is as it was. Nothing is set if the checkpoint is not on a local disk or the user
has chosen a manager.
"""

from __future__ import annotations

import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.runtime.spark_versions import CHECKPOINTING

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_MANAGER = f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
LONGEST_WAIT = 5.0
"""Seconds; sources that take longer keep logs of the slower kind."""


def started(writer: DataStreamWriter, spark: SparkSession, *, is_local: bool) -> StreamingQuery:
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
    execution, deadline = query._jsq.streamingQuery(), time.monotonic() + LONGEST_WAIT
    while execution.sources().isEmpty() and query.isActive and time.monotonic() < deadline:
        time.sleep(0.002)
