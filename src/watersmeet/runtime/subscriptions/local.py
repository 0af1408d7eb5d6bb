"""A registry in process, fed batch by batch: no JVM, no checkpoint; the same units as on Spark.

Invariant: the answers of a batch are those that Spark would give for the same batches and the same calls between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import OptionError, StreamError
from watersmeet.plan.catalogue import ANSWER_FIELDS, catalogue, wire_name
from watersmeet.plan.model import TIME
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.arrow_types import arrow_type, normal
from watersmeet.runtime.subscriptions.ask import answered, bind, kept, needed
from watersmeet.runtime.subscriptions.registry import Entry, Registry
from watersmeet.runtime.subscriptions.versions import MemoryLog, View
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import StepReport
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.state import Manifest
from watersmeet.units.subscriptions.block import Registered
from watersmeet.units.subscriptions.compiled import Compiled, unit_of
from watersmeet.units.subscriptions.unit import Arrived, SharedPlan

_SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in ANSWER_FIELDS])


class LocalSubscriptions:
    """Queries over streams that arrive as Arrow tables."""

    def __init__(self, specs: Mapping[str, StreamSpec], schemas: Mapping[str, pa.Schema], units: int = 1) -> None:
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise OptionError(f"units={units!r}: give a whole number of 1 or more")
        self.plan, self._schemas = catalogue(specs, units), dict(schemas)
        self._registry = Registry(specs, MemoryLog())
        self._view = View(self._registry.log)
        self._units = [(Compiled(), Manifest.fresh(self.plan), MemoryStore()) for _ in range(units)]
        self._batch, self._queries = 0, dict[str, Any]()
        self.reports: list[StepReport] = []
        """Of the latest batch, by unit."""

    def add(self, sql: str, id: str | None = None) -> str:
        """Register a query; it sees tuples of the next batch and later ones. A bad one is refused with the reason."""
        return self._registry.add_all([(id, sql)])[0]

    def add_all(self, queries: Sequence[str] | Mapping[str, str]) -> list[str]:
        """Register many queries, all or none; a mapping gives ids."""
        return self._registry.add_all(pairs_of(queries))

    def remove(self, id: str) -> None:
        """Remove a query: the next batch does not answer it."""
        self._registry.remove(id)

    def list(self) -> list[Entry]:
        """All registered queries."""
        return self._registry.list()

    def ask(self, sql: str) -> pa.Table:
        """The answer to a query over the tuples that are kept now; see `subscriptions.ask` for what these are."""
        join = bind(sql, self.plan)
        live = self._view.at(self._queries) if self._queries else {}
        needs = needed(self.plan, live, self._units[0][1].maxima)

        def stored(unit: int, stream: str) -> list[pa.Table]:
            _, manifest, store = self._units[unit]
            return [store.read(info).table for info in manifest.segments[stream]]

        return answered(join, kept(self.plan, join, needs, stored))

    def push(self, batch: Mapping[str, pa.Table]) -> pa.Table:
        """Let a batch of tuples arrive; the answers: query, ts, answer (a JSON object)."""
        wires, seen, timeless = {}, {}, {}
        for stream, table in batch.items():
            if stream not in self.plan.join.streams:
                raise StreamError(f"no stream {stream!r}; there are {', '.join(self.plan.join.streams)}")
            wires[stream], highest, timeless[stream] = self._wire(stream, table)
            if highest is not None:
                seen[stream] = highest
        before, self._queries = self._queries, self._registry.intend(self._queries, self._batch)
        if before != self._queries:
            self._deal()
        found, self.reports = [_SCHEMA.empty_table()], []
        for number, (compiled, manifest, store) in enumerate(self._units):
            unit = SharedPlan(self.plan, compiled)
            counts = frozenset(wires) if number == 0 else frozenset[str]()
            arrived = Arrived(self._batch, {s: [t] for s, t in wires.items()}, seen, counts)
            found += [t.cast(_SCHEMA) for t in unit.step(arrived, manifest, store)]
            self.reports.append(unit.report)
        self._units[0][1].late.update({s: self.late.get(s, 0) + n for s, n in timeless.items() if n})
        self._registry.committed(self._queries, compacts=False)
        self._batch += 1
        return pa.concat_tables(found)

    def _deal(self) -> None:
        """Give every unit its queries."""
        shares: list[dict[str, Registered]] = [{} for _ in self._units]
        for id, registered in self._view.at(self._queries).items():
            shares[unit_of(registered.query.template, len(shares))][id] = registered
        for (compiled, _, _), share in zip(self._units, shares, strict=True):
            compiled.become(share)

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream, rows without a time among them."""
        return dict(self._units[0][1].late)

    def _wire(self, stream: str, table: pa.Table) -> tuple[pa.Table, int | None, int]:
        """A batch of a stream as wire rows, its highest event time, and how many rows have none."""
        spec = self.plan.join.streams[stream]
        table = normal(table).select(list(spec.schema)).cast(self._schemas[stream])
        wire = table.rename_columns([wire_name(spec, name) for name in table.column_names])
        timed = wire.filter(pc.is_valid(wire.column(TIME))) if wire.column(TIME).null_count else wire
        highest = int(integers(timed.column(TIME).combine_chunks()).max()) if timed.num_rows else None
        return timed, highest, wire.num_rows - timed.num_rows


def pairs_of(queries: Sequence[str] | Mapping[str, str]) -> list[tuple[str | None, str]]:
    """Queries with their ids, if they have any."""
    if isinstance(queries, Mapping):
        return [(id, sql) for id, sql in queries.items()]
    if isinstance(queries, str):
        raise OptionError("give a list of queries, or a mapping of ids to queries; add() takes one")
    return [(None, sql) for sql in queries]
