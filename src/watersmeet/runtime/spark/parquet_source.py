"""Streaming DataFrames that are folders of Parquet files and nothing else: what Spark would do with their rows, a Python worker can do as well.

The analysed plan says so: Spark's file source, perhaps under a choice of its columns. Anything else that Spark was told, an option or a setting that changes what rows a file has,
leaves the reading to Spark, and so does a file system that is not a local one.

Invariant: a frame that is found here has the rows of its files, in columns of plain types with the names that they have in the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.columns.spark_types import arrow_type
from watersmeet.runtime.spark.types import type_name
from watersmeet.runtime.spark.versions import is_connect

METADATA = "_metadata"
"""The column in which Spark's file sources tell of a row's file."""
_LISTING = {
    "path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "cleansource", "sourcearchivedir", "filenameonly", "maxcachedfiles",
    "discardcachedinputratio", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter",
}  # fmt: skip
"""Options that say which files there are, and nothing of what is in them."""
_GLOBS = "__globPaths__"
"""Spark's own option by which its file source reads files whose names have brackets or stars."""
_ORDINARY = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
"""Settings by which rows are what the files say."""


@dataclass(frozen=True)
class ParquetFolder:
    """A folder that a stream is read from."""

    schema: StructType

    def load(self, spark: Any, files: Sequence[str]) -> DataFrame:
        """Rows of some of its files, by Spark; paths are plain ones of this file system."""
        if not files:
            return spark.createDataFrame([], self.schema)  # type: ignore[no-any-return]
        reader = spark.read.schema(self.schema).format("parquet").option(_GLOBS, "false")
        return reader.load(list(files))  # type: ignore[no-any-return]


def find_folder(frame: DataFrame) -> ParquetFolder | None:
    """The folder of a streaming DataFrame; None if Spark does more than to read its files."""
    if is_connect(frame) or METADATA in frame.columns:
        return None
    spark = frame.sparkSession
    if any((spark.conf.get(name, value) or "").lower() != value for name, value in _ORDINARY.items()):
        return None
    if not all(_is_plain(field) for field in frame.schema.fields):
        return None
    source = _find_source(frame._jdf.queryExecution().analyzed())
    return None if source is None else _describe(spark, source, frame.schema)


def _is_plain(field: Any) -> bool:
    """Whether a column is one in a file as well: a dot names a part of one, and metadata may say that Spark changes its values."""
    return "." not in field.name and not field.metadata and arrow_type(type_name(field.dataType)) is not None


def _find_source(plan: Any) -> Any:
    """The file source under a choice of columns."""
    while plan.getClass().getSimpleName() == "Project":
        chosen = plan.projectList()
        if any(chosen.apply(n).getClass().getSimpleName() != "AttributeReference" for n in range(chosen.size())):
            return None
        plan = plan.child()
    return plan.dataSource() if plan.getClass().getSimpleName() == "StreamingRelation" else None


def _describe(spark: Any, source: Any, schema: StructType) -> ParquetFolder | None:
    options, paths = _read_map(source.options()), source.paths()
    roots = [*(paths.apply(n) for n in range(paths.size())), *(v for k, v in options.items() if k.lower() == "path")]
    fits = (
        source.className().lower() == "parquet"
        and source.catalogTable().isEmpty()
        and source.sourceInfo().partitionColumns().isEmpty()
        and {name.lower() for name in options} <= _LISTING
        and roots
        and all(_is_local(spark, root) for root in roots)
    )
    return ParquetFolder(schema) if fits else None


def _read_map(given: Any) -> dict[str, str]:
    pairs = given.toSeq()
    return {str(pairs.apply(n)._1()): str(pairs.apply(n)._2()) for n in range(pairs.size())}


def _is_local(spark: Any, path: str) -> bool:
    jvm, session = spark._jvm, spark._jsparkSession
    found = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(session.sessionState().newHadoopConf())
    return bool(found.getUri().getScheme() == "file")
