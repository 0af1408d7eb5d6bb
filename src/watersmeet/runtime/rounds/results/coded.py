"""Rows whose texts repeat, on their way into a Parquet file: as Arrow dictionaries, which its writer takes as they are.

    chunks      [t1 t2] 0 0 1    [t2 t3] 0 1 1    t1 t4
    row group   [t1 t2 t3 t4] 0 0 1 1 2 2 0 3              one dictionary, which becomes the file's

The writer looks up no text then. A text that is in a thousand results was one look-up in each chunk of them.

Invariant: values and their order stay. A column of a row group is coded as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

PAGE_BYTES = 2**20
"""Values are handed to the encoder in steps of so many bytes, after each of which it may end a page."""
STEP_ROWS, MOST_STEP_ROWS = 1024, 65_536
"""Rows of a step: Arrow's default, and the most. Of a coded column it looks for the least and the greatest text anew in each step."""


def is_coded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind))


def code_schema(schema: pa.Schema, like: pa.Schema) -> pa.Schema:
    """A schema with dictionaries of its types where another one, column by column, has dictionaries."""
    for n, kind in enumerate(like.types):
        if is_coded(kind):
            schema = schema.set(n, schema.field(n).with_type(pa.dictionary(kind.index_type, schema.field(n).type)))
    return schema


def join_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one, in which a column is coded if most of its rows were."""
    total = sum(table.num_rows for table in tables)
    schema = tables[0].schema
    for n, field in enumerate(schema):
        kinds = [table.schema.field(n).type for table in tables]
        coded = next((kind for kind in kinds if is_coded(kind)), None)
        if coded is not None:
            rows = sum(table.num_rows for table, kind in zip(tables, kinds, strict=True) if is_coded(kind))
            schema = schema.set(n, field.with_type(coded if 2 * rows >= total else coded.value_type))
    return pa.concat_tables([_recode(table, schema) for table in tables]).unify_dictionaries()


def _recode(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for n, field in enumerate(schema):
        column = table.column(n)
        if is_coded(field.type) and not is_coded(column.type):
            table = table.set_column(n, field, column.dictionary_encode())
        elif is_coded(column.type) and not is_coded(field.type):
            table = table.set_column(n, field, column.cast(field.type))
    return table


def count_decoded(table: pa.Table) -> int:
    """The bytes of a table's rows without dictionaries."""
    size = int(table.nbytes)
    for column in table.columns:
        if is_coded(column.type):
            size += sum(len(c) * c.dictionary.nbytes // max(len(c.dictionary), 1) for c in column.chunks)
    return size


def choose_step(table: pa.Table) -> int:
    """How many rows a file's writer hands to the encoder at once."""
    if not any(is_coded(kind) for kind in table.schema.types):
        return STEP_ROWS
    plain = [column.nbytes for column in table.columns if not is_coded(column.type)]
    width = max(plain, default=0) // max(table.num_rows, 1) + 1
    return max(STEP_ROWS, min(MOST_STEP_ROWS, PAGE_BYTES // width))
