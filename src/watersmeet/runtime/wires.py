"""Tables in process as wire rows, and what their batches lose.

Invariant: wire rows are those that Spark would make of the same rows. They have the whole row with them only if somebody asks for dropped rows, and
these leave it before they enter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from watersmeet.columns.arrow import enlarge, integers
from watersmeet.dataflow.clock import Clock, find_ahead
from watersmeet.expressions.evaluator import evaluate
from watersmeet.kernels.instants import LAST
from watersmeet.operators.enter import AHEAD, CONTENT, OWN, PASS
from watersmeet.operators.late import ROW, SCHEMA, find_lost
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.source_sql import condition, items, own_condition
from watersmeet.runtime.arrow_types import DUCKDB, normal


def make_wire(
    plan: Plan, source: InputPlan, table: pa.Table, *, whole: Sequence[str] = (), now_us: int = LAST
) -> pa.Table:
    """A source's table as wire rows that arrive at an instant; each brings the columns of the whole row along, if they are wanted."""
    wire = mark_ahead(source, _compute_wire(plan, source, table), plan.timezone, now_us)
    return wire.append_column(ROW, table.select(list(whole)).to_struct_array()) if whole else wire


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
    passes = condition(source, DUCKDB)
    if passes is not None:
        computed[PASS] = f"coalesce({passes}, false)"
    own = own_condition(source, DUCKDB)
    if own is not None:
        computed[OWN] = f"coalesce({own}, false)"
    if computed:
        values = normal(
            evaluate(table, list(computed.values()), f"a condition or key of {source.alias}", plan.timezone)
        )
        for n, name in enumerate(computed):
            columns[name] = values.column(n)
    if source.rows is not None:
        columns |= {CONTENT + name: table.column(name) for name in table.column_names}
    return enlarge(pa.table(columns))
