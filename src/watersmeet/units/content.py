"""What routing may ask of rows: codes of their keys, a hash of their content, values; each computed once, when asked.

Invariant: everything depends on the rows' values alone, so every process and every attempt routes alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels.hashing import combine
from watersmeet.plan.model import COUNTED, Plan
from watersmeet.routing.hypercube import dimension_code
from watersmeet.units.blocks import is_bytes, is_text
from watersmeet.units.codes import codes, floats, integers, text_hash


class WireContent:
    """The rows of a table; `keys` names the column of every class."""

    def __init__(self, plan: Plan, keys: Mapping[int, str], table: pa.Table) -> None:
        self.plan, self.keys, self.table, self.rows = plan, keys, table, table.num_rows
        self._spread: np.ndarray | None = None

    def key(self, classes: tuple[int, ...]) -> np.ndarray:
        """One code for the row's keys in these classes."""
        return dimension_code(
            classes, {c: codes(self._column(self.keys[c]), self.plan.classes[c].kind) for c in classes}
        )

    def spread(self) -> np.ndarray:
        """A hash of the row's content."""
        if self._spread is None:
            out = np.zeros(self.rows, np.int64)
            for name in self.table.column_names:
                if name != COUNTED:
                    out = combine(out, _bits(self._column(name)))
            self._spread = out
        return self._spread

    def value(self, column: str) -> np.ndarray:
        """A column as doubles."""
        values = self._column(column)
        if pa.types.is_floating(values.type):
            return floats(values)
        return integers(values).astype(np.float64)

    def _column(self, name: str) -> pa.Array:
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bits(column: pa.Array) -> np.ndarray:
    """64 bits of every value; equal values have equal bits. NULL is like zero or the empty text."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)  # the rest of the row will do
    if pa.types.is_floating(kind):
        return np.array(pc.fill_null(column, 0.0).cast(pa.float64()).to_numpy(zero_copy_only=False)).view(np.int64)
    if is_text(kind):
        return text_hash(pc.fill_null(column, ""))
    if is_bytes(kind):
        return text_hash(pc.fill_null(column, b""))
    if pa.types.is_decimal(kind):
        return text_hash(pc.fill_null(column.cast(pa.large_string()), ""))
    if column.null_count:
        valid = np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
        out = np.zeros(len(column), np.int64)
        out[valid] = integers(column.drop_null())
        return out
    return integers(column)
