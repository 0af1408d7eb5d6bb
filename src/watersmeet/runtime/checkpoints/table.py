"""`wm.state`: what a query keeps, as a table: one row for every stored row.

    unit  alias  event_time           expiry               keys            payload            segment
    3     o      2026-01-31 10:00:03  2026-01-31 10:10:03  {"user":7}      {"total":12.5}     17-...-a3.arrow

Of one alias the columns are those of its stream, in their own types, instead of JSON.

Invariant: exactly the rows that the manifest names, each with what its segment holds. Bytes that are not those that were written are an error, never a row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import shrink
from watersmeet.dataflow.clock import TIMELESS
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.expressions.json_text import json_objects
from watersmeet.plan.model import TIME
from watersmeet.runtime.checkpoints.stored import Stored, StoredKind, is_tuple, open_checkpoint
from watersmeet.storage.segment import SegmentInfo

INSTANT = pa.timestamp("us", "UTC")
WHERE = pa.schema([("unit", pa.int64()), ("alias", pa.string()), ("event_time", INSTANT), ("expiry", INSTANT)])
"""What is known of every stored row."""
SCHEMA = pa.schema([*WHERE, ("keys", pa.string()), ("payload", pa.string()), ("segment", pa.string())])
_AGAIN = 3


def state(checkpoint: Any, spark: Any = None, *, alias: str | None = None, batch: int | None = None) -> Any:
    """What `start()` keeps under a checkpoint: an Arrow table, without a JVM; given a session, a DataFrame.

    Every stored row is a row: its unit, alias, event time, and `expiry`, the event time that the watermarks of the other streams must pass before it is dropped
    (NULL: no window bounds it, or it belongs to an outer or as-of join, whose plan decides); `keys` and `payload` as JSON; and the file that it lies in. With `alias` the
    stored columns of that alias come in their own types instead. `batch` asks for the state after an earlier batch that is still kept, see `start(keep=...)`. The query may run meanwhile.

    >>> import watersmeet as wm
    >>> wm.state("checkpoints/q").group_by(["alias"]).aggregate([("expiry", "max")])  # doctest: +SKIP
    >>> wm.state("checkpoints/q", spark, alias="orders").where("total > 1000").show()  # doctest: +SKIP
    """
    found = _read(checkpoint, alias, batch)
    return found if spark is None else spark.createDataFrame(found)


def _read(checkpoint: Any, alias: str | None, batch: int | None) -> pa.Table:
    """Again, if a running query has dropped what was to be read."""
    for _ in range(_AGAIN):
        stored = open_checkpoint(checkpoint, batch)
        try:
            return _collect(stored) if alias is None else collect_alias(stored, alias)
        except CheckpointError as error:
            known = error
            if open_checkpoint(checkpoint).batch == stored.batch:
                raise
    raise known


def _collect(stored: Stored) -> pa.Table:
    tables = [_show(stored, *place) for place in stored.segments() if is_tuple(place[1])]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def _show(stored: Stored, unit: int, kind: StoredKind, info: SegmentInfo) -> pa.Table:
    rows = shrink(stored.read(info))
    keys = [c.wire for c in kind.columns if c.is_key]
    rest = [name for name in rows.column_names if name not in (TIME, *keys)]
    texts = [json_objects(rename(rows.select(names), kind)).cast(pa.string()) for names in (keys, rest)]
    where = place_rows(rows, unit, kind)
    files = pa.array([info.file] * rows.num_rows, pa.string())
    return pa.Table.from_arrays([*where.columns, *texts, files], schema=SCHEMA)


def collect_alias(stored: Stored, alias: str) -> pa.Table:
    """The stored rows of one alias, in the types of its columns."""
    known = [name for name, kind in stored.kinds.items() if is_tuple(kind)]
    if alias not in known:
        raise OptionError(f"alias={alias!r}: {stored.folder.beside()} keeps rows of {', '.join(known)}")
    tables = []
    for unit, kind, info in stored.segments(alias):
        rows = shrink(stored.read(info))
        own = rename(rows.select([name for name in rows.column_names if name != TIME]), kind)
        where = place_rows(rows, unit, kind).drop_columns(["alias"])
        tables.append(
            pa.Table.from_arrays([*where.columns, *own.columns], names=[*where.column_names, *own.column_names])
        )
    empty = pa.schema([field for field in WHERE if field.name != "alias"]).empty_table()
    return pa.concat_tables(tables, promote_options="default") if tables else empty


def place_rows(rows: pa.Table, unit: int, kind: StoredKind) -> pa.Table:
    """Where rows of a segment are kept, when they happened, and until when they are kept."""
    count = rows.num_rows
    times = pc.cast(pc.cast(rows.column(TIME), pa.int64()), pa.int64()).combine_chunks()
    times = pc.if_else(pc.equal(times, TIMELESS), None, times)
    ends = pa.nulls(count, pa.int64()) if kind.kept_us is None else pc.add(times, kind.kept_us)
    columns = [pa.array([unit] * count, pa.int64()), pa.array([kind.name] * count, pa.string())]
    return pa.Table.from_arrays([*columns, times.cast(INSTANT), ends.cast(INSTANT)], schema=WHERE)


def rename(rows: pa.Table, kind: StoredKind) -> pa.Table:
    """Stored columns under the names that the query knows them by; two that hold the same keep their own."""
    names = {c.wire: c.name for c in kind.columns}
    wanted = [names.get(name, name) for name in rows.column_names]
    taken = {*WHERE.names, *(n for n in wanted if wanted.count(n) > 1)}
    return rows.rename_columns(
        [own if new in taken else new for own, new in zip(rows.column_names, wanted, strict=True)]
    )
