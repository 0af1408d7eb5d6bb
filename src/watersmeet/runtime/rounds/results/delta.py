"""A Delta table as sink: workers write its files, and one entry of its log per batch names them, with the query's id and the batch's number.

    _delta_log/00000000000000000017.json     add part-16-....snappy.parquet ...   txn {appId: the query's id, version: 16}

The table knows the latest number of every application, so a batch that comes again is found there. Two drivers of one query cannot both commit: delta-rs
refuses a number that another has written since. A batch without rows leaves no entry.

Other writers may append to the table. What they could change under us (columns, features) is checked before every entry.

Invariant: checks only read; the table is made by the first batch. What is written by attempts that failed is named by nobody, and Delta's own VACUUM deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from pyspark.sql import types as T

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.extensions import require_extra
from watersmeet.runtime.rounds.results.parts import NOTHING, Part, find_parts
from watersmeet.runtime.rounds.results.table import TableFolder, check_types, first_line
from watersmeet.runtime.rounds.systems import options_for_tables

NAME = "delta"
_FORBIDDEN = " ,;{}()\n\t="
_FEATURES = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "changeDataFeed",
    "timestampNtz",
    "deletionVectors",
}
"""Features of a table that files which are only added satisfy, if nothing below is in use."""
_RULES = ("delta.constraints.", "delta.columnMapping.mode", "delta.enableRowTracking")
_COLUMN_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


@dataclass(frozen=True)
class DeltaFolder(TableFolder):
    """The folder of a Delta table."""

    @property
    def shown(self) -> str:
        return f"{self.option}='{NAME}:{self.address}'"

    def table(self) -> Any:
        """The table as it is now; None if there is none."""
        require_extra(self.shown, "deltalake", NAME)
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        self.require()
        try:
            if self._held:
                self._held[0].update_incremental()
            elif DeltaTable.is_deltatable(self._place, self._options):
                self._held.append(DeltaTable(self._place, storage_options=self._options))
            return self._held[0] if self._held else None
        except (DeltaError, OSError) as error:
            raise OptionError(f"{self.shown}: the table cannot be opened: {first_line(error)}") from error

    @cached_property
    def _held(self) -> list[Any]:
        """The table, once it has been opened: what is new in its log is read then, and not all of it again."""
        return []

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_held"}

    @property
    def _place(self) -> str:
        """The address as delta-rs takes it."""
        return self.path() if self.is_local else self.address

    @property
    def _options(self) -> dict[str, str] | None:
        return options_for_tables(self.address)

    def identify(self) -> tuple[str, int] | None:
        table, id = self.table(), self.query_id
        if table is None:
            return None
        found = None if id is None else table.transaction_version(id)
        return str(table.metadata().id), -1 if found is None else int(found)

    def check_new(self, checkpoint: str) -> None:
        if self.table() is not None:
            return
        files = [name for name in self._names() if not name.startswith(("_", "."))]
        if files:
            raise CheckpointError(
                f"{self.shown}: the folder holds {files[0]!r} and is no Delta table; give a table or an empty folder"
            )

    def put(self, batch: int, schema: T.StructType, by: Sequence[str], parts: Sequence[Part]) -> None:
        """Commit a batch: from now on readers see these files of it."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        table = self.table() or self._create(schema, by)
        self.check(schema, by, table)
        if not parts:
            return
        written = find_parts(self, parts)
        added = [
            AddAction(part.path, part.bytes, values_of(part.path, by), at, True, part.statistics)
            for part, at in zip(parts, written, strict=True)
        ]
        assert self.query_id is not None, "Spark writes the query's id before its first batch"
        once = CommitProperties(app_transactions=[Transaction(self.query_id, batch)])
        try:
            table.create_write_transaction(added, "append", table.schema(), list(by), commit_properties=once)
        except DeltaError as error:
            raise CheckpointError(
                f"{self.shown}: batch {batch} could not be committed: {first_line(error)}; the same call of start() repeats it"
            ) from error

    def _create(self, schema: T.StructType, by: Sequence[str]) -> Any:
        from deltalake import DeltaTable, Schema

        columns = Schema.from_json(json.dumps(delta_schema(schema, self.shown)))
        return DeltaTable.create(
            self._place, columns, mode="ignore", partition_by=list(by), storage_options=self._options
        )

    def partition_columns(self, given: Sequence[str]) -> Sequence[str]:
        """The columns that the table is partitioned by; those that are given must be these."""
        table = self.table()
        if table is None:
            return given
        return self.same_partitions(given, table.metadata().partition_columns)

    def check(self, schema: T.StructType, by: Sequence[str], table: Any = None) -> None:
        """Raise if rows of these columns cannot be added to the table, or to a new one."""
        ours = delta_schema(schema, self.shown)
        self.check_partitions(schema, by)
        table = self.table() if table is None else table
        if table is None:
            return
        theirs = json.loads(table.schema().to_json())
        self._check_features(table, theirs)
        found = {field["name"]: field for field in theirs["fields"]}
        for field, spark in zip(ours["fields"], schema.fields, strict=True):
            self._check_column(spark, field, found.pop(field["name"], None))
        for name, missing in found.items():
            if not missing["nullable"]:
                raise OptionError(
                    f"{self.shown}: the table's column {name!r} is NOT NULL, and the result has none; SELECT one"
                )

    def _check_column(self, spark: T.StructField, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> None:
        if theirs is None:
            raise OptionError(
                f"{self.shown}: the table has no column {spark.name!r}; add it to the table, or leave it out of the SELECT"
            )
        if _bare(theirs["type"]) != ours["type"]:
            has = theirs["type"] if isinstance(theirs["type"], str) else json.dumps(_bare(theirs["type"]))
            raise OptionError(
                f"{self.shown}: column {spark.name!r} of the result is {spark.dataType.simpleString()}, and the table's is {has}; cast it, or give another table"
            )
        if spark.nullable and not theirs["nullable"]:
            raise OptionError(
                f"{self.shown}: column {spark.name!r} of the result may be NULL, and the table's is NOT NULL; drop that from the table"
            )

    def _check_features(self, table: Any, schema: Mapping[str, Any]) -> None:
        protocol, settings = table.protocol(), table.metadata().configuration
        used = [name for name in protocol.writer_features or () if name not in _FEATURES]
        used += [
            key
            for key in settings
            for rule in _RULES
            if key.startswith(rule) and settings[key] not in ("none", "false")
        ]
        used += [f"{rule} of column {f['name']!r}" for f in schema["fields"] for rule in _COLUMN_RULES if rule in f["metadata"]]  # fmt: skip
        if used:
            raise OptionError(
                f"{self.shown}: the table has {used[0]}, which files that are written elsewhere would not obey; give a table without it, or a function "
                "(rows, batch_id) that writes with Spark's Delta"
            )


def delta_schema(schema: T.StructType, shown: str) -> dict[str, Any]:
    """Columns as Delta's log has them, all of which may be NULL; raises if Delta does not know one."""
    for field in schema.fields:
        if set(field.name) & set(_FORBIDDEN):
            raise OptionError(
                f"{shown}: column {field.name!r} has a character that names of Delta's columns cannot have, one of {_FORBIDDEN!r}; rename it with AS"
            )
    check_types(schema, shown)
    return _type_of(schema)  # type: ignore[no-any-return]


def _type_of(kind: T.DataType) -> Any:
    if isinstance(kind, T.StructType):
        fields = [{"name": f.name, "type": _type_of(f.dataType), "nullable": True, "metadata": {}} for f in kind.fields]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "elementType": _type_of(kind.elementType), "containsNull": True}
    if isinstance(kind, T.MapType):
        key, value = _type_of(kind.keyType), _type_of(kind.valueType)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return kind.jsonValue()


def _bare(kind: Any) -> Any:
    """A type of Delta's without what is said of its fields besides."""
    if isinstance(kind, dict):
        return {key: {} if key == "metadata" else _bare(value) for key, value in kind.items()}
    return [_bare(value) for value in kind] if isinstance(kind, list) else kind


def values_of(path: str, by: Sequence[str]) -> dict[str, str | None]:
    """The values of the partition columns, from the folders that a file is in.

    >>> values_of("day=2026-01-31/part=a%2Fb/part-0.parquet", ["day", "part"]), values_of("p=__HIVE_DEFAULT_PARTITION__/x", ["p"])
    ({'day': '2026-01-31', 'part': 'a/b'}, {'p': None})
    """
    levels = [level.partition("=")[2] for level in path.split("/")[:-1]]
    return {name: None if text == NOTHING else unquote(text) for name, text in zip(by, levels, strict=True)}
