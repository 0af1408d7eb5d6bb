"""Source tasks that read Parquet files themselves. Spark's file source says which files a micro-batch has and cuts them into splits; a worker reads its splits by Arrow.

    file source --path, begin, length: a row of every so many--> source task --Arrow--> wire rows --> units
         |                                                          |
         +-- counts the rows of the batch                           +-- counts what it has read

A row of a file that Spark reads becomes a row of Spark's, then one of Arrow's, and goes through a socket: most of what a source task took. Here none does. A file that may mean something else to
Spark than to Arrow (types that are not the stream's, missing columns, days of before 1900, which old writers meant by another calendar) is left to Spark, and with it the micro-batch and all that follow.

Invariant: a micro-batch is read by Arrow as a whole, and as many rows of every stream as Spark has counted; or by Spark as a whole. So what is read never depends on how.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from watersmeet.columns.arrow import enlarge, mark_utc
from watersmeet.columns.spark_types import arrow_type
from watersmeet.plan.model import InputPlan, Plan
from watersmeet.runtime.rounds.entering import ALIAS, Slots
from watersmeet.runtime.spark.parquet_source import METADATA, ParquetFolder, find_folder
from watersmeet.runtime.spark.types import type_name

PATH, BEGIN, LENGTH, ROW_INDEX = "file_path", "file_block_start", "file_block_length", "row_index"
EVERY = 4096
"""A row of every so many names its split. The first row of a file does, and one of each row group that is not tiny; where one is, the count is not right, and Spark reads."""
BATCH_ROWS = 65_536
_ANCIENT_DAY = -25_567
"""1900-01-01: from then on all calendars and time zones that writers of Parquet have used agree."""
_ANCIENT_US = _ANCIENT_DAY * 86_400_000_000


class UnreadableError(Exception):
    """A file is better read by Spark; why."""


class Split(NamedTuple):
    """A part of a file, for an alias."""

    position: int
    path: str
    begin: int
    length: int


class Wanted(NamedTuple):
    """A column that is read: its name in files, its type, and its name on the wire."""

    name: str
    kind: pa.DataType
    wire: str


Columns = Sequence[Sequence[Wanted]]
"""By alias, in the order of the wire."""


@dataclass(frozen=True)
class SplitSource:
    """The streams of a query, if all are folders of Parquet files that workers can read."""

    union: DataFrame
    """A row of every so many of all aliases, as the name of its split."""
    columns: Columns
    folders: Mapping[str, ParquetFolder]

    def route(self, union: DataFrame, observed: str | Observation) -> DataFrame:
        """Names of splits; what is observed of all rows has this name."""
        counts = [F.count_if(F.col(ALIAS) == n).alias(f"rows{n}") for n in range(len(self.columns))]
        return union.observe(observed, *counts).where(F.col(ROW_INDEX) % EVERY == 0).drop(ROW_INDEX)


def find_splits(plan: Plan, slots: Slots, frames: Mapping[str, DataFrame], order: Sequence[str]) -> SplitSource | None:
    """How source tasks can read the streams of a plan themselves; None if they cannot."""
    if not all(_is_plain(source) for source in plan.inputs):
        return None
    folders = {stream: find_folder(frames[stream]) for stream in plan.streams}
    known = {stream: folder for stream, folder in folders.items() if folder is not None}
    if len(known) < len(folders):
        return None
    names = [source.alias for source in plan.inputs]
    selected = [_name_splits(n, frames[source.stream]) for n, source in enumerate(plan.inputs)]
    if order:
        selected = [selected[names.index(alias)] for alias in order]
    columns = [_find_columns(source, slots, known[source.stream]) for source in plan.inputs]
    return SplitSource(reduce(DataFrame.union, selected), columns, known)


def _is_plain(source: InputPlan) -> bool:
    """Whether an alias takes all rows of its stream, and columns as they are."""
    changes = source.filters or source.own or source.earlier or source.lookups
    numbered = source.rows is not None or source.max_ahead_us is not None
    return not changes and not numbered and all(c.expr.is_column and not c.cast for c in source.columns)


def _name_splits(position: int, frame: DataFrame) -> DataFrame:
    about = [F.col(f"{METADATA}.{name}").alias(name) for name in (PATH, BEGIN, LENGTH, ROW_INDEX)]
    return frame.select(F.lit(position).alias(ALIAS), *about)


def _find_columns(source: InputPlan, slots: Slots, folder: ParquetFolder) -> list[Wanted]:
    read = {c.name: c.expr.columns[0].column for c in source.columns}
    out = []
    for wire in slots.of[source.position]:
        kind = arrow_type(type_name(folder.schema[read[wire]].dataType))
        assert kind is not None
        out.append(Wanted(read[wire], kind, wire))
    return out


def list_splits(batches: Iterable[pa.RecordBatch]) -> list[Split]:
    """The splits of a task, each once."""
    found = (Split(*row.values()) for batch in batches for row in batch.to_pylist())
    return list(dict.fromkeys(found))


def read_split(split: Split, columns: Sequence[Wanted]) -> Iterator[pa.Table]:
    """The rows of a split, as wire rows; raises if Spark might read others, or Arrow cannot: a codec, encryption, damage, of which Spark has its own to say."""
    path = _check_path(split.path)
    try:
        yield from _read(path, split, columns)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(f"Arrow cannot read {path}: {error}") from error


def _read(path: str, split: Split, columns: Sequence[Wanted]) -> Iterator[pa.Table]:
    names = list(dict.fromkeys(column.name for column in columns))
    kinds = {column.name: column.kind for column in columns}
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        for name in names:
            _check_column(file, name, kinds[name])
        groups = list_groups(file.metadata, split.begin, split.begin + split.length)
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
            rows = {name: _read_column(batch.column(name), name, kinds[name]) for name in names}
            table = pa.table([rows[c.name] for c in columns], [c.wire for c in columns])
            yield mark_utc(enlarge(table))


def list_groups(metadata: Any, begin: int, end: int) -> list[int]:
    """The row groups of a split: those whose middle lies in it, as Parquet's own reader has it."""
    return [n for n in range(metadata.num_row_groups) if begin <= _find_middle(metadata.row_group(n)) < end]


