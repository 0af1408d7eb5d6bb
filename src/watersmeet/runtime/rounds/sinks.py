"""Where a batch's results go.

    "console"            prints each batch
    "memory"             keeps all results in the driver, see `Handle.table`: for tests
    "noop"               computes everything and keeps nothing: for measurements
    a function           f(rows, batch_id), rows being a static DataFrame
    "delta:PATH"         a Delta table, exactly once (`results.delta`)
    "iceberg:CATALOG.NAMESPACE.TABLE"    an Iceberg table, exactly once (`results.iceberg`)
    "kafka:TOPIC@HOST:PORT"    a topic, at least once, with keys that a replay repeats (`runtime.kafka`)
    any other text       a folder of Parquet files, or of the format that `FileSink` is given

A function gets the same rows and batch id again after a crash between it and the commit: at least once. A folder gets files that
workers have written; what its log names counts (`results.log`), and it knows which batches it has.

Invariant: `write` runs the frame exactly once: running it is the round.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyarrow import fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError
from watersmeet.runtime.kafka import address, topics
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet.runtime.rounds.checkpoint import SparkLogs, absolute
from watersmeet.runtime.rounds.results import delta, iceberg
from watersmeet.runtime.rounds.results.columns import line_files, part_files
from watersmeet.runtime.rounds.results.delta import DeltaFolder
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.log import INTERVAL, INTERVAL_SETTING, SinkLog
from watersmeet.runtime.rounds.results.parts import ByColumns, Part, PartFiles, write_empty
from watersmeet.runtime.rounds.results.table import TableFolder
from watersmeet.runtime.spark.jobs import compute, hold

SHOWN_ROWS = 20
_FILE_SYSTEMS = ("file", "hdfs", "webhdfs", "viewfs", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "dbfs", "oss", "cosn", "obs", "o3fs", "ofs")  # fmt: skip
_OTHER_FORMATS = ("delta", "iceberg", "hudi", "kafka", "json", "csv", "orc", "avro", "text", "jdbc", "console", "memory", "noop", "parquet")  # fmt: skip
FORMATS = ("parquet", "json")


@runtime_checkable
class TakesBatches(Protocol):
    """A sink that takes results of a batch that was joined in this process."""

    def take_batches(self, batches: Iterable[pa.RecordBatch], batch_id: int) -> None:
        """Write a batch: rows of the SELECT, by position, or the names of files that have them (`results.parts`)."""


class Sink(Protocol):
    """What takes results."""

    def has(self, batch_id: int, spark: Any) -> bool:
        """Whether the batch has been written already."""

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch."""


def sink(given: Any, option: str = "sink", partition_by: Sequence[str] = ()) -> Sink:
    """The sink that a user means by an option."""
    made = _sink(given, option)
    if partition_by:
        if not isinstance(made, FileSink) or made is given:
            raise OptionError(
                f"partition_by={list(partition_by)} is for a folder or a table, and {option} is {given!r}"
            )
        made.by = tuple(partition_by)
    return made


def columns_given(partition_by: Any) -> tuple[str, ...]:
    """The columns that a user wants folders for.

    >>> columns_given("day"), columns_given(["day", "country"]), columns_given(None)
    (('day',), ('day', 'country'), ())
    """
    columns = (partition_by,) if isinstance(partition_by, str) else () if partition_by is None else partition_by
    if not isinstance(columns, Sequence) or not all(isinstance(name, str) and name for name in columns):
        raise OptionError(f"partition_by={partition_by!r}: give names of columns of the result, as ['day']")
    return tuple(columns)


def _sink(given: Any, option: str) -> Sink:
    if not isinstance(given, type) and hasattr(given, "write") and hasattr(given, "has"):
        return given
    if callable(given):
        return FunctionSink(given)
    named: dict[str, type] = {"console": ConsoleSink, "memory": MemorySink, "noop": NoopSink}
    if isinstance(given, str) and given in named:
        made: Sink = named[given]()
        return made
    if isinstance(given, str) and given.startswith(f"{delta.NAME}:"):
        return DeltaSink(_table_path(given, option), option=option)
    if isinstance(given, str) and given.startswith(f"{iceberg.NAME}:"):
        return IcebergSink(iceberg.name_of(given, option))
    if isinstance(given, str) and given.startswith(f"{address.NAME}:"):
        return KafkaSink(address.topic_of(given, option), f"{option}={given}")
    if isinstance(given, (str, os.PathLike)) and os.fspath(given):
        return FileSink(absolute(folder_of(os.fspath(given), option)), option=option)
    raise OptionError(
        f"{option}={given!r}: give a folder for Parquet files, 'delta:PATH', 'iceberg:CATALOG.NAMESPACE.TABLE', 'kafka:TOPIC@HOST:PORT', 'console', 'memory', 'noop' or a function (rows, batch_id)"
    )


