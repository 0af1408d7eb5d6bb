"""Tables in process as wire rows: what tables say of their rows, then what Spark would compute, and what their batches lose.

Invariant: wire rows are those that Spark would make of the same rows. They have the whole row with them only if somebody asks for dropped rows, and
these leave it before they enter. A row of a stream becomes wire rows that lie together, in the order of the stream's rows, so batches can be cut by either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import enlarge, integers
from watersmeet.dataflow.clock import Clock, find_ahead
from watersmeet.errors import DataError
from watersmeet.expressions.evaluator import evaluate, mask
from watersmeet.expressions.lookup import look_up
from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.operators.enter import AHEAD, BROKEN, CONTENT, Copies, find_broken_rows
from watersmeet.operators.late import ROW, SCHEMA, find_lost
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.source_sql import asked_tables, enters, items
from watersmeet.query.stream import COPY, TAKEN
from watersmeet.runtime.arrow_types import DUCKDB, normal
from watersmeet.runtime.broken_rows import mark_broken


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
        if not self.plan.sets_aside:
            return {i.alias: self._read(i, rows[i.stream], now_us) for i in given}
        out: dict[str, pa.Table] = {}
        for stream in dict.fromkeys(i.stream for i in given):
            out |= self._read_whole([i for i in given if i.stream == stream], rows[stream], now_us)
        return {i.alias: out[i.alias] for i in given}

    def _read_whole(self, aliases: list[InputPlan], rows: pa.Table, now_us: int) -> dict[str, pa.Table]:
        """The wire rows of all aliases of a stream; rows that break an expression of one are marked for all of them."""
        try:
            return {i.alias: self._read(i, rows, now_us) for i in aliases}
        except DataError:
            marked = mark_broken(self.plan, aliases[0].stream, rows)
            return {i.alias: self._read(i, rows, now_us, marked[i.alias]) for i in aliases}

    def _read(self, source: InputPlan, rows: pa.Table, now_us: int, wire: pa.Table | None = None) -> pa.Table:
        """The wire rows of an alias; `wire` if they have been computed."""
        found = self._look_up(source, rows, now_us) if source.lookups else rows
        wire = _compute_wire(self.plan, source, found) if wire is None else _add_content(source, wire, found)
        wire = mark_ahead(source, wire, self.plan.timezone, now_us)
        if self.late:
            wire = wire.append_column(ROW, found.select(rows.column_names).to_struct_array())
        return Copies(source.lookups).mark(wire)

    def _find_usable(self, source: InputPlan, rows: pa.Table, now_us: int) -> np.ndarray:
        """Which rows have an event time that is not too far ahead: others are looked up nowhere."""
        time = rows.column(self.plan.join.spec(source.alias).time)
        timed = mark_ahead(source, pa.table({TIME: time}), self.plan.timezone, now_us)
        usable = pc.is_valid(time).to_numpy()
        if AHEAD in timed.column_names:
            usable = usable & ~timed.column(AHEAD).to_numpy()
        return np.asarray(usable)

    def _find_taken(self, other: InputPlan, rows: pa.Table, usable: np.ndarray) -> pa.Array:
        """Which rows of a stream an alias of it with tables takes: some copy of the row passes."""
        found = look_up(rows, other.lookups, self.tables, usable, self.plan.timezone)
        passes = mask(found, enters(other, DUCKDB), f"a condition or key of {other.alias}", self.plan.timezone)
        taken = np.zeros(rows.num_rows, bool)
        taken[found.column(COPY).to_numpy()[passes]] = True
        return pa.array(taken)

    def _look_up(self, source: InputPlan, rows: pa.Table, now_us: int) -> pa.Table:
        """A stream's rows with what tables say of them."""
        usable = self._find_usable(source, rows, now_us)
        for other in asked_tables(source, self.plan.inputs):
            rows = rows.append_column(TAKEN + other.alias, self._find_taken(other, rows, usable))
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

    def cut_by_rows(self, wires: Mapping[str, pa.Table], rows: int) -> Iterator[dict[str, pa.Table]]:
        """Batches of so many rows of every stream."""
        for begin in range(0, max(self.count(a, wire) for a, wire in wires.items()), rows):
            yield {a: self.slice(a, wire, begin, rows) for a, wire in wires.items()}

    def cut_by_time(self, wires: Mapping[str, pa.Table], span_us: int) -> Iterator[dict[str, pa.Table]]:
        """Batches of a span of event time: a row belongs to that of the highest time its stream has reached. Spans without rows make no batch."""
        reached = {alias: self._reach_times(alias, wire) for alias, wire in wires.items()}
        begin = min((int(ts[ts > FIRST][0]) for ts in reached.values() if (ts > FIRST).any()), default=0)
        numbers = {alias: (np.maximum(ts, begin) - begin) // span_us for alias, ts in reached.items()}
        for number in np.unique(np.concatenate(list(numbers.values()))).tolist():
            ends = {alias: np.searchsorted(found, [number, number + 1]).tolist() for alias, found in numbers.items()}
            yield {a: self.slice(a, wire, ends[a][0], ends[a][1] - ends[a][0]) for a, wire in wires.items()}

    def _reach_times(self, alias: str, wire: pa.Table) -> np.ndarray:
        """By row of an alias' stream the highest time up to it; rows without one, or that tables know nothing of, change nothing."""
        time = wire.column(TIME).combine_chunks()
        known = np.where(np.asarray(pc.is_valid(time)), integers(time), FIRST)
        if BROKEN in wire.column_names:
            known = np.where(find_broken_rows(wire), FIRST, known)
        if alias in self._begins:
            begins = self._begins[alias]
            padded = np.append(known, FIRST)
            known = np.where(begins[1:] > begins[:-1], padded[begins[:-1]], FIRST)
        return np.maximum.accumulate(known) if len(known) else known


def mark_ahead(source: InputPlan, wire: pa.Table, timezone: str, now_us: int) -> pa.Table:
    """Wire rows that arrive at an instant, marked where they are too far ahead, if there is such a bound."""
    if source.max_ahead_us is None:
        return wire
    time = wire.column(TIME).combine_chunks()
    now = now_us if time.type.tz is not None or now_us == LAST else _read_clock(now_us, timezone)
    return wire.append_column(AHEAD, pa.array(find_ahead(integers(time), now, source.max_ahead_us)))


def _read_clock(now_us: int, timezone: str) -> int:
    """What a clock in a time zone shows at an instant, as if that were UTC."""
    now = pa.table({"now": pa.array([now_us], pa.timestamp("us", "UTC"))})
    shown = evaluate(now, ["CAST(now AS TIMESTAMP)"], "now", timezone).column(0).combine_chunks()
    return int(integers(shown)[0])


def set_aside(
    plan: Plan, clock: Clock, wires: Mapping[str, pa.Table], batch: int
) -> tuple[dict[str, pa.Table], pa.Table]:
    """Wire rows by alias without the whole rows, and what of them is dropped, if they had these with them."""
    lost = [SCHEMA.empty_table()]
    for alias, wire in wires.items():
        if ROW in wire.column_names and wire.num_rows:
            source = plan.by_alias[alias]
            lost.append(find_lost(clock, source, wire.combine_chunks(), batch))
    bare = {alias: wire.drop_columns([ROW]) if ROW in wire.column_names else wire for alias, wire in wires.items()}
    return bare, pa.concat_tables(lost)


def _compute_wire(plan: Plan, source: InputPlan, table: pa.Table) -> pa.Table:
    columns: dict[str, pa.ChunkedArray] = {}
    computed: dict[str, str] = {}
    plain = {c.name: c.expr.columns[0].column for c in source.columns if c.expr.duckdb_template == "{0}" and not c.cast}
    for name, text in items(source, plan.inputs, DUCKDB, wrap_plain=False):
        if name in plain:
            columns[name] = table.column(plain[name])
        else:
            computed[name] = text
            columns[name] = None
    if computed:
        values = normal(
            evaluate(table, list(computed.values()), f"a condition or key of {source.alias}", plan.timezone)
        )
        for n, name in enumerate(computed):
            columns[name] = values.column(n)
    return _add_content(source, enlarge(pa.table(columns)), table)


def _add_content(source: InputPlan, wire: pa.Table, table: pa.Table) -> pa.Table:
    """Wire rows of an alias with a ROWS window have the columns of whole rows, which number them."""
    if source.rows is None:
        return wire
    for name in table.column_names:
        wire = wire.append_column(CONTENT + name, table.column(name))
    return enlarge(wire)
