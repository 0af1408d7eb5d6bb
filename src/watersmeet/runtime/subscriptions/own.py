"""Registered queries that share nothing: each runs as a dataflow of its own, on the engine's ordinary operators, inside a unit of the registry.

    tuples of the batch --rename--> streams --plan of the query: enter, join, unmatched, aggregate ...--> its rows --JSON--> answers

Joins without an equality, outer joins of more than two streams, as-of joins, aggregates, ROWS and PATH; under RJoin all that it does not rewrite. A unit runs them after what it shares, each with one unit to a stage.
Queries of the same text that took effect in the same batch are one run. What a run keeps lies in the unit's state, apart from the tuples of others:

    :own 5d41...@7 100000 o        segments of kind 'o' of unit 100000 of the run of a text that took effect in batch 7
    extra["own"]["5d41...@7"]      the rest of the run's memory

Invariant: a run sees the tuples that arrive from its effect on, under the registry's clock, so it answers as the query would by itself. Its state is a function of the
batches: nothing that a process keeps changes an answer. An expression that fails on some tuples is NULL there, as in the shared plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import integers, shrink
from watersmeet.columns.spark_types import spark_name
from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Turn
from watersmeet.dataflow.report import Report, merge_figures
from watersmeet.errors import QuotaError
from watersmeet.query.quotas import DEFAULT_QUOTAS, Quotas
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.shared.answers import write_rows, write_texts
from watersmeet.registry.shared.block import write_prefix
from watersmeet.registry.shared.compiled import unit_of_query
from watersmeet.registry.subscription import Registered
from watersmeet.registry.versions import forget_gone, get_or_make
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.subscriptions.own_plan import TIME_NAME, empty_rows, parse_query, plan_run
from watersmeet.runtime.units import InProcess
from watersmeet.storage.manifest import OTHER, Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

OWN = "own"
_KIND = f"{OTHER}{OWN} "
_KEPT = ("late", "fanout", "driving", "extra")
"""What a unit's memory has besides segments and maxima."""


@dataclass(frozen=True)
class OwnRuns:
    """The runs of a unit; it travels to the workers with the dataflow."""

    plan: RegistryPlan
    registry: str

    def answer(
        self, turn: Turn, queries: Mapping[str, Registered], new: Mapping[str, Segment | None]
    ) -> Iterator[pa.Table]:
        """The answers of a unit's queries; then the state of those that are gone is dropped."""
        by_run: dict[tuple[str, int], list[str]] = {}
        for known in queries.values():
            by_run.setdefault((known.query.own or "", known.effect), []).append(known.id)
        for (sql, effect), ids in by_run.items():
            began = process_time()
            found, last = self._answer(turn, sql, effect, {id: queries[id].version for id in ids}, new)
            took = (process_time() - began) / len(ids)
            for id in ids:
                figures = sum(t.num_rows for t in found) // len(ids), took, last, queries[id].version
                merge_figures(turn.report.registered, {id: figures})
            yield from found
        self._forget(turn, {key_of(sql, effect) for sql, effect in by_run})

    def take_over(self, turn: Turn, queries: Mapping[str, Registered], units_before: int) -> None:
        """Let a unit have the runs of its queries, from the units that had them: a run is at one unit, with all that it keeps."""
        runs = {key_of(q.query.own or "", q.effect): unit_of_query(q, units_before) for q in queries.values()}
        segments = {k: infos for k, infos in turn.state.segments.items() if not k.startswith(_KIND)}
        memory = {}
        for key, unit in runs.items():
            giver = turn.peers.get(unit)
            if giver is not None and key in giver.extra.get(OWN, {}):
                memory[key] = giver.extra[OWN][key]
                prefix = f"{_KIND}{key} "
                segments |= {k: list(infos) for k, infos in giver.segments.items() if k.startswith(prefix)}
        turn.state.segments = segments
        turn.state.extra = {**turn.state.extra, OWN: memory}

    def _answer(
        self, turn: Turn, sql: str, effect: int, versions: Mapping[str, int], new: Mapping[str, Segment | None]
    ) -> tuple[list[pa.Table], int]:
        """The answers of one run, for all its queries, and the time of the youngest."""
        key, quotas, ids = key_of(sql, effect), self.plan.quotas, list(versions)
        run: LocalRun = get_or_make(self.registry, (OWN, turn.unit, key), lambda: self._plan(sql))
        run.units = _restore(run.units, turn, key, ids, quotas)
        tables = {i.stream: _rename(self.plan.streams[i.stream], new.get(i.stream)) for i in run.plan.join.inputs}
        found = run.push(run.read(tables), reached=turn.clock.seen)
        rows = run.rows_of(found) if found else None
        _keep(run.units, turn, key)
        kept = sum(info.rows for infos in turn.state.segments.values() for info in infos) if quotas.state else 0
        if quotas.state is not None and kept > quotas.state and run.units.rows > quotas.state:
            raise QuotaError.of(ids, f"it takes more than {quotas.state:,} tuples and rows of state: give it smaller windows, or raise the quota (state=), and add it again")  # fmt: skip
        if rows is None or not rows.num_rows:
            return [], NEVER
        ts, texts = _find_times(rows, max(turn.clock.reached.values(), default=0)), _write(rows)
        turn.report.results += rows.num_rows * len(ids)
        names = [(pa.scalar(id, pa.large_string()), pa.scalar(versions[id], pa.int64())) for id in ids]
        size = rows.num_rows
        return [write_rows(pa.repeat(n, size), pa.repeat(v, size), ts, texts) for n, v in names], int(ts.max())

    def _plan(self, sql: str) -> LocalRun:
        return plan_run(parse_query(sql, self.plan.streams, self.plan.session))

    def _forget(self, turn: Turn, living: set[str]) -> None:
        for kind in [k for k in turn.state.segments if k.startswith(_KIND) and k.split(" ")[1] not in living]:
            for info in turn.state.segments.pop(kind):
                turn.store.remove(info)
        runs = {(OWN, turn.unit, key) for key in living}
        forget_gone(self.registry, lambda held: isinstance(held, tuple) and held[:2] == (OWN, turn.unit), runs)
        memory = turn.state.extra.pop(OWN, {})
        kept = {key: value for key, value in memory.items() if key in living}
        if kept:
            turn.state.extra[OWN] = kept


