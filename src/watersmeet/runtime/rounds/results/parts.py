"""Rows as files of a folder of results, written by the worker that has them.

    part-17-5f0c...-3-42-0.snappy.parquet           batch 17, its attempt, partition 3, task attempt 42, first file
    day=2026-01-31/part-....snappy.parquet          with folders: Hive's style, escaped as Spark escapes

A writer holds rows until a row group is worth writing, and begins a new file when one is large, or when other columns are coded than before (`coded`). A file
counts only if the log names it, so it is written straight to its place.

Invariant: no two tasks write the same file, whatever Spark repeats. A writer that fails deletes what it has written; what a dead process leaves is named by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from watersmeet.columns.retype import retype_table
from watersmeet.errors import CheckpointError
from watersmeet.kernels.hash_window import group_rows
from watersmeet.runtime.rounds.checkpoint import OBJECT_STORES
from watersmeet.runtime.rounds.results.coded import choose_step, code_schema, count_decoded, join_rows
from watersmeet.runtime.rounds.results.dictionaries import choose_dictionaries
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.statistics import describe

FILE_BYTES = 128 * 2**20
"""A file that is as large is complete."""
GROUP_BYTES = 64 * 2**20
"""So many bytes of rows are held, then written; as Arrow has them."""
GROUP_ROWS = 2**20
"""The most rows of a row group."""
GROUP_DECODED = 512 * 2**20
"""The most bytes of a row group for readers that take all of it at once: texts that repeat are many more then."""
MOST_OPEN = 64
"""A task has at most so many files open between two row groups."""
NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The folder of NULL, and of an empty text."""
_ESCAPED = {n: f"%{n:02X}" for n in [*range(32), 127, *map(ord, "\"#%'*/:=?\\{[]^")]}
PARTS = "path string, rows bigint, bytes bigint, statistics string"
"""How tasks name the files that they have written, as rows."""
PARTS_SCHEMA = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("statistics", pa.string())]
)


class Part(NamedTuple):
    """A file that a task has written."""

    path: str
    """Below the folder."""
    rows: int
    bytes: int
    statistics: str = ""
    """What is known of its columns, see `statistics`; empty if nobody asks for it."""


