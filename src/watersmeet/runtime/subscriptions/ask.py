"""One-time queries: evaluated once over the tuples that the registry keeps after the latest committed batch, without a trace.

What is kept is defined in `registry.kept`. Under the shared plan a tuple is stored at every unit that has a query over its stream. It is taken from the first unit in whose region it lies: all
copies of a tuple lie at the same point, and a unit has all tuples of its region: its cuts only grow, so none was dropped before.
Under RJoin it is stored where its values belong until no query can use it, and taken once by its number.

Invariant: the answer is a function of the batches and the queries, as of the latest committed batch.
Implements: Idreos, Liarou, Koubarakis (2008), section 4: one-time queries over stored tuples; Delta is each query's window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers, large_type, shrink
from watersmeet.columns.spark_types import arrow_type
from watersmeet.errors import QueryError, UnsupportedError
from watersmeet.plan.options import Options
from watersmeet.query.join import Join
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.bind import condition, refuse_unlisted_in
from watersmeet.registry.kept import Needs, Region, lie_in
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.rjoin.index import ID
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.subscriptions.binding import types_of
from watersmeet.sql.parse import parse

BATCH_ROWS = 65_536

Stored = Callable[[int, str], Iterable[pa.Table]]
"""The segments of a unit and a stream."""


def bind(sql: str, plan: RegistryPlan) -> Join:
    """A one-time query; SQL from outside, so it is held to the list of functions."""
    specs = {name: replace(s, lateness_us=0, idle_us=None, site=None) for name, s in plan.streams.items()}
    join = parse(sql, specs, plan.session)
    types = types_of(join)
    for expr in (*join.filters, *(o.expr for o in join.select), *(condition(p, types) for p in join.predicates)):
        for ref in expr.columns:
            kind = join.spec(ref.alias).schema[ref.column]
            if arrow_type(kind) is None:
                raise UnsupportedError(
                    f"{ref}: a one-time query takes plain types, and this is {kind}; select its fields in the stream's source"
                )
    refuse_unlisted_in(join, types)
    return join


def read_kept(plan: RegistryPlan, join: Join, needs: Needs, stored: Stored, units: int) -> dict[str, pa.Table]:
    """The kept tuples of a query's streams, each once, in order of event time; so many units store them."""
    out = {}
    for stream in dict.fromkeys(i.stream for i in join.inputs):
        if stream not in needs:
            raise QueryError(
                f"no tuples of {stream!r} are kept: no registered query that has taken effect reads it; add() one whose window says how long to keep them"
            )
        regions = needs[stream]
        found = _by_id(stream, regions, stored, units) if plan.engine == "rjoin" else _by_unit(stream, regions, stored)
        out[stream] = _rename(plan.streams[stream], found)
    return out


def _by_unit(stream: str, needs: Mapping[int, Region], stored: Stored) -> list[pa.Table]:
    """The shared plan's tuples: every unit has those of its queries."""
    regions, parts = list(needs.values()), []
    for n, unit in enumerate(needs):
        for table in stored(unit, stream):
            mine = lie_in(regions[n : n + 1], table) & ~lie_in(regions[:n], table)
            parts.append(table.filter(pa.array(mine)))
    return parts


def _by_id(stream: str, needs: Mapping[int, Region], stored: Stored, units: int) -> list[pa.Table]:
    """RJoin's tuples: they lie where their values belong, under numbers that tell them apart."""
    tables = [table for unit in range(units) for table in stored(unit, stream)]
    if not tables:
        return []
    whole = pa.concat_tables([t.select(tables[0].column_names) for t in tables])
    _, first = np.unique(integers(whole.column(ID).combine_chunks()), return_index=True)
    once = whole.take(pa.array(first))
    return [once.filter(pa.array(lie_in(list(needs.values()), once)))]


def answer(join: Join, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The answer over tuples in order of event time: no tuple is late, whatever the batches."""
    return LocalRun(join, tables, Options(units=1)).run(BATCH_ROWS)


def _rename(spec: StreamSpec, parts: list[pa.Table]) -> pa.Table:
    """Wire rows under the stream's own names, in order of event time; columns of nested types are left out."""
    plain = {name: kind for name, text in spec.schema.items() if (kind := arrow_type(text)) is not None}
    wires = [wire_name(spec, name) for name in plain]
    schema = pa.schema([(name, large_type(kind)) for name, kind in plain.items()])
    found = [part.select(wires).rename_columns(list(plain)).cast(schema) for part in parts]
    return shrink(pa.concat_tables([schema.empty_table(), *found]).sort_by(spec.time))
