"""State as files that other tools edit: exported as Parquet, one file for each alias, and imported again.

    export/state.json       which checkpoint, batch and query it is of
    export/o.parquet        _unit  _segment  _row  | event_time | columns of the stream

A unit finds partners of a row because its keys have led both there. So keys and event times must stay what they are, and no row can be added: rows may be deleted, and their other columns
changed. The segments that differ are written anew, and then the manifest, at once.

Invariant: what is imported is the exported state, less rows that were deleted, with other values in columns that place nothing; anything else is an error that names the row or
the column, and nothing has been changed. A death leaves the state before, or the state after.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.columns.arrow import shrink, to_bytes
from watersmeet.errors import CheckpointError, DataError
from watersmeet.plan.model import TIME
from watersmeet.runtime.checkpoints.stored import Stored, StoredKind, is_tuple, open_checkpoint
from watersmeet.runtime.checkpoints.table import rename
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, SEGMENTS
from watersmeet.storage.segment import Segment, SegmentInfo, info_of

STATE, EVENT_TIME = "state.json", "event_time"
UNIT, SEGMENT, ROW = "_unit", "_segment", "_row"
"""Where a row lies; these columns stay as they are."""


@dataclass(frozen=True)
class Change:
    """What an import does to a segment."""

    unit: int
    kind: str
    old: SegmentInfo
    rows: pa.Table
    edited: int
    deleted: int


def export_state(checkpoint: Any, to: str | Path, batch: int | None = None) -> dict[str, int]:
    """Write the rows that a checkpoint keeps to a new folder, as Parquet; how many of each alias.

    >>> from watersmeet.runtime.checkpoints.exports import export_state, import_state
    >>> export_state("checkpoints/q", "state")  # doctest: +SKIP
    {'o': 1500, 'c': 20311}
    """
    stored, folder = open_checkpoint(checkpoint, batch), Path(to)
    if folder.exists() and any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; export to a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    for kind in filter(is_tuple, stored.kinds.values()):
        tables = [_lay_out(stored.read(info), kind, unit, info) for unit, _, info in stored.segments(kind.name)]
        if tables:
            whole = pa.concat_tables(tables, promote_options="default")
            pq.write_table(whole, folder / f"{kind.name}.parquet")
            written[kind.name] = whole.num_rows
    about = {"checkpoint": stored.folder.beside(), "rows": written, **_identify(stored)}
    (folder / STATE).write_text(json.dumps(about, indent=1) + "\n")
    return written


def import_state(checkpoint: Any, from_: str | Path) -> dict[str, tuple[int, int]]:
    """Take an exported state that was edited over; by alias how many rows were edited, and deleted. The query must be stopped.

    >>> import_state("checkpoints/q", "state")  # doctest: +SKIP
    {'o': (1, 0)}
    """
    stored, folder = open_checkpoint(checkpoint), Path(from_)
    _check_origin(stored, folder)
    changes = [change for kind in filter(is_tuple, stored.kinds.values()) for change in _compare(stored, kind, folder)]
    if changes:
        _refuse_marked(stored)
        _write(stored, changes)
    out: dict[str, tuple[int, int]] = {}
    for change in changes:
        edited, deleted = out.get(change.kind, (0, 0))
        out[change.kind] = edited + change.edited, deleted + change.deleted
    return out


def _identify(stored: Stored) -> dict[str, Any]:
    manifest = stored.manifest
    return {"batch": manifest.batch, "query_id": manifest.query_id, "fingerprint": manifest.fingerprint}


def _lay_out(rows: pa.Table, kind: StoredKind, unit: int, info: SegmentInfo) -> pa.Table:
    """A segment's rows as they are exported."""
    count, small = rows.num_rows, shrink(rows)
    names = [name for name in small.column_names if name != TIME]
    named = rename(small.select(names), kind)
    places = [pa.array([unit] * count), pa.array([info.id] * count), pa.array(range(count), pa.int64())]
    columns = [*places, small.column(TIME), *named.columns]
    return pa.Table.from_arrays(columns, names=[UNIT, SEGMENT, ROW, EVENT_TIME, *named.column_names])


def _check_origin(stored: Stored, folder: Path) -> None:
    """Raise if the files are not of this state, or if the next batch has begun with it."""
    where = stored.folder.beside()
    try:
        about = json.loads((folder / STATE).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} is no exported state: {STATE} cannot be read ({error})") from error
    differs = [name for name, value in _identify(stored).items() if about.get(name) != value]
    if differs:
        raise CheckpointError(
            f"{folder} was exported from another state than that of {where}: {', '.join(differs)} differ; export it again, and edit that"
        )
    if stored.batch + 1 in stored.folder.numbers(INTENTS):
        raise CheckpointError(
            f"batch {stored.batch + 1} of {where} has begun with the state as it was; start the query until that batch is over, stop it, and export again"
        )