class Nested(InProcess):
    """The units of a run, whose segments lie in the state of the unit that runs it."""

    quotas, ids, rows = DEFAULT_QUOTAS, list[str](), 0

    def watch(self, report: Report) -> None:
        """Combinations are counted while they are made: an aggregate has few answers, however many there are."""
        self._hold(report.found + sum(r.found for r in self.reports.values()), "combinations")

    def take(self, out: list[pa.Table], table: pa.Table) -> None:
        super().take(out, table)
        self._hold(sum(t.num_rows for t in out), "answers")

    def _hold(self, found: int, quota: str) -> None:
        most: int = getattr(self.quotas, quota)
        if found > most:
            raise QuotaError.of(
                self.ids,
                f"it takes more than {most:,} {quota} in one micro-batch: narrow its conditions or windows, or raise the quota ({quota}=), and add it again",
            )


class _Lent:
    """The store of a unit as a run takes it."""

    def __init__(self, store: SegmentStore) -> None:
        self.store = store

    def read(self, info: SegmentInfo) -> Segment:
        return self.store.read(info)

    def write(self, segment: Segment) -> SegmentInfo:
        return self.store.write(segment)

    def remove(self, info: SegmentInfo) -> None:
        self.store.remove(info)

    def lend(self) -> None:
        """Every stage has one unit: nobody reads what another removes."""

    def copy(self, ids: set[str] | None = None) -> _Lent:
        return self


def _restore(known: InProcess, turn: Turn, key: str, ids: list[str], quotas: Quotas) -> Nested:
    """The units of a run as they were after the batch before."""
    out = Nested(known.identity)
    out.store, out.batch, out.quotas, out.ids = _Lent(turn.store), turn.batch, quotas, ids  # type: ignore[assignment]
    out.maxima = dict(turn.clock.maxima)
    memory = turn.state.extra.get(OWN, {}).get(key, {})
    prefix = f"{_KIND}{key} "
    for unit, rest in memory.items():
        state = Manifest.fresh(known.identity)
        out.states[int(unit)] = replace(state, **{name: rest[name] for name in _KEPT})
    for kind in [k for k in turn.state.segments if k.startswith(prefix)]:
        unit, name = kind.removeprefix(prefix).split(" ", 1)
        out.states[int(unit)].segments[name] = list(turn.state.segments[kind])
    return out


def _keep(units: Nested, turn: Turn, key: str) -> None:
    """Put a run's memory into the unit's."""
    prefix = f"{_KIND}{key} "
    for kind in [k for k in turn.state.segments if k.startswith(prefix)]:
        del turn.state.segments[kind]
    for unit, state in units.states.items():
        for kind, infos in state.segments.items():
            if infos:
                turn.state.segments[f"{prefix}{unit} {kind}"] = infos
    units.rows = sum(sum(state.rows().values()) for state in units.states.values())
    memory = turn.state.extra.setdefault(OWN, {})
    memory[key] = {str(u): {name: getattr(state, name) for name in _KEPT} for u, state in units.states.items()}


def count_rows(stored: Iterable[tuple[int, str, SegmentInfo]], sql: str, effect: int) -> int:
    """The rows that a run keeps, among what units store."""
    prefix = f"{_KIND}{key_of(sql, effect)} "
    return sum(info.rows for _, kind, info in stored if kind.startswith(prefix))


def key_of(sql: str, effect: int) -> str:
    """The name of a run, under which its state lies."""
    return f"{hashlib.blake2b(sql.encode(), digest_size=12).hexdigest()}@{effect}"


def _rename(spec: StreamSpec, new: Segment | None) -> pa.Table:
    """New tuples under the stream's own names and types; columns of nested types are left out."""
    empty = empty_rows(spec)
    if new is None:
        return empty
    names = [wire_name(spec, name) for name in empty.column_names]
    return shrink(new.table.select(names).rename_columns(empty.column_names)).cast(empty.schema)


def _find_times(rows: pa.Table, latest: int) -> np.ndarray:
    """Event times of answers: of the youngest member, or the end of a group; of rows without one that of the batch."""
    names = [name for name in rows.column_names if name.startswith(TIME_NAME)]
    if not names:
        return np.full(rows.num_rows, latest)
    times = [pc.cast(rows.column(name), pa.int64()) for name in names]
    return integers(pc.fill_null(pc.max_element_wise(*times), latest).combine_chunks())


def _write(rows: pa.Table) -> list[pa.Array | pa.Scalar]:
    """The pieces of answers' objects: names and texts of values."""
    shown = [name for name in rows.column_names if not name.startswith(TIME_NAME)]
    columns = [rows.column(name).combine_chunks() for name in shown]
    texts = write_texts(columns, [spark_name(c.type) for c in columns], "answers")
    pieces: list[pa.Array | pa.Scalar] = []
    for n, (name, text) in enumerate(zip(shown, texts, strict=True)):
        pieces += pa.scalar(write_prefix(n, name), pa.large_string()), text
    return pieces
