"""How tuples enter: all streams as one union, every wire column in a slot, and the unit of a row as a SQL expression.

    _alias  _keep  _ts   k0  k1   s0_0  s0_1  s1_0
      0     true   ...   17       'x'         2.5        slots are shared by all aliases that have a column of the type

How they get from here to their units, by mail or by Spark's shuffle, is for `supersteps` to say; the unit is the same.

Invariant: where a row goes depends on its keys and the routing alone: Spark may run a task twice. A key class has one
slot, so equal keys hash alike whichever stream they come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.plan.model import COUNTED, TIME, InputPlan, Plan
from watersmeet.routing.hypercube import Hypercube
from watersmeet.runtime.spark_stream import wire
from watersmeet.units.pack import PASS

ALIAS, KEEP, UNIT = "_alias", "_keep", "_unit"
ROWS_SEEN = "rows"
SEEN = "watersmeet-seen"
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


def entering(plan: Plan, frames: Mapping[str, DataFrame], entrance: int | None) -> tuple[DataFrame, Slots]:
    """The union of all aliases' wire rows, observed and routed; all to one unit if there is an entrance."""
    wires = [wire(plan, source, frames[source.stream]) for source in plan.inputs]
    slots = _slots(plan, wires)
    selected = []
    for source, rows in zip(plan.inputs, wires, strict=True):
        wire_of = {slot: name for name, slot in slots.of[source.position].items()}
        wire_of |= {f"k{c}": name for c, name in source.keys.items()}
        columns = [F.lit(source.position).cast("int").alias(ALIAS), F.expr(_keep(source, rows)).alias(KEEP)]
        for slot, kind in slots.types.items():
            value = F.col(f"`{wire_of[slot]}`") if slot in wire_of else F.lit(None).cast(kind)
            columns.append(value.alias(slot))
        selected.append(rows.select(*columns))
    seen = reduce(DataFrame.union, selected).observe(SEEN, *_seen_columns(plan, slots))
    if entrance is not None:
        return seen.select(F.lit(entrance).alias(UNIT), ALIAS, *slots.types), slots
    kept = seen.where(f"{KEEP} AND {_time_us(slots)} IS NOT NULL")
    grid = routed_by_sql(plan)
    unit = F.lit(0) if grid is None else _unit_column(grid)
    return kept.select(unit.alias(UNIT), ALIAS, *slots.types), slots


def routed_by_sql(plan: Plan) -> Hypercube | None:
    """The grid, if keys alone say where rows go; otherwise source tasks route them, who need not copy them for that."""
    if len(plan.stages) != 1:
        return None
    routing = plan.stages[0].routing
    return routing if isinstance(routing, Hypercube) and not routing.spreads else None


def _slots(plan: Plan, wires: list[DataFrame]) -> Slots:
    types: dict[str, str] = {}
    numbers: dict[str, int] = {}
    of = []
    for source, rows in zip(plan.inputs, wires, strict=True):
        own: dict[str, str] = {}
        taken: dict[str, int] = {}
        key_of = {name: f"k{c}" for c, name in reversed(list(source.keys.items()))}
        kinds = {f.name: f.dataType.simpleString() for f in rows.schema.fields}
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
    parts += [f"`{name}` IS NOT NULL" for name in source.required if name != TIME]
    return " AND ".join(parts) or "true"


def _time_us(slots: Slots) -> str:
    """The event time of a row in microseconds, whatever its type."""
    return f"coalesce({', '.join(text for slot, text in _MICROS.items() if slot in slots.types)})"


def _seen_columns(plan: Plan, slots: Slots) -> list[Any]:
    """What a batch's rows, its maxima and the rows without a time are observed by, before any filter."""
    time, columns = _time_us(slots), [F.count(F.lit(1)).alias(ROWS_SEEN)]
    for n, stream in enumerate(plan.join.streams):
        aliases = [i for i in plan.inputs if i.stream == stream]
        first = f"{ALIAS} = {aliases[0].position}"
        columns.append(F.expr(f"max(CASE WHEN {first} THEN {time} END)").alias(f"max{n}"))
        timeless = f"{KEEP} AND {time} IS NULL AND ({' OR '.join(_counts(i, slots) for i in aliases)})"
        columns.append(F.expr(f"count(CASE WHEN {timeless} THEN 1 END)").alias(f"timeless{n}"))
    return columns


def _counts(source: InputPlan, slots: Slots) -> str:
    """Where a row counts for its stream: an alias that stands earlier may have counted it."""
    counted = slots.of[source.position].get(COUNTED)
    own = f"{ALIAS} = {source.position}"
    return own if counted is None else f"({own} AND NOT coalesce({counted}, false))"


def _unit_column(grid: Hypercube) -> Any:
    """The unit of a row; exploded where an alias is copied to several."""
    per_alias = [_units(grid, position) for position in range(len(grid.classes_of))]
    if all(len(units) == 1 for units in per_alias) and len({units[0] for units in per_alias}) == 1:
        return F.expr(per_alias[0][0])
    cases = " ".join(f"WHEN {n} THEN array({', '.join(units)})" for n, units in enumerate(per_alias))
    return F.explode(F.expr(f"CASE {ALIAS} {cases} END"))


def _units(grid: Hypercube, position: int) -> list[str]:
    """One expression per copy."""
    base, free = [], []
    strides = grid.strides
    for dim, share, stride, fixed in zip(grid.dimensions, grid.shares, strides, grid.fixed(position), strict=True):
        if fixed and share > 1:
            base.append(f"pmod(hash({', '.join(f'k{c}' for c in dim)}), {share}) * {stride}")
        elif not fixed:
            free.append([c * stride for c in range(share)])
    shared = " + ".join(base)
    return [f"{shared} + {sum(o)}" if shared else f"{sum(o)}" for o in itertools.product(*free)]
