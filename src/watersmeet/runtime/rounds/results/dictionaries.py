"""Which columns of a Parquet file get a dictionary of their values.

Arrow's writer begins a dictionary for every column, and gives it up when it is larger than 1 MB. Until then it looks up every value. For a column whose values
hardly repeat that is most of the time of writing, and wasted (docs/performance.md has the figures). So a few thousand rows are looked at first.

    of SAMPLE rows      2,000 are different     there are 20,000 values or more: no dictionary
                        1,700 are different     there are some 6,000: a dictionary

Invariant: what a reader gets does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.runtime.rounds.results.coded import is_coded

SAMPLE = 2048
"""So many rows, evenly spaced, are looked at."""
MOST_DISTINCT = 0.9
"""With a larger share of different values a dictionary would be given up: 10,000 texts of 100 bytes are 1 MB."""


def choose_dictionaries(rows: pa.Table) -> list[str]:
    """The columns, by their paths in the file, whose values repeat; parts of nested values are not looked at, and get one.

    >>> choose_dictionaries(pa.table({"city": ["Rome", "Oslo"] * 500, "id": range(1000)}))
    ['city']
    """
    sample = rows if rows.num_rows <= SAMPLE else rows.take(pa.array(_spread(rows.num_rows)))
    return [
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if pa.types.is_nested(field.type) or _repeats(column)
        for path in _leaves(field.name, field.type)
    ]


def _spread(count: int) -> np.ndarray:
    return np.linspace(0, count - 1, SAMPLE).astype(np.int64)


def _repeats(column: pa.ChunkedArray) -> bool:
    if is_coded(column.type):
        return True
    if not len(column) or pa.types.is_boolean(column.type):
        return False
    return bool(pc.count_distinct(column, mode="all").as_py() <= MOST_DISTINCT * len(column))


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths of a column's leaves, as Parquet names them.

    >>> list(_leaves("c", pa.struct([("x", pa.list_(pa.int8())), ("y", pa.map_(pa.string(), pa.int8()))])))
    ['c.x.list.element', 'c.y.key_value.key', 'c.y.key_value.value']
    """
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves(f"{path}.{part.name}", part.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path
