"""A registry in process, fed batch by batch: no JVM, no checkpoint; the same units as on Spark.

Invariant: the answers of a batch are those that Spark would give for the same batches and the same calls between them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import enlarge, integers, shrink
from watersmeet.columns.retype import retype_table
from watersmeet.columns.spark_types import arrow_type
from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import Dataflow
from watersmeet.dataflow.report import Report
from watersmeet.errors import OptionError, StreamError
from watersmeet.operators.enter import rows_kept
from watersmeet.plan.model import TIME
from watersmeet.query.quotas import Quotas
from watersmeet.query.session import UTC
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.kept import find_needs
from watersmeet.registry.limits import check_quotas
from watersmeet.registry.placement import Placement, even_places, write_placement
from watersmeet.registry.plan import ANSWER_FIELDS, RegistryPlan, wire_name
from watersmeet.registry.versions import MemoryLog, Queries, forget
from watersmeet.runtime.arrow_types import normal, session_in
from watersmeet.runtime.progress import QueryFigures
from watersmeet.runtime.spark.failures import run_without_culprits
from watersmeet.runtime.subscriptions import engines
from watersmeet.runtime.subscriptions.ask import answer, bind, read_kept
from watersmeet.runtime.subscriptions.figures import FigureBook
from watersmeet.runtime.subscriptions.front import RegistryFront
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.runtime.units import InProcess, enter
from watersmeet.runtime.wires import mark_ahead
from watersmeet.storage.manifest import Identity

_SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in ANSWER_FIELDS])


@dataclass
class _Attempt:
    """One run of one batch, and what is true after it."""

    queries: dict[str, Any]
    units: InProcess
    answers: pa.Table


class LocalSubscriptions(RegistryFront):
    """Queries over streams that arrive as Arrow tables."""

    def __init__(
        self,
        specs: Mapping[str, StreamSpec],
        schemas: Mapping[str, pa.Schema],
        units: int = 1,
        engine: str = engines.AUTO,
        timezone: str = UTC,
        quotas: Quotas | None = None,
    ) -> None:
        _check_units(units)
        session = session_in(timezone)
        chosen = engines.choose_engine(engine, len(specs), units, quotas)
        given = check_quotas(quotas, chosen)
        self.plan, self._schemas = RegistryPlan(specs, units, chosen, session, given), dict(schemas)
        accept = partial(engines.accept, self.plan)
        self._registry = Registry(
            specs, MemoryLog(), accept, session, FigureBook(self.plan), engines.sharing_of(chosen)
        )
        self._view = Queries(self._registry.log)
        self._flows = engines.engine_of(self.plan, self._view)
        weakref.finalize(self, forget, self._view.name)
        self._units, self._queries = InProcess(Identity.of(self.plan)), dict[str, Any]()
        self._placement = Placement(even_places(units))
        """Of the next batch."""

    def __repr__(self) -> str:
        queries, batches = len(self._registry.list()), self._units.batch
        return f"Subscriptions in process over {', '.join(self.plan.streams)}: {queries:,} queries, {batches:,} batches"

    def ask(self, sql: str) -> pa.Table:
        """The answer to a query over the tuples that are kept now; see `subscriptions.ask` for what these are."""
        join = bind(sql, self.plan)
        live = self._view.at(self._queries) if self._queries else {}
        units = len(self._placement.stored)
        needs = find_needs(self.plan, live, self._units.maxima, units)

        def read_stored(unit: int, stream: str) -> Iterator[pa.Table]:
            infos = self._units.states[unit].segments.get(stream, []) if unit in self._units.states else []
            return (self._units.store.read(info).table for info in infos)

        return answer(join, read_kept(self.plan, join, needs, read_stored, units))

    @property
    def units(self) -> int:
        """How many units share the queries from the next batch on."""
        return self._placement.units

    def resize(self, units: int) -> None:
        """Let so many units share the queries from the next batch on, as after a restart with other `units=` on Spark; answers do not depend on it."""
        _check_units(units)
        self._placement = self._placement.resize(units)

    def push(self, batch: Mapping[str, pa.Table]) -> pa.Table:
        """Let a batch of tuples arrive; the answers: query, version, ts, answer (a JSON object). A query that breaks it fails, see `list`."""
        wires, seen = {}, Seen()
        for stream, table in batch.items():
            if stream not in self.plan.streams:
                raise StreamError(f"no stream {stream!r}; there are {', '.join(self.plan.streams)}")
            if table.num_rows:
                wires[stream] = self._wire(stream, table, seen)

        def attempt(queries: Mapping[str, Any]) -> _Attempt:
            return self._attempt(wires, seen, queries)

        intent = self._registry.intend(self._queries, self._units.batch)
        done = run_without_culprits(self._registry, intent, attempt, attempt, lambda queries: None)
        self._queries, self._units, self._placement = done.queries, done.units, self._placement.settle()
        self._registry.commit(self._queries)
        stored = [(u, k, i) for u, s in self._units.states.items() for k, infos in s.segments.items() for i in infos]
        self._registry.measure(self._units.reports.values(), stored, self._units.maxima, self.units)
        return done.answers

    @property
    def dearest(self) -> Sequence[QueryFigures]:
        """The queries that took the most CPU time in the latest batch, ten at most, the dearest first."""
        return self._registry.dearest

    @property
    def reports(self) -> Sequence[Report]:
        """Of the latest batch, by unit."""
        return [report for _, report in sorted(self._units.reports.items())]

    def _attempt(self, wires: Mapping[str, pa.Table], seen: Seen, queries: Mapping[str, Any]) -> _Attempt:
        """A batch with some queries; what was there before it stays as it is."""
        units = self._units.copy()
        routing = write_placement(self._placement, self.plan.units)
        flow = self._flows.under({"queries": queries, **self._registry.read(queries), "routing": routing})
        units.count_late(self._late_unread(wires, flow))
        found = units.play(flow, enter(flow, wires, units.batch)[1], seen)
        units.retire(self._placement.units)
        answers = pa.concat_tables([_SCHEMA.empty_table(), *(shrink(t).cast(_SCHEMA) for t in found)])
        return _Attempt(dict(queries), units, answers)

    def _late_unread(self, wires: Mapping[str, pa.Table], flow: Dataflow) -> dict[str, int]:
        """Late rows of streams that no query reads: no unit gets them."""
        clock, out = Clock(flow.streams, self._units.maxima), dict[str, int]()
        for stream, wire in wires.items():
            late = clock.late(stream, integers(wire.column(TIME).combine_chunks()))
            if stream not in flow.entries and late is not None:
                out[stream] = int(np.count_nonzero(late))
        return out

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream, those without a time or too far ahead among them."""
        return self._units.late

    def _wire(self, stream: str, table: pa.Table, seen: Seen) -> pa.Table:
        """A batch of a stream as wire rows; what it brings is taken to what was seen."""
        spec = self.plan.streams[stream]
        if table.schema != self._schemas[stream]:
            table = retype_table(normal(table).select(list(spec.schema)), self._schemas[stream])
        wire = enlarge(table).rename_columns([wire_name(spec, name) for name in table.column_names])
        marked = mark_ahead(self.plan.by_alias[stream], wire, self.plan.timezone, time.time_ns() // 1000)
        kept, brought = rows_kept(self.plan.by_alias[stream], marked)
        seen.include(brought)
        return wire if len(kept) == wire.num_rows else wire.take(pa.array(kept))


def _check_units(units: Any) -> None:
    if not isinstance(units, int) or isinstance(units, bool) or units < 1:
        raise OptionError(f"units={units!r}: give a whole number of 1 or more")
