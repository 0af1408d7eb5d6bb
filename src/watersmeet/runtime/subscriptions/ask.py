"""One-time queries: evaluated once over the tuples that the registry keeps after the latest committed batch, without a trace.

What is kept is defined, not found: a tuple counts if some registered query may still use it, that is, if it arrived in a batch
from the query's effect on, and its time is not before the query's cut (`registry.shared.compiled`). Units drop what is
older when that is worth the writing; until then it lies there, and is not looked at.

    batch |      |
          |      |  q2                  the region of a query: what arrived from its effect on, and is not before its cut
        7 |      +-------+
          |              |  q1          a unit's region, the union of its queries', is a staircase
        3 |              +--------
          +----------------------- ts

Under the shared plan a tuple is stored at every unit that has a query over its stream. It is taken from the first unit in whose region it lies: all
copies of a tuple lie at the same point, and a unit has all tuples of its region: its cuts only grow, so none was dropped before.
Under RJoin it is stored where its values belong until no query can use it, and taken once by its number.

Invariant: the answer is a function of the batches and the queries, as of the latest committed batch.
Implements: Idreos, Liarou, Koubarakis (2008), section 4: one-time queries over stored tuples; Delta is each query's window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers, large_type, shrink
from watersmeet.columns.spark_types import arrow_type
from watersmeet.dataflow.clock import stream_cuts, watermarks
from watersmeet.errors import QueryError, UnsupportedError
from watersmeet.plan.model import TIME
from watersmeet.plan.options import Options
from watersmeet.query.join import Join
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.plan import BATCH, RegistryPlan, wire_name
from watersmeet.registry.rjoin.index import ID
from watersmeet.registry.shared.compiled import unit_of
from watersmeet.registry.subscription import Registered, condition, refuse_unlisted_in
from watersmeet.registry.template import hull
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.subscriptions.registry import types_of
from watersmeet.sql.parse import parse

BATCH_ROWS = 65_536

Stored = Callable[[int, str], Iterable[pa.Table]]
"""The segments of a unit and a stream."""
Needs = Mapping[str, Mapping[int, "Region"]]
"""By stream and unit what is kept."""


@dataclass(frozen=True)
class Region:
    """Which tuples a unit's queries may still use, by the batch in which they arrived and their event time."""

    effects: np.ndarray
    """Ascending."""
    cuts: np.ndarray
    """The lowest cut of all queries with this effect or an earlier one."""

    @classmethod
    def of(cls, needs: Iterable[tuple[int, int]]) -> Region:
        """The union of the regions of queries, by (effect, cut)."""
        effects, cuts = np.array(sorted(needs), np.int64).reshape(-1, 2).T
        return cls(effects, np.minimum.accumulate(cuts))

    def holds(self, batch: np.ndarray, ts: np.ndarray) -> np.ndarray:
        """Which tuples lie in it.

        >>> region = Region.of([(3, 50), (7, 10), (8, 90)])
        >>> region.holds(np.array([2, 3, 7, 7, 9]), np.array([60, 60, 20, 5, 20])).tolist()
        [False, True, True, False, True]
        """
        at = np.searchsorted(self.effects, batch, side="right") - 1
        return (at >= 0) & (ts >= self.cuts[np.maximum(at, 0)])


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


def find_needs(plan: RegistryPlan, queries: Mapping[str, Registered], maxima: Mapping[str, int]) -> Needs:
    """What is kept, after a batch that answered these queries and reached these maxima."""
    marks = watermarks(plan.streams, maxima)
    found: dict[str, dict[int, set[tuple[int, int]]]] = {}
    by_template = {(q.query.template, q.effect) for q in queries.values()}
    for template, effect in by_template:
        unit = unit_of(template, plan.units)
        for stream, cut in stream_cuts(hull([template]), marks).items():
            found.setdefault(stream, {}).setdefault(unit, set()).add((effect, cut))
    return {s: {unit: Region.of(needs) for unit, needs in sorted(units.items())} for s, units in found.items()}


def read_kept(plan: RegistryPlan, join: Join, needs: Needs, stored: Stored) -> dict[str, pa.Table]:
    """The kept tuples of a query's streams, each once, in order of event time."""
    out = {}
    for stream in dict.fromkeys(i.stream for i in join.inputs):
        if stream not in needs:
            raise QueryError(
                f"no tuples of {stream!r} are kept: no registered query that has taken effect reads it; add() one whose window says how long to keep them"
            )
        found = _by_id if plan.engine == "rjoin" else _by_unit
        out[stream] = _rename(plan.streams[stream], found(plan, stream, needs[stream], stored))
    return out


def _by_unit(plan: RegistryPlan, stream: str, needs: Mapping[int, Region], stored: Stored) -> list[pa.Table]:
    """The shared plan's tuples: every unit has those of its queries."""
    regions, parts = list(needs.values()), []
    for n, unit in enumerate(needs):
        for table in stored(unit, stream):
            mine = _lie_in(regions[n : n + 1], table) & ~_lie_in(regions[:n], table)
            parts.append(table.filter(pa.array(mine)))
    return parts


def _by_id(plan: RegistryPlan, stream: str, needs: Mapping[int, Region], stored: Stored) -> list[pa.Table]:
    """RJoin's tuples: they lie where their values belong, under numbers that tell them apart."""
    tables = [table for unit in range(plan.units) for table in stored(unit, stream)]
    if not tables:
        return []
    whole = pa.concat_tables([t.select(tables[0].column_names) for t in tables])
    _, first = np.unique(integers(whole.column(ID).combine_chunks()), return_index=True)
    once = whole.take(pa.array(first))
    return [once.filter(pa.array(_lie_in(list(needs.values()), once)))]


def _lie_in(regions: list[Region], table: pa.Table) -> np.ndarray:
    """Which tuples lie in some region."""
    batch, ts = (integers(table.column(c).combine_chunks()) for c in (BATCH, TIME))
    out = np.zeros(table.num_rows, np.bool_)
    for region in regions:
        out |= region.holds(batch, ts)
    return out


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
