"""What tables as sinks have in common: they know the latest batch of every query, and which checkpoint may write to them.

A manifest keeps a mark: which table it is, and the number that the table had of the query after the batch. So a table that is another one, or was restored without its
checkpoint, is refused. Of a table that has the number of the next batch, too, the process died before its manifest was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.rounds.checkpoint import SparkLogs
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.parts import Part

_PLAIN = ("string", "bigint", "int", "smallint", "tinyint", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz")  # fmt: skip
_FOLDERS = ("string", "bigint", "int", "smallint", "tinyint", "boolean", "date", "decimal")
"""Types whose text tables and Spark write alike."""


@dataclass(frozen=True)
class TableFolder(SinkFolder):
    """The folder of a table's files."""

    logs: SparkLogs | None = None
    """Of the query that writes."""

    @property
    def shown(self) -> str:
        """What the user has given."""
        raise NotImplementedError

    def identify(self) -> tuple[str, int] | None:
        """Which table it is, and the latest batch of the query that it has, or -1; None if there is no table."""
        raise NotImplementedError

    def partition_columns(self, given: Sequence[str]) -> Sequence[str]:
        """The columns that the table is partitioned by; those that are given must be these."""
        raise NotImplementedError

    def check(self, schema: T.StructType, by: Sequence[str]) -> None:
        """Raise if rows of these columns cannot be added to the table, or to a new one."""
        raise NotImplementedError

    def put(self, batch: int, schema: T.StructType, by: Sequence[str], parts: Sequence[Part]) -> None:
        """Commit a batch: from now on readers see these files of it."""
        raise NotImplementedError

    @property
    def query_id(self) -> str | None:
        return None if self.logs is None else self.logs.query_id()

    def latest(self) -> int | None:
        """The latest batch of the query that the table has."""
        found = self.identify()
        return None if found is None or found[1] < 0 else found[1]

    def mark(self, batch: int) -> str | None:
        found = self.identify()
        return None if found is None else f"{found[0]}:{found[1]}"

    def check_goes_on(self, batch: int, mark: str | None, checkpoint: str) -> None:
        """Raise if this is not the table that a checkpoint's latest batch left this mark in. The next one may be there, too."""
        if batch < 0:  # its first batch has begun, and may have left files
            return
        if mark is None:  # it has written elsewhere, and goes on here
            self.check_new(checkpoint)
            return
        found, (id, _, version) = self.identify(), mark.partition(":")
        if found is None or not version or found[0] != id:
            raise CheckpointError(
                f"{self.shown} is not the table that {checkpoint} has written its {batch + 1} batches to; give that one, or start with a new checkpoint"
            )
        if found[1] not in (int(version), batch + 1):
            raise CheckpointError(
                f"{self.shown}: the table's latest batch of this query is {found[1]}, and that of {checkpoint} is {version}: one of them was restored without the other; "
                "restore both, or start with a new checkpoint"
            )

    def same_partitions(self, given: Sequence[str], has: Sequence[str]) -> Sequence[str]:
        """The columns that a table is partitioned by, if the user gives none or these."""
        if given and [name.casefold() for name in given] != [name.casefold() for name in has]:
            raise OptionError(
                f"partition_by={list(given)}: the table {self.address} is partitioned by {list(has)}; give these, or leave partition_by out"
            )
        return has

    def check_partitions(self, schema: T.StructType, by: Sequence[str]) -> None:
        for name in by:
            kind = schema[name].dataType.simpleString()
            if kind.partition("(")[0] not in _FOLDERS:
                raise OptionError(
                    f"partition_by={list(by)}: {name!r} is {kind}, which does not name a partition of a table; cast it to date or string"
                )


def check_types(schema: T.StructType, shown: str) -> None:
    """Raise if a column has a type that tables do not know."""
    for field in schema.fields:
        if not _is_known(field.dataType):
            raise OptionError(
                f"{shown}: column {field.name!r} is {field.dataType.simpleString()}, which the table cannot hold; cast it"
            )


def _is_known(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_known(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_known(kind.elementType)
    if isinstance(kind, T.MapType):
        return _is_known(kind.keyType) and _is_known(kind.valueType)
    return isinstance(kind, T.DecimalType) or kind.simpleString() in _PLAIN


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
