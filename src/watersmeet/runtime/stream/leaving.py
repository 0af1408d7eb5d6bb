"""How results and metrics leave a stateful stage.

    all columns flat   typed columns
    one is nested      blobs, Arrow IPC streams of some rows each   --mapInArrow(Opener)-->   typed columns

transformWithState takes what leaves as pandas frames. Flat columns pass these as Arrow arrays. Of nested values Spark makes Python objects and Arrow arrays
again: NaN inside becomes NULL, and a date that Python does not have, a map with NaN for a key or a text that is not UTF-8 ends the query. mapInArrow takes Arrow's
arrays as they are, and one more way to Python and back costs less than the objects did.

Invariant: a value leaves as the unit has let it out, whatever its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from watersmeet.columns.arrow import from_bytes, shrink, slice_by_bytes, to_bytes
from watersmeet.runtime.spark.workers import (
    METRICS,
    after_task,
    aside_columns,
    columns_of,
    errors_first,
    result_batches,
)
from watersmeet.runtime.stream.messages import BLOB_BYTES

BLOB = "blob"
SEALED = f"{BLOB} binary, `{METRICS}` string"
_SEALED = pa.schema([(BLOB, pa.binary()), (METRICS, pa.string())])


@dataclass(frozen=True)
class Leaving:
    """Results and metrics of a schema, as frames for transformWithState."""

    schema: pa.Schema

    @property
    def is_sealed(self) -> bool:
        """Whether rows leave as blobs."""
        return any(pa.types.is_nested(f.type) for f in self.schema)

    def frame(self, results: Sequence[pa.Table], texts: Sequence[str] = ()) -> pd.DataFrame:
        """Results, and texts in the column of metrics, as one frame."""
        schema = _SEALED if self.is_sealed else self.schema
        tables = _seal(results) if self.is_sealed else [pa.table(columns_of(schema, t)) for t in results]
        if texts:
            tables.append(pa.table(aside_columns(schema, texts)))
        table = pa.concat_tables([shrink(t) for t in tables], promote_options="permissive").combine_chunks()
        series = {name: pd.arrays.ArrowExtensionArray(table.column(name)) for name in table.column_names}
        return pd.DataFrame({name: pd.Series(array, copy=False) for name, array in series.items()}, copy=False)


def _seal(results: Sequence[pa.Table]) -> list[pa.Table]:
    """Results as blobs; a table whose column is NULL throughout may have no type for it."""
    if not results:
        return []
    together = pa.concat_tables(results, promote_options="permissive")
    blobs = pa.array([to_bytes(piece) for piece in slice_by_bytes(together, BLOB_BYTES)], pa.binary())
    return [pa.table({BLOB: blobs, METRICS: pa.nulls(len(blobs), pa.string())})]


@dataclass
class Opener:
    """mapInArrow: blobs and metrics to typed columns of a schema."""

    schema: pa.Schema

    @errors_first
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(BLOB).drop_null():
                yield from result_batches(columns_of(self.schema, from_bytes(blob.as_buffer())), self.schema)
            texts = batch.column(METRICS).drop_null().to_pylist()
            yield from result_batches(aside_columns(self.schema, texts), self.schema)
        after_task()