class Folders(Protocol):
    """Which folder a row goes to."""

    def name_rows(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """For every row the name of its folder."""


@dataclass(frozen=True)
class ByColumns:
    """A folder for every value of some columns, one below the other."""

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    """The columns that have their values as Spark writes them as text."""
    empty: str = NOTHING
    """The folder of an empty text."""

    def name_rows(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        levels = [
            self._name_level(name, rows.column(text)) for name, text in zip(self.columns, self.texts, strict=True)
        ]
        return pc.binary_join_element_wise(*levels, "/")

    def _name_level(self, name: str, column: pa.ChunkedArray) -> pa.Array:
        coded = column.cast(pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
        names = [f"{escape(name)}={self._escape(value)}" for value in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)

    def _escape(self, value: str | None) -> str:
        return escape(value) if value else NOTHING if value is None else self.empty


def escape(text: str) -> str:
    """A name as Spark writes it into a path.

    >>> escape("a/b=c 100%")
    'a%2Fb%3Dc 100%25'
    """
    return text.translate(_ESCAPED)


@dataclass(frozen=True)
class PartFiles:
    """How rows become files: what all tasks know."""

    folder: SinkFolder
    columns: pa.Schema
    """Of the rows that come: the file's, and those that folders are named by."""
    file: pa.Schema
    """Of the files, with what Spark says of it as metadata; empty if lines of text are written, which come as the first column."""
    folders: Folders | None = None
    describes: bool = False
    """Whether parts come with statistics."""

    def open(self, stem: str) -> PartWriter:
        """A task's own writer; its files begin with the stem."""
        return PartWriter(self, stem)

    @property
    def is_text(self) -> bool:
        return not self.file.names

    @property
    def takes_codes(self) -> bool:
        """Whether columns of texts may come as dictionaries: not where each of many folders would get the whole of them."""
        return self.folders is None and not self.is_text


class PartWriter:
    """Writes the rows of one task."""

    def __init__(self, how: PartFiles, stem: str) -> None:
        self.how, self.stem = how, stem
        self.parts: list[Part] = []
        self._open: dict[str, _PartFile] = {}
        self._begun: list[str] = []
        self._held = self._decoded = self._rows = 0
        """Bytes and rows that are held."""

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            self._delete()

    def write(self, rows: pa.Table) -> None:
        """Write rows, whose columns come in the order of `columns`."""
        if self._rows + rows.num_rows > GROUP_ROWS:
            self._write_groups()
        rows = rows.rename_columns(self.how.columns.names).cast(code_schema(self.how.columns, rows.schema))
        for folder, mine in self._by_folder(rows):
            if folder not in self._open:
                self._open[folder] = self._begin(folder)
            self._open[folder].held.append(mine if self.how.is_text else mine.select(self.how.file.names))
        self._held += rows.nbytes
        self._decoded += count_decoded(rows)
        self._rows += rows.num_rows
        if self._held >= GROUP_BYTES or self._decoded >= GROUP_DECODED:
            self._write_groups()

    def close(self) -> list[Part]:
        """Complete all files."""
        for folder in list(self._open):
            self._write_group(folder)
            self._finish(folder)
        return self.parts

    def _by_folder(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if not rows.num_rows:
            return
        if self.how.folders is None:
            yield "", rows
            return
        named = self.how.folders.name_rows(rows)
        coded = (named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named).dictionary_encode()
        for code, found in group_rows(np.array(coded.indices, np.int64)):
            yield coded.dictionary[code].as_py(), rows if found is None else rows.take(pa.array(found))

    def _begin(self, folder: str) -> _PartFile:
        name = f"{self.stem}-{len(self._begun)}{'.json' if self.how.is_text else '.snappy.parquet'}"
        path = f"{folder}/{name}" if folder else name
        self._begun.append(path)
        return _PartFile(self.how, path)

    def _write_groups(self) -> None:
        for folder in list(self._open):
            self._write_group(folder)
            if self._open[folder].size >= FILE_BYTES or len(self._open) > MOST_OPEN:
                self._finish(folder)
        self._held = self._decoded = self._rows = 0

    def _write_group(self, folder: str) -> None:
        """Write what is held of a folder's rows; in a file of its own if other columns are coded than in the file that is open."""
        rows = self._open[folder].let_go()
        if rows is None:
            return
        if not self._open[folder].fits(rows):
            self._finish(folder)
            self._open[folder] = self._begin(folder)
        self._open[folder].write(rows)

    def _finish(self, folder: str) -> None:
        self.parts.append(self._open.pop(folder).close())

    def _delete(self) -> None:
        for file in self._open.values():
            with suppress(Exception):
                file.close()
        for path in self._begun:
            with suppress(Exception):
                self.how.folder.system.delete_file(self.how.folder.path(path))


@dataclass
class _PartFile:
    """One file while it is written."""

    how: PartFiles
    path: str
    held: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    _out: pa.NativeFile | None = None
    _writer: pq.ParquetWriter | None = None
    _footer: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 0 if self._out is None else int(self._out.tell())

    def let_go(self) -> pa.Table | None:
        """What is held, as one table."""
        if not self.held:
            return None
        table = join_rows(self.held)
        self.held.clear()
        return table

    def fits(self, table: pa.Table) -> bool:
        """Whether the same columns are coded as in the row groups before."""
        return self._writer is None or code_schema(self.how.file, table.schema).equals(self._writer.schema)

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self.rows += table.num_rows
        out = self._open()
        if self.how.is_text:
            lines = table.column(0).to_pylist()
            out.write(("\n".join(lines) + "\n").encode())
            return
        self._write_table(table)

    def write_nothing(self) -> None:
        """Make it a file without rows."""
        self._open()
        if not self.how.is_text:
            self._write_table(self.how.file.empty_table())

    def close(self) -> Part:
        known = ""
        if self._writer is not None:
            self._writer.close()
            known = describe(self._footer[0], self.how.file, self.rows) if self.how.describes else ""
        assert self._out is not None
        size = self.size
        self._out.close()
        return Part(self.path, self.rows, size, known)

    def _open(self) -> pa.NativeFile:
        if self._out is None:
            folder = self.how.folder
            above = folder.path(*self.path.split("/")[:-1])
            if folder.system.type_name not in OBJECT_STORES:
                folder.system.create_dir(above, recursive=True)
            self._out = folder.system.open_output_stream(folder.path(self.path), compression=None)
        return self._out

    def _write_table(self, table: pa.Table) -> None:
        schema = code_schema(self.how.file, table.schema)
        if self._writer is None:
            options: dict[str, Any] = {"compression": "snappy", "version": "2.6", "store_schema": False}
            options |= {"use_dictionary": choose_dictionaries(table), "write_batch_size": choose_step(table)}
            self._writer = pq.ParquetWriter(self._out, schema, metadata_collector=self._footer, **options)
            self._writer.add_key_value_metadata(self.how.file.metadata)  # without Arrow's schema it would write none
        self._writer.write_table(retype_table(table, schema), row_group_size=GROUP_ROWS)


def write_empty(how: PartFiles, stem: str) -> Part:
    """A file without rows: readers learn the columns of results from it before there are any."""
    file = _PartFile(how, f"{stem}-0.snappy.parquet")
    file.write_nothing()
    return file.close()


def find_parts(folder: SinkFolder, parts: Sequence[Part]) -> list[int]:
    """When the files of parts were written, in milliseconds; raises if one is not there as its writer left it."""
    found = folder.system.get_file_info([folder.path(part.path) for part in parts])
    for part, info in zip(parts, found, strict=True):
        if info.type != pafs.FileType.File or info.size != part.bytes:
            raise CheckpointError(
                f"{folder.path(part.path)} is not there as a worker wrote it: {folder.option}= must be a folder that the driver and "
                "all of Spark's workers share"
            )
    return [(info.mtime_ns or 0) // 10**6 for info in found]