def _refuse_marked(stored: Stored) -> None:
    """Raise if rows are known in other places than the one that was edited."""
    plan, manifest = stored.intent.plan, stored.manifest
    routing = plan.get("routing", [])
    reasons = {
        "marks of rows that have met a partner lie apart from them": "joins" in plan,
        "a ROWS window numbers its rows": any(i[4] is not None for i in plan.get("inputs", [])),
        "it is a registry of queries": not plan.get("inputs"),
        "sites keep copies of rows": bool(manifest.sites),
        "payloads lie apart from their rows": bool(manifest.apart),
        "its routing is not by hash: rows have copies, or are placed by their content": routing[:1] != ["hash"],
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    if why is not None:
        raise CheckpointError(
            f"the state of {stored.folder.beside()} can be exported, but not imported: {why}; bring corrected rows through their sources"
        )


def _compare(stored: Stored, kind: StoredKind, folder: Path) -> Iterator[Change]:
    """What differs between the exported rows of a kind and those that are stored."""
    held = list(stored.segments(kind.name))
    path = folder / f"{kind.name}.parquet"
    if not held:
        return
    if not path.exists():
        raise CheckpointError(f"{path} is missing; to delete all rows of {kind.name}, leave the file without rows")
    given = pq.read_table(path)
    missing = [name for name in (UNIT, SEGMENT, ROW, EVENT_TIME) if name not in given.column_names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: it says where a row lies")
    rows_of: dict[str, list[int]] = {info.id: [] for _, _, info in held}
    strangers = set(given.column(SEGMENT).to_pylist()) - rows_of.keys()
    if strangers:
        raise DataError(f"{path}: there is no segment {sorted(map(str, strangers))[0]!r}; rows cannot be added")
    for n, id in enumerate(given.column(SEGMENT).to_pylist()):
        rows_of[id].append(n)
    for unit, _, info in held:
        picked = pa.array(rows_of[info.id], pa.int64())
        original = stored.read(info)
        change = _compare_segment(_lay_out(original, kind, unit, info), given.take(picked), kind, path)
        if change is not None:
            rows, edited, deleted = change
            own = pa.Table.from_arrays(
                [rows.column(n).cast(f.type) for n, f in zip(_own_names(rows, original), original.schema, strict=True)],
                schema=original.schema,
            )
            yield Change(unit, kind.name, info, own, edited, deleted)


def _own_names(rows: pa.Table, original: pa.Table) -> list[str]:
    """The columns of an exported table in the order of the segment's own."""
    others = iter(rows.column_names[4:])
    return [EVENT_TIME if name == TIME else next(others) for name in original.column_names]


def _compare_segment(
    before: pa.Table, given: pa.Table, kind: StoredKind, path: Path
) -> tuple[pa.Table, int, int] | None:
    """The rows that a segment is to have, how many were edited, and how many deleted; None: it stays."""
    after = _conform(given, before.schema, path)
    numbers = after.column(ROW).to_pylist()
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(before.num_rows)):
        raise DataError(f"{path}: rows of segment {before.column(SEGMENT)[0].as_py()!r} are there twice, or were added")
    after = after.sort_by(ROW)
    old = before.take(after.column(ROW))
    fixed = {UNIT, EVENT_TIME, *(c.name for c in kind.columns if c.is_key)}
    fixed |= {name for name in before.column_names if name.startswith("_")}
    edited = np.zeros(after.num_rows, bool)
    for name in before.column_names:
        differs = _differ(old.column(name), after.column(name))
        if name in fixed and differs.any():
            row = int(np.flatnonzero(differs)[0])
            raise DataError(
                f"{path}: {name} of row {after.column(ROW)[row]} of segment {after.column(SEGMENT)[row].as_py()!r} was changed from {old.column(name)[row].as_py()!r} to "
                f"{after.column(name)[row].as_py()!r}: keys and times place a row; delete it, and bring the right one through its source"
            )
        edited |= differs
    deleted = before.num_rows - after.num_rows
    return (after, int(edited.sum()), deleted) if deleted or edited.any() else None


def _conform(given: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """A table with the columns and types that were exported; tools may have changed how they write them."""
    if set(given.column_names) != set(schema.names):
        odd = sorted(set(given.column_names) ^ set(schema.names))
        raise DataError(f"{path}: its columns are not those that were exported: {', '.join(odd)}")
    columns = []
    for field in schema:
        try:
            columns.append(given.column(field.name).cast(field.type))
        except pa.ArrowInvalid as error:
            raise DataError(f"{path}: column {field.name} was {field.type}, and a value is none: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _differ(old: pa.ChunkedArray, new: pa.ChunkedArray) -> np.ndarray:
    """Where values are not the same; NULL is NULL, and NaN is NaN."""
    pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
    return np.array([a != b and not (a != a and b != b) for a, b in pairs], bool)


def _write(stored: Stored, changes: list[Change]) -> None:
    """New segments, then the manifest that names them."""
    attempt = f"{stored.batch}-{uuid.uuid4().hex[:12]}"
    for change in changes:
        infos = stored.manifest.units[change.unit]["segments"][change.kind]
        at = next(n for n, info in enumerate(infos) if info["id"] == change.old.id)
        infos[at : at + 1] = [asdict(_store(stored, change.rows, attempt))] if change.rows.num_rows else []
    stored.folder.save(MANIFESTS, stored.batch, stored.manifest)


def _store(stored: Stored, rows: pa.Table, attempt: str) -> SegmentInfo:
    segment = Segment.of(rows)
    blob, name = to_bytes(segment.table), f"{attempt}-{segment.id}.arrow"
    stored.folder.write(SEGMENTS, name, blob, durably=True)
    return replace(info_of(segment), file=name, file_bytes=len(blob), checksum=zlib.crc32(blob))
