"""Folders of files and topics of Kafka as streams and as sinks, through Spark's own readers and writers.

A restart must find the checkpoint that belongs to its results, so the checkpoint of a file sink lies beside them unless
the user says where. A new checkpoint over old results is refused, see `runtime.rounds.results.folder`. Spark gets absolute paths: a JVM
does not follow `os.chdir`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

import watersmeet as wm
from watersmeet.cli.arguments import FORMATS, Pace, SinkArgument, Source, time_column
from watersmeet.errors import OptionError, StreamError
from watersmeet.runtime.rounds.results.folder import SinkFolder

_READ_OPTIONS = {"csv": {"header": "true"}}
CHECKPOINT = "_checkpoint"


def open_stream(spark: Any, source: Source, pace: Pace | None) -> wm.Stream:
    """The folder or topic as a `wm.Stream`; without a pace, as it is now."""
    try:
        frame = _frame(spark, source, pace) if source.topic is None else _records(spark, source, pace)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise StreamError(
            f"stream {source.name}: Spark cannot read {source.path} as {source.format}: {reason}"
        ) from error
    time = source.time or time_column(source.name, frame.dtypes)
    return wm.Stream(frame, time=time, lateness=source.lateness, idle=source.idle)


def _records(spark: Any, source: Source, pace: Pace | None) -> Any:
    from watersmeet.runtime.kafka.topics import read_topic

    assert source.topic is not None
    assert source.schema is not None
    return read_topic(spark, source.topic, source.schema, f"stream {source.name}", pace.rows if pace else None)


def _frame(spark: Any, source: Source, pace: Pace | None) -> Any:
    path, options = str(source.path.absolute()), _READ_OPTIONS.get(source.format, {})
    static = spark.read.options(**options)
    if source.schema is not None:
        static = static.schema(source.schema)
    elif source.format == "csv":
        static = static.option("inferSchema", "true")
    if pace is None:
        return static.format(source.format).load(path)
    schema = source.schema or static.format(source.format).load(path).schema
    reader = spark.readStream.options(**options).schema(schema)
    if pace.files:
        reader = reader.option("maxFilesPerTrigger", pace.files)
    return reader.format(source.format).load(path)


def checkpoint_folder(sink: SinkArgument, late: SinkArgument | None, given: Path | None) -> Path | None:
    """Where the query's progress is kept (None: nowhere lasting); refuses one that is not of the rows in the sinks' folders."""
    chosen = given or (None if sink.folder is None else Path(sink.folder) / CHECKPOINT)
    if chosen is None and sink.path is not None:
        raise OptionError(
            f"--sink {sink.text}: name the folder that a restart goes on from, as in --checkpoint progress"
        )
    if given is None and "://" in (sink.folder or ""):
        raise OptionError(
            f"--sink {sink.text}: name a folder of this machine with --checkpoint, as in --checkpoint progress"
        )
    if chosen is None or not (chosen / "offsets").exists():
        for to, option in ((sink, "sink"), (late, "late")):
            if to is not None and to.path is not None and to.format in FORMATS:
                SinkFolder(to.path, option).check_new(str(chosen or "this one"))
    return chosen


def start(
    frame: Any,
    sink: SinkArgument,
    checkpoint: Path,
    trigger: dict[str, Any],
    show: Callable[[int, list[str], list[Any]], None],
    *,
    grouped: bool = False,
) -> Any:
    """Start the streaming query; `show` gets (results, columns, some rows) of each batch that goes to the console.

    A grouped query lets out the groups that have changed, which files cannot take back.
    """
    if grouped and sink.path is not None:
        raise OptionError(
            f"--sink {sink.format}:{sink.path}: groups change, and Spark's file sink only appends; show them on the console, "
            "or append every batch's changed groups with --runtime rounds"
        )
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint.absolute())).trigger(**trigger)
    writer = writer.outputMode("update" if grouped else "append")
    if sink.path is None:
        return writer.foreachBatch(lambda batch, _: show(*_sample(batch))).start()
    return writer.format(sink.format).option("path", str(Path(sink.path).absolute())).start()


def rounds_sink(to: SinkArgument, show: Callable[[int, list[str], list[Any]], None], option: str = "sink") -> Any:
    """What the rounds runtime is given for it."""
    from watersmeet.runtime.rounds.sinks import FileSink

    if to.path is None:
        return lambda batch, _: show(*_sample(batch))
    if to.format not in FORMATS:
        return to.text
    return FileSink(str(Path(to.path).absolute()), to.format, option=option)


def write_static(frame: Any, sink: SinkArgument, show: Callable[[int, list[str], list[Any]], None]) -> int:
    """Run a backfill into the sink; the number of results."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if sink.path is None:
        count, columns, rows = _sample(frame)
        show(count, columns, rows)
        return count
    if sink.format not in FORMATS:
        raise OptionError(f"--sink {sink.text}: a backfill writes parquet:FOLDER or json:FOLDER")
    if Path(sink.path).exists():
        raise StreamError(f"--sink {sink.format}:{sink.path}: the folder exists; a backfill writes a new one")
    seen = Observation("results")
    frame.observe(seen, F.count(F.lit(1)).alias("results")).write.format(sink.format).save(
        str(Path(sink.path).absolute())
    )
    return int(seen.get["results"])


def _sample(batch: Any, rows: int = 20) -> tuple[int, list[str], list[Any]]:
    """All rows are computed once, and some of them fetched: a stateful stage must never run in part.

    Fetched as text, so that times are shown in the session's time zone and not in the machine's.
    """
    from pyspark.sql import functions as F

    kept = batch.persist()
    try:
        count = kept.count()
        numbered = kept.toDF(*(f"c{n}" for n in range(len(batch.columns))))
        return count, batch.columns, numbered.select(*(F.col(c).cast("string") for c in numbered.columns)).take(rows)
    finally:
        kept.unpersist()