def _find_middle(group: Any) -> int:
    parts = [group.column(n) for n in range(group.num_columns)]
    first = parts[0].data_page_offset
    if parts[0].has_dictionary_page and 0 < parts[0].dictionary_page_offset < first:
        first = parts[0].dictionary_page_offset
    return int(first + sum(part.total_compressed_size for part in parts) // 2)


def find_path(uri: str) -> str:
    """The path of a file on this machine, of which Spark gives the address.

    >>> find_path("file:///data/a%20b.parquet"), find_path("/data/c.parquet")
    ('/data/a b.parquet', '/data/c.parquet')
    """
    return unquote(urlsplit(uri).path)


def _check_path(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc or "=" in find_path(uri):  # of that Spark may make columns
        raise UnreadableError(f"{uri} is no plain local path")
    return find_path(uri)


def _check_column(file: pq.ParquetFile, name: str, kind: pa.DataType) -> None:
    """Raise unless a file has one column of a name, whatever its case, and that of the type that the stream has it in."""
    alike = [n for n, field in enumerate(file.schema_arrow) if field.name.lower() == name.lower()]
    if len(alike) != 1 or file.schema_arrow.field(alike[0]).name != name:
        raise UnreadableError(f"its columns are not the stream's: {name}")
    found = file.schema_arrow.field(alike[0]).type
    physical = {c.path: c.physical_type for c in map(file.schema.column, range(len(file.schema.names)))}.get(name)
    if not _fits(found, physical, kind):
        raise UnreadableError(f"its column {name} is {found}, not {kind}")


def _fits(found: pa.DataType, physical: str | None, kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        if not pa.types.is_timestamp(found) or found.unit not in ("us", "ms"):
            return False
        if physical == "INT96":  # an instant, without a word that says so
            return kind.tz is not None
        return physical == "INT64" and (found.tz is None) == (kind.tz is None)
    if pa.types.is_string(kind):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_binary(kind):
        return bool((pa.types.is_binary(found) or pa.types.is_large_binary(found)) and physical == "BYTE_ARRAY")
    return bool(found == kind)


def _read_column(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """A column in the type of the stream; raises if it has days that calendars disagree on."""
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(kind)
        _refuse_ancient(pc.min(column.cast(pa.int64())), _ANCIENT_US, name)
    elif pa.types.is_date(kind):
        _refuse_ancient(pc.min(column.cast(pa.int32())), _ANCIENT_DAY, name)
    return column


def _refuse_ancient(lowest: pa.Scalar, bound: int, name: str) -> None:
    if lowest.is_valid and lowest.as_py() < bound:
        raise UnreadableError(f"its column {name} has days of before 1900")
