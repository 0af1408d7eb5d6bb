"""How tuples enter: all streams as one union, every wire column in a slot, and the unit of a row as a SQL expression; and how workers read the union.

    _alias  _keep  _ts   k0  k1   s0_0  s0_1  s1_0
      0     true   ...   17       'x'         2.5        slots are shared by all aliases that have a column of the type

Rows without a time, or too far ahead, enter only where somebody asks for dropped rows; then all bring their whole rows along, one struct for each stream.

How they get from here to their units, by mail or by Spark's shuffle, is for `supersteps` to say; the unit is the same.

Invariant: where a row goes depends on its keys and the routing alone: Spark may run a task twice. A key class has one
slot, so equal keys hash alike whichever stream they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from watersmeet.columns.arrow import integers, mark_utc
from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import Dataflow, Inbox, Intake, put
from watersmeet.kernels.hash_window import group_rows
from watersmeet.operators.enter import AHEAD, BROKEN, Copies
from watersmeet.operators.late import ROW
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.source_sql import PASS
from watersmeet.query.stream import COUNTED
from watersmeet.runtime.spark.types import type_name
from watersmeet.runtime.stream.wire import wire

ALIAS, KEEP, UNIT = "_alias", "_keep", "_unit"
FIRST = "_first"
"""The unit of a row's first copy, where rows are copied, or somebody asks for dropped ones."""
NOBODY = -1
"""The alias of a tick."""
ROWS = "rows"
OBSERVED = "watersmeet-seen"
"""The name under which a batch's maxima are observed; they stand in Spark's own progress, too."""
WALL_TIME = f"{TIME}_ntz"
"""The slot of event times of type timestamp_ntz."""
_MICROS = {
    TIME: f"unix_micros({TIME})",
    WALL_TIME: f"CAST(CAST(CAST({WALL_TIME} - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS INTERVAL SECOND) AS DECIMAL(20,6)) * 1000000 AS BIGINT)",
}


@dataclass(frozen=True)
class Slots:
    """The columns of the union: their types in order, and by alias the slot of every wire column."""

    types: Mapping[str, str]
    of: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Entrance:
    """How rows enter. Of a registry, and where keys alone do not decide, source tasks route rows by their content."""

    units: Sequence[Sequence[str]] = ()
    """By alias the units of a row as SQL expressions."""
    is_sequenced: bool = False
    """Whether all rows go to one unit, the sequencer."""

    @classmethod
    def of(cls, plan: Plan) -> Entrance:
        if len(plan.stages) != 1 or plan.sequenced or plan.parts or plan.join.lookups:
            return cls((), bool(plan.sequenced))
        per_alias = [plan.stages[0].routing.units_in_sql(position) for position in range(len(plan.inputs))]
        return cls(per_alias if all(per_alias) else ())

    @classmethod
    def by_content(cls, plan: Intake) -> Entrance:
        """Where source tasks route rows; rows that are to be numbered go to one unit all the same."""
        return cls((), any(source.rows is not None for source in plan.inputs))

    @property
    def copies_rows(self) -> bool:
        """Whether SQL copies rows, one for each of several units."""
        return any(len(units) > 1 for units in self.units)

    @property
    def is_routed_by_content(self) -> bool:
        return not (self.units or self.is_sequenced)


@dataclass(frozen=True)
class Way:
    """What Spark does to the rows of the union on their way to the units: they are observed and routed, all to one unit, the sequencer, if there is one."""

    plan: Intake
    entrance: Entrance
    slots: Slots
    late: bool = False

    def route(self, union: DataFrame, observed: str | Observation) -> DataFrame:
        """Rows of the union with their units; what is observed of them has this name."""
        slots, late, marks = self.slots, self.late, BROKEN in union.columns
        rows = union.observe(observed, *_metric_columns(self.plan, slots, marks=marks))
        rows = rows if late else rows.where(f"NOT {AHEAD}")
        if self.entrance.is_sequenced:
            rows = rows.where(f"{ALIAS} <> {NOBODY}")
        elif late:
            rows = rows.where(f"{KEEP} OR {BROKEN} IS NOT NULL" if marks else KEEP)
        else:
            rows = rows.where(f"{KEEP} AND {_time_us(slots)} IS NOT NULL")
        units = self.entrance.units
        if marks:  # what is broken has no keys, and goes nowhere
            units = [[f"coalesce({unit}, 0)" for unit in own] for own in units]
        unit, first = _unit_columns(units) if units else (F.lit(0), F.lit(0))
        aside = [AHEAD, *(row_slot(self.plan, stream) for stream in self.plan.streams)] if late else []
        aside += [BROKEN] if marks else []
        if late or self.entrance.copies_rows:
            aside.append(first.alias(FIRST))
        return rows.select(unit.alias(UNIT), ALIAS, *aside, *slots.types)

    def read_observed(self, observed: Mapping[str, Any]) -> tuple[int, Seen]:
        """The rows of a batch, once for every alias, and what they bring."""
        seen = Seen()
        for n, stream in enumerate(self.plan.streams):
            if observed.get(f"max{n}") is not None:
                seen.highest[stream] = int(observed[f"max{n}"])
            if observed[f"aside{n}"]:
                seen.aside[stream] = int(observed[f"aside{n}"])
            if observed.get(f"broken{n}"):
                seen.broken[stream] = int(observed[f"broken{n}"])
        return int(observed[ROWS]), seen


