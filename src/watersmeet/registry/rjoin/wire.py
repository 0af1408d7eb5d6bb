"""Rows of RJoin as Arrow tables that every process understands: shapes by name, columns by their place in the shape, one column of
64-bit integers for each field. NEXT, which links chains, is not a column.

Invariant: what is read is what was written, under the numbers of the reader; rows of shapes that are not in force are left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered.rewriting import BIND_AT, NEXT, TEMPLATE, WAIT
from watersmeet.registry.rjoin.template_catalogue import Layout
from watersmeet.registry.rjoin.templates import Templates

_ROW = ("template", "bound", "wait", "key", "oldest", "newest", "next")
assert _ROW[NEXT] == "next"


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


def row_columns(layout: Layout) -> list[str]:
    """The names of a row's fields, in their order.

    >>> row_columns(Layout(aliases=2, slots=1, columns=3, streams=2, counted=False))[7:]
    ['slot0', 'ts0', 'ts1']
    """
    counted = ("number", "seen") if layout.counted else ("number",) if layout.numbered else ()
    return [
        *_ROW,
        *number_names("slot", layout.slots),
        *(n for p in ("ts", *counted) for n in number_names(p, layout.aliases)),
    ]


def number_names(prefix: str, count: int) -> list[str]:
    """Names with numbers."""
    return [f"{prefix}{n}" for n in range(count)]


def table(lines: np.ndarray, names: list[str]) -> pa.Table:
    """Lines of 64-bit fields as columns."""
    assert lines.shape[1] == len(names)
    kept = [(n, name) for n, name in enumerate(names) if name != "next"]
    return pa.table({name: np.ascontiguousarray(lines[:, n]) for n, name in kept})


def block(found: pa.Table, names: list[str]) -> np.ndarray:
    """The columns side by side; those that are missing are zero, and chains are empty."""
    out = np.zeros((found.num_rows, len(names)), np.int64)
    there = set(found.column_names)
    for n, name in enumerate(names):
        if name == "next":
            out[:, n] = -1
        elif name in there:
            out[:, n] = found.column(name).to_numpy()
    return out
