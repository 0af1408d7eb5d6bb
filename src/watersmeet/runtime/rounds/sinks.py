"""Where a batch's results go.

    "console"            prints each batch
    "memory"             keeps all results in the driver, see `Handle.table`: for tests
    "noop"               computes everything and keeps nothing: for measurements
    a function           f(rows, batch_id), rows being a static DataFrame
    any other text       a folder of Parquet files, or of the format that `FileSink` is given

Files are written by Spark's own file sink: a batch is visible when it is complete, through the folder's log, and a
batch that is there already is not written again. A function gets the same rows and batch id again after a crash between
it and the commit: at least once.

Invariant: `write` runs the frame exactly once: running it is the round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.errors import OptionError
from watersmeet.runtime.rounds.sink_folder import SinkFolder
from watersmeet.runtime.rounds.supersteps import run_all
from watersmeet.runtime.spark_versions import SINKS

SHOWN_ROWS = 20
_FILE_SYSTEMS = ("file", "hdfs", "webhdfs", "viewfs", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "dbfs", "oss", "cosn", "obs", "o3fs", "ofs")  # fmt: skip
_OTHER_FORMATS = ("delta", "iceberg", "hudi", "kafka", "json", "csv", "orc", "avro", "text", "jdbc", "console", "memory", "noop", "parquet")  # fmt: skip
_FORMATS = {
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
    "json": "org.apache.spark.sql.execution.datasources.json.JsonFileFormat",
    "csv": "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
}


class Sink(Protocol):
    """What takes results."""

    def has(self, batch_id: int, spark: Any) -> bool:
        """Whether the batch has been written already."""

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch."""


def sink(given: Any) -> Sink:
    """The sink that a user means."""
    if not isinstance(given, type) and hasattr(given, "write") and hasattr(given, "has"):
        return given
    if callable(given):
        return FunctionSink(given)
    named: dict[str, type] = {"console": ConsoleSink, "memory": MemorySink, "noop": NoopSink}
    if isinstance(given, str) and given in named:
        made: Sink = named[given]()
        return made
    if isinstance(given, (str, os.PathLike)) and os.fspath(given):
        return FileSink(folder_of(os.fspath(given)))
    raise OptionError(
        f"sink={given!r}: give a folder for Parquet files, 'console', 'memory', 'noop' or a function (rows, batch_id)"
    )


def folder_of(text: str) -> str:
    """The text, if it is a folder; a format that stands like a file system in front of it is no folder.

    >>> folder_of("out/results"), folder_of("s3a://bucket/results"), folder_of("file:/tmp/results")
    ('out/results', 's3a://bucket/results', 'file:/tmp/results')
    """
    found = re.match(r"([A-Za-z][\w+.-]+):(//)?", text)
    if found is None or found[1].lower() in _FILE_SYSTEMS or (found[2] and found[1].lower() not in _OTHER_FORMATS):
        return text
    scheme, rest = found[1].lower(), text[found.end(1) + 1 :]
    if scheme == "parquet":
        raise OptionError(f"sink={text!r}: a folder is written as Parquet anyway; give {rest!r}")
    if scheme in _OTHER_FORMATS:
        raise OptionError(
            f"sink={text!r}: a folder is written as Parquet files; for {scheme} give a function, "
            f"sink=lambda rows, batch_id: rows.write.format({scheme!r}).mode('append')..., which may see a batch twice after a crash"
        )
    raise OptionError(
        f"sink={text!r}: {found[1]!r} is not a file system that is known; give a folder, {found[1]}://... if it is one, "
        "'console', 'memory', 'noop' or a function (rows, batch_id)"
    )


class FileSink:
    """Files in a folder, one commit per batch."""

    def __init__(self, path: str, format: str = "parquet", by: Sequence[str] = ()) -> None:
        if format not in _FORMATS:
            raise OptionError(f"format {format!r}: the file sink writes {', '.join(_FORMATS)}")
        self.path, self.format, self.by = path, format, list(by)
        """`by`: columns whose values have sub-folders of their own."""

    def has(self, batch_id: int, spark: Any) -> bool:
        latest = self._log(spark).getLatestBatchId()
        return bool(latest.isDefined()) and batch_id <= int(latest.get())

    def write(self, rows: DataFrame, batch_id: int) -> None:
        spark = rows.sparkSession
        columns = _java(spark, "org.apache.spark.api.python.PythonUtils.toSeq")(self.by)
        no_options = _java(spark, "scala.collection.immutable.Map$.MODULE$").empty()
        written = _java(spark, f"{SINKS}.FileStreamSink")(
            spark._jsparkSession, self.path, _java(spark, _FORMATS[self.format])(), columns, no_options
        )
        written.addBatch(batch_id, rows._jdf)

    @property
    def folder(self) -> SinkFolder:
        return SinkFolder(self.path)

    def _log(self, spark: Any) -> Any:
        none = _java(spark, "scala.None$.MODULE$")
        folder = f"{self.path.rstrip('/')}/_spark_metadata"
        return _java(spark, f"{SINKS}.FileStreamSinkLog")(1, spark._jsparkSession, folder, none)


def mark_of(sink: Sink, batch_id: int) -> str | None:
    """What a batch has left in a folder of results; None where the sink is none."""
    return sink.folder.mark(batch_id) if isinstance(sink, FileSink) else None


def _java(spark: Any, path: str) -> Any:
    """A class, or a member of one, of Spark's JVM."""
    return reduce(getattr, path.split("."), spark.sparkContext._jvm)


class FunctionSink:
    """A user's function, called with rows that are computed already, and kept until it returns."""

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self.function = function

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        held = rows.localCheckpoint(eager=True)
        try:
            self.function(held, batch_id)
        finally:
            held._jdf.logicalPlan().rdd().unpersist(True)


class ConsoleSink(FunctionSink):
    """The first rows of each batch, and how many there are."""

    def __init__(self) -> None:
        super().__init__(self._show)

    @staticmethod
    def _show(rows: DataFrame, batch_id: int) -> None:
        print(f"batch {batch_id}: {rows.count():,} results")
        rows.show(SHOWN_ROWS, truncate=False)


class MemorySink:
    """All results in the driver; they are gone when it ends."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def has(self, batch_id: int, spark: Any) -> bool:
        return batch_id in self.batches

    def write(self, rows: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = rows.toArrow()

    def table(self) -> pa.Table | None:
        """All results so far; None before the first batch."""
        return pa.concat_tables([self.batches[n] for n in sorted(self.batches)]) if self.batches else None


class NoopSink:
    """Every column of every row is computed and thrown away."""

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        run_all(rows)
