"""Results with nested values leave a stateful stage sealed, as blobs.

    all columns flat   typed columns                                                          as they are
    one is nested      blobs, Arrow IPC streams of some rows each   --mapInArrow(Opener)-->   typed columns

transformWithState takes what leaves as pandas frames. Flat columns pass these as Arrow arrays. Of nested values Spark makes Python objects and Arrow arrays
again: NaN inside becomes NULL, and a date that Python does not have, a map with NaN for a key or a text that is not UTF-8 ends the query. mapInArrow takes Arrow's
arrays as they are, and one more way to Python and back costs less than the objects did.

Invariant: a value leaves as the unit has let it out, whatever its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes, slice_by_bytes, to_bytes
from watersmeet.runtime.spark.workers import (
    METRICS,
    after_task,
    as_task,
    aside_columns,
    columns_of,
    result_batches,
)
from watersmeet.runtime.stream.messages import BLOB_BYTES

BLOB = "blob"
DDL = f"{BLOB} binary, `{METRICS}` string"
SCHEMA = pa.schema([(BLOB, pa.binary()), (METRICS, pa.string())])


def has_nested(schema: pa.Schema) -> bool:
    """Whether rows of a schema leave sealed."""
    return any(pa.types.is_nested(f.type) for f in schema)


def seal(results: Sequence[pa.Table]) -> list[pa.Table]:
    """Results as a table of blobs; a table whose column is NULL throughout may have no type for it."""
    if not results:
        return []
    together = pa.concat_tables(results, promote_options="permissive")
    return [
        pa.table({BLOB: pa.array([to_bytes(piece) for piece in slice_by_bytes(together, BLOB_BYTES)], pa.binary())})
    ]


@dataclass
class Opener:
    """mapInArrow: blobs and metrics to typed columns of a schema."""

    schema: pa.Schema

    @as_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(BLOB).drop_null():
                yield from result_batches(columns_of(self.schema, from_bytes(blob.as_buffer())), self.schema)
            texts = batch.column(METRICS).drop_null().to_pylist()
            yield from result_batches(aside_columns(self.schema, texts), self.schema)
        after_task()
