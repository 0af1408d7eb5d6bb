"""Where answers go: one sink for all queries, or one for each.

    all      any sink of `rounds.sinks`: rows (query, version, ts, answer)
    each     a folder with a sub-folder for every query; or a function (id, rows, batch_id), rows in the query's own types

    id              sub-folder
    user-42         query_folder=id-user-42
    User 42         query_folder=id-_55ser_2042         bytes other than a-z, 0-9 and - in hexadecimal digits
    (300 bytes)     query_folder=id-<100 characters>__<SHA-256 of the id>

Ids stand in the rows as well, and they decide: Spark guesses types of the names of folders, rows it reads as they were written.

Invariant: as in `rounds.sinks`: `write` runs the frame exactly once. Different ids have different sub-folders, on file systems that
ignore case or normalise Unicode, too; their names have at most 200 characters.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError
from watersmeet.registry.plan import ANSWER, QUERY, VERSION, YOUNGEST
from watersmeet.registry.versions import QueryVersion
from watersmeet.runtime.rounds.checkpoint import absolute
from watersmeet.runtime.rounds.results.parts import PartFiles
from watersmeet.runtime.rounds.sinks import FileSink, Sink, folder_of, sink
from watersmeet.runtime.spark.jobs import hold


class Live(Protocol):
    """The queries of the batch that runs."""

    def find(self, id: str) -> QueryVersion:
        """One of them."""

    def stop_one(self, id: str, reason: str) -> None:
        """It fails, from the next batch on."""


FOLDER = "query_folder"
_PLAIN = re.compile(r"[a-z0-9-]+")
_LONGEST, _CUT = 160, 100
_MOST_SHOWN = 500


def ddl_of(query: QueryVersion) -> str:
    """The columns of a query's answers, as Spark writes a schema."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in query.columns)


def name_time(query: QueryVersion) -> str:
    """What the time of answers is called beside the query's own columns, which Spark tells apart without regard to case.

    >>> name_time(QueryVersion("q", 1, "", (("id", "int"),))), name_time(QueryVersion("q", 1, "", (("TS", "timestamp"),)))
    ('ts', '_ts')
    """
    name, taken = YOUNGEST, {column.lower() for column, _ in query.columns}
    while name in taken:
        name = f"_{name}"
    return name


def cast_answers(rows: DataFrame, query: QueryVersion) -> DataFrame:
    """Answers of one query: their time, and its columns in its own types."""
    parsed = F.from_json(ANSWER, ddl_of(query)).alias("a")
    return rows.select(F.col(YOUNGEST).alias(name_time(query)), parsed).select(name_time(query), "a.*")


def sub_folder(id: str) -> str:
    """The name of a query's sub-folder, less what stands before its `=`.

    >>> sub_folder("user-42"), sub_folder("User 42")
    ('id-user-42', 'id-_55ser_2042')
    """
    name = id if _PLAIN.fullmatch(id) else "".join(map(_escape, id.encode()))
    if len(name) > _LONGEST:
        name = f"{name[:_CUT]}__{hashlib.sha256(id.encode()).hexdigest()}"
    return f"id-{name}"


def _escape(byte: int) -> str:
    return chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"_{byte:02x}"


@dataclass(frozen=True)
class ByQuery:
    """A folder for every query."""

    def name_rows(self, rows: pa.Table) -> pa.Array:
        coded = rows.column(QUERY).combine_chunks().dictionary_encode()
        names = [f"{FOLDER}={sub_folder(id)}" for id in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)


def answers_of(rows: DataFrame, query: QueryVersion) -> DataFrame:
    """The answers of one query in its own types; of a folder with sub-folders, its own is read."""
    if FOLDER in rows.columns:
        rows = rows.where(F.col(FOLDER) == sub_folder(query.id))
    return cast_answers(rows.where((F.col(QUERY) == query.id) & (F.col(VERSION) == query.version)), query)


def answer_sink(given: Any, per_query: bool, live: Live) -> Sink:
    """The sink that a user means."""
    if not per_query:
        return sink(given)
    if callable(given):
        return EachSink(given, live)
    if isinstance(given, (str, os.PathLike)) and os.fspath(given) and given not in ("console", "memory", "noop"):
        return SubFolders(absolute(folder_of(os.fspath(given))))
    raise OptionError(f"sink={given!r} with per_query=True: give a folder, or a function (id, rows, batch_id)")


class SubFolders(FileSink):
    """Files in a folder, with a sub-folder for every query."""

    def files(self, schema: StructType) -> PartFiles:
        self._files = replace(super().files(schema), folders=ByQuery())
        return self._files


class EachSink:
    """A user's function, called for every query that has answers in a batch; rows are computed, and kept until it returns.

    If it raises, the query has failed and the others go on, unless the rows cannot be read any more: then Spark is the reason.
    """

    def __init__(self, function: Callable[[str, DataFrame, int], Any], live: Live) -> None:
        self.function, self.live = function, live

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        with hold(rows) as held:
            for id in sorted(row[0] for row in held.select(QUERY).distinct().collect()):
                try:
                    self.function(id, cast_answers(held.where(F.col(QUERY) == id), self.live.find(id)), batch_id)
                except Exception as error:
                    held.select(QUERY).where(F.col(QUERY) == id).take(1)
                    said = (str(error).splitlines() or [""])[0][:_MOST_SHOWN]
                    reason = f"its sink function raised {type(error).__name__} in batch {batch_id}: {said}"
                    self.live.stop_one(id, reason)
