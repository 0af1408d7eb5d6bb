"""Where a batch's results go.

    "console"            prints each batch
    "memory"             keeps all results in the driver, see `Handle.table`: for tests
    "noop"               computes everything and keeps nothing: for measurements
    a function           f(rows, batch_id), rows being a static DataFrame
    any other text       a folder of Parquet files, or of the format that `FileSink` is given

A function gets the same rows and batch id again after a crash between it and the commit: at least once. Files are written by Spark's own file sink:

    results/
        part-....parquet
        _spark_metadata/17        the files of batch 17: its being there is the commit

It skips batch numbers that its log already has, its readers see only files that the log names, and the log must hold
every batch from 0 on. So these are refused: a new checkpoint over old results (nothing would be written), a folder with files and no
log (they would vanish for readers), and a checkpoint that has written its batches elsewhere.

Invariant: `write` runs the frame exactly once: running it is the round. A `SinkFolder` only reads; both the command and `start()` ask it before the query runs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs as pafs
from pyspark.sql import DataFrame

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.rounds.checkpoint import absolute, arrow_address
from watersmeet.runtime.rounds.supersteps import run_all
from watersmeet.runtime.spark.versions import SINKS

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


def sink(given: Any, option: str = "sink") -> Sink:
    """The sink that a user means by an option."""
    if not isinstance(given, type) and hasattr(given, "write") and hasattr(given, "has"):
        return given
    if callable(given):
        return FunctionSink(given)
    named: dict[str, type] = {"console": ConsoleSink, "memory": MemorySink, "noop": NoopSink}
    if isinstance(given, str) and given in named:
        made: Sink = named[given]()
        return made
    if isinstance(given, (str, os.PathLike)) and os.fspath(given):
        return FileSink(absolute(folder_of(os.fspath(given), option)))
    raise OptionError(
        f"{option}={given!r}: give a folder for Parquet files, 'console', 'memory', 'noop' or a function (rows, batch_id)"
    )


def folder_of(text: str, option: str = "sink") -> str:
    """The text, if it is a folder; a format that stands like a file system in front of it is no folder.

    >>> folder_of("out/results"), folder_of("s3a://bucket/results"), folder_of("file:/tmp/results")
    ('out/results', 's3a://bucket/results', 'file:/tmp/results')
    """
    found = re.match(r"([A-Za-z][\w+.-]+):(//)?", text)
    if found is None or found[1].lower() in _FILE_SYSTEMS or (found[2] and found[1].lower() not in _OTHER_FORMATS):
        return text
    scheme, rest = found[1].lower(), text[found.end(1) + 1 :]
    if scheme == "parquet":
        raise OptionError(f"{option}={text!r}: a folder is written as Parquet anyway; give {rest!r}")
    if scheme in _OTHER_FORMATS:
        raise OptionError(
            f"{option}={text!r}: a folder is written as Parquet files; for {scheme} give a function, "
            f"{option}=lambda rows, batch_id: rows.write.format({scheme!r}).mode('append')..., which may see a batch twice after a crash"
        )
    raise OptionError(
        f"{option}={text!r}: {found[1]!r} is not a file system that is known; give a folder, {found[1]}://... if it is one, "
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
        print(f"batch {batch_id}: {rows.count():,} rows")
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


LOG = "_spark_metadata"
REMEDY = "go on with the checkpoint that wrote it, or begin anew with another folder as sink"


@dataclass(frozen=True)
class SinkFolder:
    """A folder of results, by its address."""

    address: str
    option: str = "sink"
    """What users give it by."""

    @cached_property
    def _opened(self) -> tuple[pafs.FileSystem, str] | None:
        """None: on a file system that Arrow does not know; then nothing can be said of it."""
        address = arrow_address(self.address)
        if address is None:
            return pafs.LocalFileSystem(), os.path.abspath(self.address.removeprefix("file:"))
        try:
            return pafs.FileSystem.from_uri(address)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return None

    @property
    def is_known(self) -> bool:
        return self._opened is not None

    def latest(self) -> int | None:
        """The latest batch of the log."""
        return max((int(n.removesuffix(".compact")) for n in self._log()), default=None)

    def mark(self, batch: int) -> str | None:
        """What tells the log's entry of a batch from those of others; None without one."""
        return next((self._digest(name) for name in (f"{batch}", f"{batch}.compact") if name in self._log()), None)

    def check_new(self, checkpoint: str) -> None:
        """Raise if a checkpoint that has run no batch may not begin to write here."""
        if self.latest() is not None:
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}: "
                f"Spark's file sink would skip the batches that it has; {REMEDY}"
            )
        files = [name for name in self._names() if not name.startswith(("_", "."))]
        if files and LOG not in self._names():
            raise CheckpointError(
                f"{self.address} holds {files[0]!r} and has no {LOG}: what was there would vanish for Spark's readers, which see "
                f"only what a streaming query has logged; give an empty folder as {self.option}="
            )

    def check_goes_on(self, batch: int, mark: str | None, checkpoint: str) -> None:
        """Raise if this is not where a checkpoint wrote its latest batch, which left this mark. The next one may be there, too."""
        latest = self.latest()
        if self.is_known and batch >= 0 and (latest is None or mark is None):
            raise CheckpointError(
                f"{self.address} is not where {checkpoint} has written its {batch + 1} batches, and Spark's file sink needs all of them "
                f"in one folder: give that folder as {self.option}=, a function, or start with a new checkpoint"
            )
        compacted = f"{batch + 1}.compact" in self._log() and f"{batch}" not in self._log()
        if latest is not None and (latest > batch + 1 or (self.mark(batch) != mark and not compacted)):
            raise CheckpointError(
                f"{self.address} holds results that were written with another checkpoint than {checkpoint}, up to batch {latest}; {REMEDY}"
            )

    def _log(self) -> list[str]:
        return [n for n in self._names(LOG) if n.removesuffix(".compact").isdigit()]

    def _names(self, *parts: str) -> list[str]:
        if self._opened is None:
            return []
        system, root = self._opened
        found = system.get_file_info(pafs.FileSelector("/".join((root, *parts)), allow_not_found=True))
        return sorted(f.base_name for f in found)

    def _digest(self, name: str) -> str:
        system, root = self._opened or (None, None)
        assert system is not None
        with system.open_input_stream(f"{root}/{LOG}/{name}", compression=None) as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
