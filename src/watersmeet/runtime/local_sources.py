"""Arrow tables as streams: their schemas by Spark's names, their event times, and the disorder found in them.

Invariant: a table is read as it is; nothing is sorted or dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import StreamError
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime.arrow_types import normal, spark_name
from watersmeet.units.codes import integers


def source_of(name: str, given: Any) -> tuple[pa.Table, StreamSpec]:
    """A stream's table and what planning may know of it."""
    table = given.source if isinstance(given, Stream) else given
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise StreamError(f"stream {name}: the local runtime reads pyarrow tables, not {type(table).__name__}")
    table = normal(table)
    schema = {f.name: spark_name(f.type) for f in table.schema}
    if len(schema) < len(table.schema):
        raise StreamError(f"stream {name}: two columns have the same name; rename one")
    if isinstance(given, Stream):
        return table, StreamSpec(name, schema, given.time, given.lateness_us, given.idle_us, given.site)
    times = [c for c, t in schema.items() if t in ("timestamp", "timestamp_ntz")]
    if "ts" in times:
        times = ["ts"]
    if len(times) != 1:
        found = f"its timestamp columns are {', '.join(times)}" if times else "it has no timestamp column"
        raise StreamError(f"stream {name}: which column is the event time? {found}; give wm.Stream(table, time=...)")
    return table, StreamSpec(name, schema, times[0], _disorder_us(table.column(times[0])))


def _disorder_us(time: pa.ChunkedArray) -> int:
    """How far behind the highest event time so far a row is, at most."""
    known = time.drop_null()
    if len(known) == 0:
        return 0
    ts = integers(known.combine_chunks())
    behind = np.maximum.accumulate(ts).view(np.uint64) - ts.view(np.uint64)  # more than 63 bits, if years are far apart
    return int(behind.max())
