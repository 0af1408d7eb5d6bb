"""Rows in process to wire rows: what tables say of them, then what Spark would compute.

Invariant: a row of a stream becomes wire rows that lie together, in the order of the stream's rows, so batches can be cut by either.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions.lookup import look_up
from watersmeet.kernels.instants import LAST
from watersmeet.operators.enter import AHEAD, Copies
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.query.stream import COPY
from watersmeet.runtime.wires import make_wire, mark_ahead


class WireReader:
    """Reads the streams of a plan, with `late` whole rows, too; `tables` has what their tuples and results are looked up in, by name."""

    def __init__(self, plan: Plan, tables: Mapping[str, pa.Table], *, late: bool = False) -> None:
        self.plan, self.late = plan, late
        self.tables = {name: tables[name] for name in plan.join.tables.values()}
        self._begins: dict[str, np.ndarray] = {}
        """By alias whose tuples are looked up, where the wire rows of every row that was read last begin."""

    def read(self, rows: Mapping[str, pa.Table], now_us: int = LAST) -> dict[str, pa.Table]:
        """Rows by stream, which arrive when the clock shows `now_us`, as wire rows by alias."""
        given = [i for i in self.plan.inputs if i.stream in rows]
        return {i.alias: self._read(i, rows[i.stream], now_us) for i in given}

    def _read(self, source: InputPlan, rows: pa.Table, now_us: int) -> pa.Table:
        found = self._look_up(source, rows, now_us) if source.lookups else rows
        whole = rows.column_names if self.late else ()
        return Copies().mark(make_wire(self.plan, source, found, whole=whole, now_us=now_us))

    def _look_up(self, source: InputPlan, rows: pa.Table, now_us: int) -> pa.Table:
        """A stream's rows with what tables say of them."""
        time = rows.column(self.plan.join.spec(source.alias).time)
        timed = mark_ahead(source, pa.table({TIME: time}), self.plan.timezone, now_us)
        usable = pc.is_valid(time).to_numpy()
        if AHEAD in timed.column_names:
            usable = usable & ~timed.column(AHEAD).to_numpy()
        found = look_up(rows, source.lookups, self.tables, usable, self.plan.timezone)
        self._begins[source.alias] = np.searchsorted(found.column(COPY).to_numpy(), np.arange(rows.num_rows + 1))
        return found

    def count(self, alias: str, wire: pa.Table) -> int:
        """How many rows of its stream an alias' wire rows were."""
        return len(self._begins[alias]) - 1 if alias in self._begins else wire.num_rows

    def slice(self, alias: str, wire: pa.Table, begin: int, count: int) -> pa.Table:
        """The wire rows that some rows of an alias' stream have become."""
        if alias not in self._begins:
            return wire.slice(begin, count)
        begins = self._begins[alias]
        first, end = (int(begins[min(n, len(begins) - 1)]) for n in (begin, begin + count))
        return wire.slice(first, end - first)