def _table_path(given: str, option: str) -> str:
    """Where the table of `delta:PATH` is.

    >>> _table_path("delta:/lake/paid", "sink"), _table_path("delta:s3a://bucket/paid", "sink")
    ('/lake/paid', 's3a://bucket/paid')
    """
    path = given.partition(":")[2]
    if not path or path.startswith("//"):
        raise OptionError(f"{option}={given!r}: write delta:PATH, as in 'delta:/lake/paid' or 'delta:s3://bucket/paid'")
    if option != "sink":
        raise OptionError(f"{option}={given!r}: give a folder, 'memory' or a function; a table is for results")
    return absolute(folder_of(path, option))


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

    def __init__(self, path: str, format: str = "parquet", by: Sequence[str] = (), option: str = "sink") -> None:
        if format not in FORMATS:
            raise OptionError(f"format {format!r}: a folder is written as {' or '.join(FORMATS)}")
        self.path, self.format, self.by, self.option = path, format, tuple(by), option
        """`by`: columns whose values have sub-folders of their own."""
        self._files: PartFiles | None = None
        self._written: int | None = None
        """The latest batch, once this process has written one."""
        self._mark: str | None = None
        """What it has left in the folder's log, if it told."""
        self.interval = INTERVAL
        """After so many batches the log is compacted."""

    @property
    def folder(self) -> SinkFolder:
        return SinkFolder(self.path, self.option)

    def has(self, batch_id: int, spark: Any) -> bool:
        latest = self.folder.latest() if self._written is None else self._written
        return latest is not None and batch_id <= latest

    def mark(self, batch_id: int) -> str | None:
        """What a batch has left; None if nothing."""
        return self._mark if self._written == batch_id and self._mark is not None else self.folder.mark(batch_id)

    def files(self, schema: StructType) -> PartFiles:
        """How rows of these columns become files; raises if they cannot."""
        self._files = part_files(self.folder, schema, self.by) if self.format == "parquet" else line_files(self.folder)
        return self._files

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Commit the files that the rows name."""
        self._put(batch_id, [Part(*row) for row in rows.collect()])

    def take_batches(self, batches: Iterable[pa.RecordBatch], batch_id: int) -> None:
        """Commit the files that were written in this process."""
        self._put(batch_id, [Part(*row.values()) for batch in batches for row in batch.to_pylist()])

    def _put(self, batch_id: int, parts: Sequence[Part]) -> None:
        self._written = self._mark = None  # should it fail, the folder is asked
        self._mark = self.commit(batch_id, parts, self.interval)
        self._written = batch_id

    def commit(self, batch_id: int, parts: Sequence[Part], interval: int = INTERVAL) -> str | None:
        """Let readers see the files of a batch; before the first rows there is a file without any, which tells them the columns."""
        if batch_id == 0 and not parts and self._files is not None and not (self._files.is_text or self._files.folders):
            parts = [write_empty(self._files, f"part-{batch_id}-{uuid.uuid4().hex[:12]}-0-0")]
        return SinkLog(self.folder, interval).put(batch_id, parts)

    def sweep(self, batch_id: int) -> None:
        """Delete files that failed attempts of a committed batch have left."""
        folder, named = self.folder, SinkLog(self.folder).list_files(batch_id)
        selector = pafs.FileSelector(folder.path(), recursive=bool(self._files and self._files.folders))
        for found in folder.system.get_file_info(selector):
            if found.base_name.startswith(f"part-{batch_id}-") and found.base_name not in named:
                folder.system.delete_file(found.path)


class TableSink(FileSink):
    """Files of a table, one commit per batch."""

    def __init__(self, table: TableFolder) -> None:
        super().__init__(table.address, option=table.option)
        self._table, self._schema = table, StructType([])

    @property
    def folder(self) -> TableFolder:
        return self._table

    def attach(self, logs: SparkLogs) -> None:
        self._table = replace(self._table, logs=logs)

    def commit(self, batch_id: int, parts: Sequence[Part], interval: int = INTERVAL) -> str | None:
        self.folder.put(batch_id, self._schema, self.by, parts)
        return None

    def sweep(self, batch_id: int) -> None:
        """Others write to the table's folder, too: what no version names is deleted by the table's own means."""

    def _keep(self, made: PartFiles, schema: StructType) -> PartFiles:
        self.by, self._schema = made.folders.columns if isinstance(made.folders, ByColumns) else (), schema
        self._files = made
        return made


class DeltaSink(TableSink):
    """A Delta table."""

    def __init__(self, path: str, option: str = "sink") -> None:
        super().__init__(DeltaFolder(path, option))

    def files(self, schema: StructType) -> PartFiles:
        by = self.folder.partition_columns(self.by)
        made = self._keep(part_files(SinkFolder(self.path, self.option), schema, by), schema)
        self.folder.check(schema, self.by)
        return self._keep(replace(made, describes=True), schema)


class IcebergSink(TableSink):
    """An Iceberg table."""

    def __init__(self, name: iceberg.TableName) -> None:
        super().__init__(iceberg.IcebergFolder("", name.option, None, name))
        self.name = name

    def files(self, schema: StructType) -> PartFiles:
        columns = part_files(SinkFolder("/", self.option), schema, ()).columns
        self._keep(part_files(SinkFolder("/", self.option), schema, self.by), schema)
        folder = iceberg.open_folder(self.name, schema, columns, self.by)
        by = folder.partition_columns(self.by)
        iceberg.require_columns(self.name.load(), columns, self.name.shown)
        self._table, self.path = replace(folder, logs=self.folder.logs), folder.address
        return self._keep(part_files(SinkFolder(self.path, self.option), schema, by, keeps=True), schema)


def attach(sinks: Iterable[Sink | None], logs: SparkLogs, spark: SparkSession) -> None:
    """Tell sinks that number batches by the query's id where to find it: Spark makes it when the query starts; and folders how often their logs are compacted."""
    interval = spark.conf.get(INTERVAL_SETTING, None)
    for to in sinks:
        if isinstance(to, FileSink) and interval is not None:
            to.interval = int(interval)
        if isinstance(to, TableSink):
            to.attach(logs)
        elif isinstance(to, KafkaSink):
            to.attach(logs, spark)


