"""An Iceberg table as sink: workers write its files, and one snapshot per batch adds them; the same commit sets a property with the batch's number.

    properties   watersmeet.<query id> = 16
    snapshot     part-16-....snappy.parquet ...      summary: watersmeet.query, watersmeet.batch

Snapshots expire, properties stay, so a batch that comes again is found by the property. pyiceberg knows the catalog by its name, from `~/.pyiceberg.yaml` or the
environment. It reads the footers of the files for their statistics and partitions, so files have all columns, and NULL and the empty text have folders of their own.

Invariant: what is added and the number are one commit. The table is made by `start()`, because only the catalog knows where its files belong. pyiceberg repeats a commit that
another writer was faster than, so two drivers of one query are kept apart by Spark's own logs alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.extensions import require_extra
from watersmeet.runtime.rounds.results.parts import Part, find_parts
from watersmeet.runtime.rounds.results.table import TableFolder, check_types, first_line

NAME = "iceberg"
_FORM = re.compile(r"iceberg:(?P<catalog>[\w-]+)\.(?P<table>[\w-]+(\.[\w-]+)+)")
_PREFIX = "watersmeet."


@dataclass(frozen=True)
class TableName:
    """A table of a catalog."""

    catalog: str
    table: str
    option: str = "sink"

    @property
    def shown(self) -> str:
        return f"{self.option}='{NAME}:{self.catalog}.{self.table}'"

    @cached_property
    def opened(self) -> Any:
        """The catalog."""
        require_extra(self.shown, "pyiceberg", NAME)
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self.catalog)
        except Exception as error:  # what a catalog raises is its driver's own
            raise OptionError(
                f"{self.shown}: the catalog {self.catalog!r} cannot be opened: {first_line(error)}; describe it in ~/.pyiceberg.yaml, or with "
                f"PYICEBERG_CATALOG__{self.catalog.upper()}__URI in the environment"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "opened"}

    def load(self) -> Any:
        """The table; None if there is none."""
        return self.opened.load_table(self.table) if self.opened.table_exists(self.table) else None

    def create(self, columns: pa.Schema, by: Sequence[str]) -> Any:
        namespace = self.table.rpartition(".")[0]
        if not self.opened.namespace_exists(namespace):
            raise OptionError(f"{self.shown}: the catalog has no namespace {namespace!r}; create it, or name another")
        made = self.opened.create_table(self.table, schema=columns)
        if by:
            with made.update_spec() as spec:
                for name in by:
                    spec.add_identity(name)
        return self.opened.load_table(self.table)


def name_of(text: str, option: str) -> TableName:
    """The table that a text names.

    >>> name_of("iceberg:prod.shop.paid", "sink")
    TableName(catalog='prod', table='shop.paid', option='sink')
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise OptionError(f"{option}={text!r}: write iceberg:CATALOG.NAMESPACE.TABLE, as in 'iceberg:prod.shop.paid'")
    if option != "sink":
        raise OptionError(f"{option}={text!r}: give a folder, 'memory' or a function; a table is for results")
    return TableName(found["catalog"], found["table"], option)


@dataclass(frozen=True)
class IcebergFolder(TableFolder):
    """The folder of an Iceberg table's files."""

    name: TableName = TableName("", "")

    @property
    def shown(self) -> str:
        return self.name.shown

    def identify(self) -> tuple[str, int] | None:
        table = self.name.load()
        if table is None:
            return None
        return str(table.metadata.table_uuid), int(table.properties.get(f"{_PREFIX}{self.query_id}", -1))

    def check_new(self, checkpoint: str) -> None:
        """The table is there, and may have files of others."""

    def partition_columns(self, given: Sequence[str]) -> Sequence[str]:
        return self.same_partitions(given, partitions_of(self.name.load(), self.shown))

    def check(self, schema: T.StructType, by: Sequence[str], columns: pa.Schema | None = None) -> None:
        check_types(schema, self.shown)
        self.check_partitions(schema, by)
        if columns is not None:
            require_columns(self.name.load(), columns, self.shown)

    def put(self, batch: int, schema: T.StructType, by: Sequence[str], parts: Sequence[Part]) -> None:
        if not parts:
            return
        find_parts(self, parts)
        table = self.name.load()
        if table is None:
            raise CheckpointError(f"{self.shown}: the table is gone; begin anew with a new checkpoint")
        self.same_partitions(by, partitions_of(table, self.shown))
        assert self.query_id is not None, "Spark writes the query's id before its first batch"
        summary = {f"{_PREFIX}query": self.query_id, f"{_PREFIX}batch": f"{batch}"}
        try:
            with table.transaction() as once:
                once.set_properties({f"{_PREFIX}{self.query_id}": f"{batch}"})
                once.add_files(
                    [f"{self.address}/{part.path}" for part in parts],
                    snapshot_properties=summary,
                    check_duplicate_files=False,
                )
        except Exception as error:  # of pyiceberg, of its catalog, of its file system
            raise CheckpointError(
                f"{self.shown}: batch {batch} could not be committed: {first_line(error)}; the same call of start() repeats it"
            ) from error


def open_folder(name: TableName, schema: T.StructType, columns: pa.Schema, by: Sequence[str]) -> IcebergFolder:
    """The folder of a table's files; the table is made if there is none."""
    folder = IcebergFolder("", name.option, None, name)
    folder.check(schema, ())
    table = name.load()
    if table is None:
        folder.check_partitions(schema, by)
        table = name.create(columns, by)
    place = table.properties.get("write.data.path", f"{table.location().rstrip('/')}/data")
    return IcebergFolder(place, name.option, None, name)


def partitions_of(table: Any, shown: str) -> list[str]:
    """The columns that a table is partitioned by; raises if it is by anything else."""
    by = []
    for field in table.spec().fields:
        if str(field.transform) != "identity":
            raise OptionError(
                f"{shown}: the table is partitioned by {field.transform} of a column, and files are written by values of columns; "
                "give a table that is partitioned by columns, or a function (rows, batch_id) that writes with Spark's Iceberg"
            )
        by.append(table.schema().find_column_name(field.source_id))
    return by


def require_columns(table: Any, columns: pa.Schema, shown: str) -> None:
    """Raise if a table cannot take rows of these columns, as pyiceberg would when they are added."""
    from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible

    try:
        _check_pyarrow_schema_compatible(table.schema(), columns, format_version=table.format_version)
    except ValueError as error:
        wrong = [re.sub(r"[│┃\s]+", " ", line).strip() for line in str(error).splitlines() if "❌" in line]
        what = "; ".join(wrong).replace("❌ ", "") or " ".join(str(error).split())
        raise OptionError(
            f"{shown}: the result does not fit the table (column, the table's, the result's): {what}; cast it, or give another table"
        ) from error
