"""Columns of results as Spark has them, and as files have them: types, nullability, and what Spark's own writer says of them.

    timestamp, timestamp_ntz         microseconds, adjusted to UTC or not
    interval day to second, time     whole numbers of microseconds
    interval year to month           whole numbers of months: Arrow does not know the type, so Spark casts them first
    char(n), intervals, collations   survive in the metadata under ROW_METADATA, where Spark's readers look for a schema

Invariant: what Spark reads back has the names, the types and the values of the SELECT. What cannot be written so is an error before the query runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from watersmeet.columns.arrow import large_type, rebuilt
from watersmeet.errors import OptionError
from watersmeet.plan.types import is_plain
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.parts import NOTHING, ByColumns, PartFiles
from watersmeet.runtime.spark.versions import WRITER, arrow_schema

ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_TEXT = "_folder_text_{}"
"""The column with the text of the n-th column that folders are named by, where only Spark can write it."""
_OWN_TEXTS = ("tinyint", "smallint", "int", "bigint", "string", "boolean", "date")
"""Types whose values Arrow writes as Spark does."""


def part_files(folder: SinkFolder, schema: StructType, by: Sequence[str], *, keeps: bool = False) -> PartFiles:
    """How rows of a SELECT become Parquet files; raises if they cannot. `keeps`: files have the columns that folders are named by, too."""
    folder.require()
    _check_columns(schema, folder.option)
    by = _resolve(schema, by)
    texts = tuple(name if _has_text(schema[name]) else _TEXT.format(n) for n, name in enumerate(by))
    extra = [pa.field(text, pa.string()) for text in texts if text not in schema.names]
    inside = StructType([f for f in schema.fields if keeps or f.name not in by])
    metadata = {ROW_METADATA: inside.json().encode(), **WRITER}
    folders = ByColumns(tuple(by), texts, "" if keeps else NOTHING) if by else None
    columns = pa.schema([*_arrow_columns(schema), *extra])
    return PartFiles(folder, columns, _file_columns(inside).with_metadata(metadata), folders)


def line_files(folder: SinkFolder) -> PartFiles:
    """How lines of text become files."""
    folder.require()
    return PartFiles(folder, pa.schema([("value", pa.large_string())]), pa.schema([]))


def arrange(how: PartFiles, rows: DataFrame) -> DataFrame:
    """Rows of a SELECT as they go to the workers that write them."""
    if how.is_text:
        return rows.select(F.to_json(F.struct("*")).alias("value"))
    columns = [_cross(field) for field in rows.schema.fields]
    if isinstance(how.folders, ByColumns):
        named = zip(how.folders.columns, how.folders.texts, strict=True)
        columns += [_column(name).cast("string").alias(text) for name, text in named if text != name]
    return rows.select(*columns)


def can_units_write(how: PartFiles, schema: StructType) -> bool:
    """Whether rows that units have selected can be written as they are: nothing in them has to be cast by Spark."""
    months = any(isinstance(field.dataType, YearMonthIntervalType) for field in schema.fields)
    return how.columns.names == schema.names and not months


def _check_columns(schema: StructType, option: str) -> None:
    """Raise if a column cannot be written."""
    names = [name.casefold() for name in schema.names]
    for field, name in zip(schema.fields, names, strict=True):
        if names.count(name) > 1:
            raise OptionError(
                f"{option}=: the result has column {field.name!r} twice, and a file cannot; rename one with AS"
            )
        try:
            kind = _file_type(arrow_schema(StructType([_by_months(field)])).field(0).type)
        except PySparkTypeError:
            kind = None
        if kind is None or pa.types.is_null(kind):
            shown = field.dataType.simpleString()
            raise OptionError(f"{option}=: column {field.name!r} is {shown}, which Parquet files cannot hold; cast it")


def _resolve(schema: StructType, by: Sequence[str]) -> list[str]:
    """The columns that folders are named by, as the result spells them."""
    known = {name.casefold(): name for name in schema.names}
    found: list[str] = []
    for name in by:
        if name.casefold() not in known:
            raise OptionError(
                f"partition_by={list(by)}: the result has no column {name!r}; it has {', '.join(schema.names)}"
            )
        found.append(known[name.casefold()])
        kind = schema[found[-1]].dataType.simpleString()
        if not is_plain(kind) or kind == "binary":
            raise OptionError(
                f"partition_by={list(by)}: {name!r} is {kind}, which does not name a folder; cast it to string"
            )
    if len(set(found)) < len(found):
        raise OptionError(f"partition_by={list(by)} names a column twice")
    if found and len(found) == len(schema.names):
        raise OptionError(f"partition_by={list(by)} are all columns of the result: no column is left for the files")
    return found


def _has_text(field: StructField) -> bool:
    return field.dataType.simpleString() in _OWN_TEXTS


def _arrow_columns(schema: StructType) -> pa.Schema:
    """Columns in the types in which files have them."""
    made = arrow_schema(StructType([_by_months(field) for field in schema.fields]))
    return pa.schema([field.with_type(_file_type(field.type)) for field in made])


def _file_columns(schema: StructType) -> pa.Schema:
    """The same in a file, where variants have both of their parts: Spark 4.0 reads no others."""
    fields = zip(_arrow_columns(schema), schema.fields, strict=True)
    return pa.schema([field.with_type(_require_variants(of.dataType, field.type)) for field, of in fields])


def _require_variants(kind: DataType, made: pa.DataType) -> pa.DataType:
    if isinstance(kind, VariantType):
        return pa.struct([part.with_nullable(False) for part in made])
    if isinstance(kind, StructType):
        parts = zip(made, kind.fields, strict=True)
        return pa.struct([part.with_type(_require_variants(of.dataType, part.type)) for part, of in parts])
    if isinstance(kind, ArrayType):
        return pa.large_list(made.value_field.with_type(_require_variants(kind.elementType, made.value_type)))
    if isinstance(kind, MapType):
        values = made.item_field.with_type(_require_variants(kind.valueType, made.item_type))
        return pa.map_(made.key_field, values)
    return made


def _file_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_time64(kind):
        return pa.time64("us")
    return large_type(kind) if not pa.types.is_nested(kind) else large_type(rebuilt(kind, _file_type))


def _by_months(field: StructField) -> StructField:
    """A column as it crosses to Python."""
    if isinstance(field.dataType, YearMonthIntervalType):
        return StructField(field.name, IntegerType(), field.nullable)
    return field


def _cross(field: StructField) -> Column:
    own = _column(field.name)
    if isinstance(field.dataType, YearMonthIntervalType):
        return own.cast("interval month").cast("int").alias(field.name)
    return own


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