def union_streams(
    plan: Intake,
    entrance: Entrance,
    frames: Mapping[str, DataFrame],
    *,
    late: bool = False,
    ticks: bool = False,
    order: Sequence[str] = (),
) -> tuple[DataFrame, Way]:
    """The union of all aliases' wire rows, in an `order` of aliases or that of FROM, and their way; with `ticks` a row a second that goes nowhere, so that batches come without any other."""
    wires = [wire(source, plan, frames, late=late) for source in plan.inputs]
    slots = _slots(plan, wires)
    selected = []
    for source, wired in zip(plan.inputs, wires, strict=True):
        wire_of = {slot: name for name, slot in slots.of[source.position].items()}
        wire_of |= {f"k{c}": name for c, name in source.keys.items()}
        columns = [F.lit(source.position).cast("int").alias(ALIAS), F.expr(_keep(source, wired)).alias(KEEP)]
        columns.append((F.col(AHEAD) if AHEAD in wired.columns else F.lit(False)).alias(AHEAD))
        columns += [F.col(BROKEN)] if BROKEN in wired.columns else []
        columns += _whole_rows(plan, source, wires) if late else []
        for slot, kind in slots.types.items():
            value = F.col(f"`{wire_of[slot]}`") if slot in wire_of else F.lit(None).cast(kind)
            columns.append(value.alias(slot))
        selected.append(wired.select(*columns))
    if order:
        aliases = [source.alias for source in plan.inputs]
        selected = [selected[aliases.index(alias)] for alias in order]
    if ticks:
        selected.append(_tick(selected[0]))
    return reduce(DataFrame.union, selected), Way(plan, entrance, slots, late)


def _tick(like: DataFrame) -> DataFrame:
    """Rows of no alias, in the columns of others, one a second."""
    fixed = {ALIAS: F.lit(NOBODY), KEEP: F.lit(False), AHEAD: F.lit(False)}
    columns = [fixed.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in like.schema.fields]
    return like.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).load().select(*columns)


def row_slot(plan: Intake, stream: str) -> str:
    """The column of the union that has the whole rows of a stream."""
    return f"{ROW}{list(plan.streams).index(stream)}"


def _whole_rows(plan: Intake, source: InputPlan, wires: Sequence[DataFrame]) -> list[Column]:
    """The whole rows of all streams: an alias has those of its own."""
    kinds = {i.stream: wired.schema[ROW].dataType for i, wired in zip(plan.inputs, wires, strict=True)}
    values = {s: F.col(ROW) if s == source.stream else F.lit(None).cast(kind) for s, kind in kinds.items()}
    return [values[stream].alias(row_slot(plan, stream)) for stream in plan.streams]


def _slots(plan: Intake, wires: list[DataFrame]) -> Slots:
    types: dict[str, str] = {}
    numbers: dict[str, int] = {}
    of = []
    for source, rows in zip(plan.inputs, wires, strict=True):
        own: dict[str, str] = {}
        taken: dict[str, int] = {}
        key_of = {name: f"k{c}" for c, name in reversed(list(source.keys.items()))}
        kinds = {f.name: type_name(f.dataType) for f in rows.schema.fields if f.name not in (AHEAD, BROKEN, ROW)}
        types |= {f"k{c}": kinds[name] for c, name in source.keys.items()}
        for name, kind in kinds.items():
            if name == TIME:
                own[name] = TIME if kind == "timestamp" else WALL_TIME
                types[own[name]] = kind
            elif name in key_of:
                own[name] = key_of[name]
            else:
                number = numbers.setdefault(kind, len(numbers))
                own[name] = f"s{number}_{taken.get(kind, 0)}"
                taken[kind] = taken.get(kind, 0) + 1
                types[own[name]] = kind
        of.append(own)
    return Slots(types, tuple(of))


def _keep(source: InputPlan, rows: DataFrame) -> str:
    """Whether a row can match anything, its time aside."""
    parts = [f"`{PASS}`"] if PASS in rows.columns else []
    parts += [f"{BROKEN} IS NULL"] if BROKEN in rows.columns else []
    parts += [f"`{name}` IS NOT NULL" for name in source.required if name != TIME]
    return " AND ".join(parts) or "true"