def check_names(to: Sink, names: Sequence[str]) -> None:
    """Raise if a record could not tell two columns apart; files have a check of their own."""
    folded = [name.casefold() for name in names]
    twice = next((name for name in names if folded.count(name.casefold()) > 1), None)
    if isinstance(to, KafkaSink) and twice is not None:
        raise OptionError(f"{to.shown}: the result has column {twice!r} twice; rename one with AS")


def mark_of(sink: Sink, batch_id: int) -> str | None:
    """What a batch has left in a folder of results; None where the sink is none."""
    return sink.mark(batch_id) if isinstance(sink, FileSink) else None


class FunctionSink:
    """A user's function, called with rows that are computed already, and kept until it returns."""

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self.function = function

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        with hold(rows) as held:
            self.function(held, batch_id)


class KafkaSink:
    """Records of a topic."""

    def __init__(self, topic: address.Topic, shown: str) -> None:
        self.topic, self.shown = topic, shown
        self._logs: SparkLogs | None = None

    def attach(self, logs: SparkLogs, spark: SparkSession) -> None:
        """Raises if there is no connector or no broker."""
        self._logs = logs
        topics.require_connector(spark, self.topic, self.shown)
        require_broker(self.topic, self.shown)

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        id = None if self._logs is None else self._logs.query_id()
        assert id is not None, "Spark writes the query's id before its first batch"
        topics.write_records(topics.records_of(rows, self.topic, id, batch_id), self.topic)


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
        compute(rows)

    def take_batches(self, batches: Iterable[pa.RecordBatch], batch_id: int) -> None:
        for _ in batches:
            pass
