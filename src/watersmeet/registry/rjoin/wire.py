"""Rows of RJoin as Arrow tables that every process understands: shapes by name, columns by their place in the shape.

Invariant: what is read is what was written, under the numbers of the reader; rows of shapes that are not in force are left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered.rewriting import BIND_AT, TEMPLATE, WAIT
from watersmeet.registry.rjoin.ring_wire import block, row_columns, table
from watersmeet.registry.rjoin.templates import Templates


def rows_table(templates: Templates, rows: np.ndarray) -> pa.Table:
    """Rows on their way, or stored."""
    named = rows.copy()
    named[:, TEMPLATE] = templates.names[rows[:, TEMPLATE]]
    named[:, WAIT] = rows[:, WAIT] - templates.catalogue.arrays[BIND_AT][rows[:, TEMPLATE], 0]
    return table(named, row_columns(templates.catalogue.layout))


def row_names(templates: Templates) -> list[str]:
    """The columns of a table of rows: as many as the widest shape of this process needs."""
    return [name for name in row_columns(templates.catalogue.layout) if name != "next"]


def rows_block(templates: Templates, found: pa.Table) -> np.ndarray:
    """The rows of a table."""
    rows = block(found, row_columns(templates.catalogue.layout))
    numbers = templates.number_of(rows[:, TEMPLATE])
    rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
    rows[:, TEMPLATE] = numbers
    rows[:, WAIT] += templates.catalogue.arrays[BIND_AT][numbers, 0]
    return rows
