"""Small files of results merged into larger ones: of a folder, and of a Delta table.

A folder's log has no word for "this file replaces those": Spark's readers take every line for a file that is there. But they read the newest compacted entry instead of
all before it, so that entry can be written anew:

    _spark_metadata/19.compact    part-0-... part-1-... ... part-18-...  part-19-...      before
    _spark_metadata/19.compact    compacted-19-...                       part-19-...      after

A streaming reader of the folder remembers files by name and would take the merged one for a new one. So this is for folders that are read as a whole, and is done when somebody asks
for it and the query is stopped. Of a Delta table it is delta-rs's own business, at any time: the entry says that no row has changed.

Invariant: at any moment the entry names each row once, in files that are there; files are deleted when no newer entry names them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.rounds.checkpoint import OBJECT_STORES
from watersmeet.runtime.rounds.results.delta import DeltaFolder
from watersmeet.runtime.rounds.results.folder import LOG, SinkFolder
from watersmeet.runtime.rounds.results.log import VERSION, SinkLog
from watersmeet.runtime.rounds.results.parts import FILE_BYTES, GROUP_ROWS, Part


@dataclass(frozen=True)
class Compacted:
    """What was done."""

    before: int
    """Files that were merged."""
    after: int
    """Files that they were merged into."""


@dataclass
class _Group:
    """Files that become one."""

    lines: list[str] = field(default_factory=list)
    bytes: int = 0


def compact_table(folder: DeltaFolder, target_bytes: int = FILE_BYTES) -> Compacted:
    """Merge small files of a Delta table. The old ones stay for readers of older versions, until VACUUM."""
    table = folder.table()
    if table is None:
        raise OptionError(f"{folder.shown}: there is no Delta table")
    done = table.optimize.compact(target_size=target_bytes)
    return Compacted(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


def compact_folder(folder: SinkFolder, target_bytes: int = FILE_BYTES) -> Compacted:
    """Merge small files that the newest compacted entry of a folder's log names, and delete them. The query must be stopped."""
    if not folder.is_local and folder.system.type_name not in OBJECT_STORES:
        raise OptionError(f"{folder.address}: an entry of the log can be replaced on a local disk and on object stores")
    newest = max((int(n.removesuffix(".compact")) for n in folder.log_names() if n.endswith(".compact")), default=None)
    if newest is None:
        if not folder.log_names():
            raise OptionError(f"{folder.address} is not a folder of results: it has no {LOG}")
        return Compacted(0, 0)
    log, name = SinkLog(folder), f"{newest}.compact"
    lines = log.lines(name)
    older = [line for line in lines if not folder.is_of(line, newest)]
    merged: list[str] = []
    old: list[str] = []
    for number, group in enumerate(_group(folder, older, target_bytes)):
        if len(group.lines) == 1:
            merged += group.lines
        else:
            merged += log.describe([_merge(folder, group, f"compacted-{newest}-{uuid.uuid4().hex[:12]}-{number}")])
            old += group.lines
    count = len(merged) - (len(older) - len(old))
    if old:
        _replace(folder, name, [VERSION, *merged, *(line for line in lines if folder.is_of(line, newest))])
        _delete(folder, log, old)
    return Compacted(len(old), count)


def _group(folder: SinkFolder, lines: Iterable[str], target_bytes: int) -> Iterator[_Group]:
    """Neighbours of one sub-folder and of the same columns, as long as they are small."""
    open: dict[Any, _Group] = {}
    for line in lines:
        path, size = _path(folder, line), int(json.loads(line)["size"])
        key = path.rpartition("/")[0], _form(folder, path)
        group = open.setdefault(key, _Group())
        if group.lines and group.bytes + size > target_bytes:
            yield open.pop(key)
            group = open.setdefault(key, _Group())
        group.lines.append(line)
        group.bytes += size
    yield from open.values()


def _path(folder: SinkFolder, line: str) -> str:
    """The path of a line's file below the folder."""
    named, root = unquote(json.loads(line)["path"]), unquote(folder.uri(""))
    if not named.startswith(root):
        raise CheckpointError(
            f"the log of {folder.address} names {named}, which is elsewhere: the folder was moved; it cannot be compacted"
        )
    return named.removeprefix(root)


def _form(folder: SinkFolder, path: str) -> Any:
    """What files must have in common: their columns, and what Spark says of these."""
    if not path.endswith(".parquet"):
        return path.rpartition(".")[2]
    schema = pq.read_schema(folder.path(path), filesystem=folder.system)
    return str(schema), tuple(sorted((schema.metadata or {}).items()))


def _merge(folder: SinkFolder, group: _Group, stem: str) -> Part:
    """One file with the rows of some, in their order."""
    paths = [_path(folder, line) for line in group.lines]
    above, ending = paths[0].rpartition("/")[0], paths[0].partition(".")[2].rpartition("/")[2]
    path = "/".join(filter(None, (above, f"{stem}.{ending}")))
    with folder.system.open_output_stream(folder.path(path), compression=None) as out:
        rows = _copy_parquet(folder, paths, out) if ending.endswith("parquet") else _copy_lines(folder, paths, out)
        size = out.tell()
    return Part(path, rows, size)


def _copy_parquet(folder: SinkFolder, paths: Sequence[str], out: Any) -> int:
    schema, rows = pq.read_schema(folder.path(paths[0]), filesystem=folder.system), 0
    with pq.ParquetWriter(out, schema, compression="snappy", version="2.6", store_schema=False) as writer:
        writer.add_key_value_metadata(schema.metadata or {})
        for path in paths:
            with folder.system.open_input_file(folder.path(path)) as file:
                found = pq.ParquetFile(file)
                for number in range(found.num_row_groups):
                    writer.write_table(found.read_row_group(number).cast(schema), row_group_size=GROUP_ROWS)
                rows += found.metadata.num_rows
    return rows


def _copy_lines(folder: SinkFolder, paths: Sequence[str], out: Any) -> int:
    rows = 0
    for path in paths:
        with folder.system.open_input_stream(folder.path(path), compression=None) as file:
            text = file.read()
        rows += text.count(b"\n")
        out.write(text)
    return rows


def _replace(folder: SinkFolder, name: str, lines: Sequence[str]) -> None:
    """Write an entry anew, all at once; Hadoop's checksum of the old one would be wrong."""
    blob, path = "\n".join(lines).encode(), folder.path(LOG, name)
    beside = path if not folder.is_local else folder.path(LOG, f".{name}.{uuid.uuid4().hex}.tmp")
    with folder.system.open_output_stream(beside, compression=None) as file:
        file.write(blob)
    if folder.is_local:
        checksum = folder.path(LOG, f".{name}.crc")
        if os.path.exists(checksum):
            os.unlink(checksum)
        os.replace(beside, path)


def _delete(folder: SinkFolder, log: SinkLog, lines: Sequence[str]) -> None:
    """Delete files, unless the log names one: then a query has been running meanwhile, and has copied the old entry."""
    named = {_path(folder, line) for name in log.needed_names() for line in log.lines(name)}
    for path in (_path(folder, line) for line in lines):
        if path not in named:
            folder.system.delete_file(folder.path(path))