def _time_us(slots: Slots) -> str:
    """The event time of a row in microseconds, whatever its type."""
    return f"coalesce({', '.join(text for slot, text in _MICROS.items() if slot in slots.types)})"


def _metric_columns(plan: Intake, slots: Slots, *, marks: bool = False) -> list[Any]:
    """What a batch's rows, its maxima and the rows that are set aside are observed by, before any filter."""
    time, columns = _time_us(slots), [F.expr(f"count_if({ALIAS} <> {NOBODY})").alias(ROWS)]
    for n, stream in enumerate(plan.streams):
        aliases = [i for i in plan.inputs if i.stream == stream]
        first = f"{ALIAS} = {aliases[0].position}"
        whole = f" AND {BROKEN} IS NULL" if marks else ""
        columns.append(F.expr(f"max(CASE WHEN {first} AND NOT {AHEAD}{whole} THEN {time} END)").alias(f"max{n}"))
        if marks:
            columns.append(F.expr(f"count_if({first} AND {BROKEN} IS NOT NULL)").alias(f"broken{n}"))
        aside = f"{KEEP} AND ({time} IS NULL OR {AHEAD}) AND ({' OR '.join(_counts(i, slots) for i in aliases)})"
        columns.append(F.expr(f"count(CASE WHEN {aside} THEN 1 END)").alias(f"aside{n}"))
    return columns


def _counts(source: InputPlan, slots: Slots) -> str:
    """Where a row counts for its stream: an alias that stands earlier may have counted it."""
    counted = slots.of[source.position].get(COUNTED)
    own = f"{ALIAS} = {source.position}"
    return own if counted is None else f"({own} AND NOT coalesce({counted}, false))"


def _unit_columns(per_alias: Sequence[Sequence[str]]) -> tuple[Column, Column]:
    """The unit of a row, exploded where an alias is copied to several, and the first of them."""
    if all(len(units) == 1 for units in per_alias) and len({units[0] for units in per_alias}) == 1:
        return F.expr(per_alias[0][0]), F.expr(per_alias[0][0])
    cases = " ".join(f"WHEN {n} THEN array({', '.join(units)})" for n, units in enumerate(per_alias))
    return F.explode(F.expr(f"CASE {ALIAS} {cases} END")), F.expr(f"(CASE {ALIAS} {cases} END)[0]")


Arrivals = dict[int, Inbox]
"""What has come for units, by unit."""


def by_alias(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of the union by the position of their alias."""
    alias = integers(table.column(ALIAS).combine_chunks())
    for position in np.unique(alias).tolist():
        yield position, slice_or_take(table, np.flatnonzero(alias == position))


def wire_of(slots: Slots, position: int, rows: pa.Table) -> pa.Table:
    """Rows of the union as an alias' wire rows."""
    names = slots.of[position]
    return mark_utc(rows.select(list(names.values())).rename_columns(list(names)).combine_chunks())


def by_unit_and_alias(plan: Intake, slots: Slots, table: pa.Table) -> Arrivals:
    """Wire tables by unit and alias; every row is taken at most once."""
    out: Arrivals = {}
    for position, mine in by_alias(table):
        wire = wire_of(slots, position, mine)
        for unit, rows in group_rows(integers(mine.column(UNIT).combine_chunks())):
            part = wire if rows is None else wire.take(pa.array(rows))
            out.setdefault(unit, {})[plan.inputs[position].alias] = [part]
    return out


def enter_all(plan: Intake, flow: Dataflow, arrivals: Arrivals) -> Arrivals:
    """Wire rows that Spark has brought to the one unit where all enter, as their entries send them."""
    out: Arrivals = {}
    for alias, tables in ((alias, tables) for inbox in arrivals.values() for alias, tables in inbox.items()):
        copies = Copies(plan.by_alias[alias].lookups)
        for message in (m for table in tables for m in flow.entries[alias].read(copies.mark(table))[1]):
            put(out, message)
    return out


def slice_or_take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Rows of a table; without a copy if they lie together."""
    first, count = int(rows[0]), len(rows)
    return table.slice(first, count) if int(rows[-1]) - first + 1 == count else table.take(pa.array(rows))


def reach(plan: Intake, arrivals: Arrivals) -> dict[str, int]:
    """Event times that the batch has reached for certain: those of the rows at hand."""
    out: dict[str, int] = {}
    for by_alias in arrivals.values():
        for alias, tables in by_alias.items():
            stream = plan.by_alias[alias].stream
            for table in tables:
                times = table.column(TIME).drop_null()
                if len(times):
                    highest = int(integers(times.combine_chunks()).max())
                    out[stream] = max(out.get(stream, highest), highest)
    return out
