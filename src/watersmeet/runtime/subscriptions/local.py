"""A registry in process, fed batch by batch: no JVM, no checkpoint; the same units as on Spark.

Invariant: the answers of a batch are those that Spark would give for the same batches and the same calls between them.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import OptionError, StreamError
from watersmeet.plan.catalogue import ANSWER_FIELDS, catalogue, wire_name
from watersmeet.plan.model import TIME
from watersmeet.query.session import UTC
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.arrow_types import arrow_type, normal
from watersmeet.runtime.culprits import run_without_culprits
from watersmeet.runtime.duckdb_types import session_in
from watersmeet.runtime.subscriptions import engines
from watersmeet.runtime.subscriptions.answered import Answered
from watersmeet.runtime.subscriptions.ask import answered, bind, kept, needed
from watersmeet.runtime.subscriptions.played import Inbox, play
from watersmeet.runtime.subscriptions.registry import Entry, Registry
from watersmeet.runtime.subscriptions.versions import MemoryLog, MemoryQueries, View
from watersmeet.units.blocks import enlarge, shrink
from watersmeet.units.codes import integers
from watersmeet.units.join_unit import StepReport
from watersmeet.units.program import Call, Mail, id_of
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.state import Manifest
from watersmeet.units.subscriptions.process import forget
from watersmeet.units.watermark import advance, watermarks

_SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in ANSWER_FIELDS])


@dataclass
class _Attempt:
    """One run of one batch, and what is true after it."""

    queries: dict[str, Any]
    manifests: list[Manifest]
    store: MemoryStore
    reports: list[StepReport]
    late: list[tuple[str, int]] = field(default_factory=list)
    """Late rows of streams that no query reads."""
    answers: pa.Table | None = None


class LocalSubscriptions:
    """Queries over streams that arrive as Arrow tables."""

    def __init__(
        self,
        specs: Mapping[str, StreamSpec],
        schemas: Mapping[str, pa.Schema],
        units: int = 1,
        engine: str = engines.DEFAULT,
        timezone: str = UTC,
    ) -> None:
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise OptionError(f"units={units!r}: give a whole number of 1 or more")
        session = session_in(timezone)
        self.plan, self._schemas = catalogue(specs, units, engines.checked(engine), session), dict(schemas)
        self._registry = Registry(specs, MemoryLog(), lambda query: engines.accept(self.plan, query), session)
        self._view = MemoryQueries(uuid.uuid4().hex, View(self._registry.log))
        self._program = engines.engine_of(self.plan, self._view)
        weakref.finalize(self, forget, self._view.name)
        self._answered = Answered(self._registry)
        self._manifests, self._store = [Manifest.fresh(self.plan) for _ in range(units)], MemoryStore()
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
        needs = needed(self.plan, live, self._manifests[0].maxima)

        def stored(unit: int, stream: str) -> Iterator[pa.Table]:
            infos = self._manifests[unit].segments.get(stream, [])
            return (self._store.read(info).table for info in infos)

        return answered(join, kept(self.plan, join, needs, stored))

    def push(self, batch: Mapping[str, pa.Table]) -> pa.Table:
        """Let a batch of tuples arrive; the answers: query, ts, answer (a JSON object). A query that breaks it fails, see `list`."""
        wires, seen, timeless = {}, {}, {}
        for stream, table in batch.items():
            if stream not in self.plan.join.streams:
                raise StreamError(f"no stream {stream!r}; there are {', '.join(self.plan.join.streams)}")
            wires[stream], highest, timeless[stream] = self._wire(stream, table)
            if highest is not None:
                seen[stream] = highest

        def attempt(queries: Mapping[str, Any]) -> _Attempt:
            return self._attempt(wires, seen, queries)

        intent = self._answered.intend(self._queries, self._batch)
        done = run_without_culprits(self._answered, intent, attempt, attempt, lambda queries: None)
        self._queries, self._manifests, self.reports = done.queries, done.manifests, done.reports
        for stream, rows in (*timeless.items(), *done.late):
            if rows:
                self._manifests[0].late[stream] = self._manifests[0].late.get(stream, 0) + rows
        for manifest in self._manifests:
            for kind, cut in self._program.cuts(manifest.maxima).items():
                manifest.segments[kind] = [i for i in manifest.segments.get(kind, []) if i.max_ts >= cut]
        self._store = done.store.copy({i.id for m in self._manifests for infos in m.segments.values() for i in infos})
        self._answered.committed(self._queries)
        self._batch += 1
        return done.answers

    def _attempt(self, wires: Mapping[str, pa.Table], seen: Mapping[str, int], queries: Mapping[str, Any]) -> _Attempt:
        """A batch with some queries; what was there before it stays as it is."""
        attempt = _Attempt(
            dict(queries), deepcopy(self._manifests), self._store.copy(), [StepReport() for _ in self._manifests]
        )
        read = self._answered.read(queries)
        attempt.late = [*self._late_unread(wires, read)]
        found = self._play(attempt, self._entering(wires, read), seen)
        attempt.answers = pa.concat_tables([_SCHEMA.empty_table(), *(shrink(t).cast(_SCHEMA) for t in found)])
        for manifest in attempt.manifests:
            manifest.maxima = advance(self._manifests[0].maxima, seen)
        return attempt

    def _play(self, attempt: _Attempt, entering: Iterable[Mail], seen: Mapping[str, int]) -> Iterator[pa.Table]:
        """All rounds of a batch."""
        peers: dict[int, dict[int, Manifest]] = {}

        def turn(number: int, unit: int, inbox: Inbox) -> Iterator[pa.Table | Mail]:
            if number not in peers:
                peers[number] = {n: m.seen_by_others() for n, m in enumerate(attempt.manifests)}
            manifest = attempt.manifests[unit]
            manifest.maxima = dict(self._manifests[0].maxima)
            call = Call(
                number,
                unit,
                inbox,
                manifest,
                attempt.store,
                seen,
                batch=self._batch,
                queries=attempt.queries,
                peers=peers[number],
            )
            yield from self._program.step(call)
            attempt.reports[unit].include(call.report)

        return play(self._program, len(attempt.manifests), entering, turn)

    def _entering(self, wires: Mapping[str, pa.Table], read: Mapping[str, Sequence[str]]) -> Iterator[Mail]:
        first = id_of(self._batch, 0, 0)
        for stream, wire in wires.items():
            if stream in read and wire.num_rows:
                yield from self._program.address(stream, read[stream], wire, first)
                first += wire.num_rows

    def _late_unread(
        self, wires: Mapping[str, pa.Table], read: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, int]]:
        """Late rows of streams that no query reads: no unit gets them."""
        marks = watermarks(self.plan, self._manifests[0].maxima)
        times = {s: integers(wire.column(TIME).combine_chunks()) for s, wire in wires.items() if s not in read}
        return ((s, int(np.count_nonzero(ts < marks[s]))) for s, ts in times.items())

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream, rows without a time among them."""
        out: dict[str, int] = {}
        for manifest in self._manifests:
            for stream, rows in manifest.late.items():
                out[stream] = out.get(stream, 0) + rows
        return out

    def _wire(self, stream: str, table: pa.Table) -> tuple[pa.Table, int | None, int]:
        """A batch of a stream as wire rows, its highest event time, and how many rows have none."""
        spec = self.plan.join.streams[stream]
        table = normal(table).select(list(spec.schema)).cast(self._schemas[stream])
        wire = enlarge(table).rename_columns([wire_name(spec, name) for name in table.column_names])
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
