"""What runs in Spark's Python workers: one round of the units that a partition has work for.

    rows of the union (round 0), or parcels of mail  ->  step of every unit  ->  results, segments, mail, and one report

Invariant: results leave as rows; everything else is written to the state folder before the unit's report leaves, so a
report names only files that are complete. A task that runs twice writes other files and reports them instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import TIME, Plan
from watersmeet.runtime.rounds.entering import ALIAS, UNIT, Slots
from watersmeet.runtime.rounds.files import FileStore, Parcel, PostOffice, opened
from watersmeet.runtime.rounds.folder import StateFolder
from watersmeet.runtime.spark_results import METRICS, arrow_columns
from watersmeet.units.codes import integers
from watersmeet.units.program import Call, Mail, Program
from watersmeet.units.state import Manifest

RESULTS = "results"
"""The kind of a parcel that holds results: they wait for the last round in a file."""


@dataclass
class Round:
    """One round of one attempt, for the units of one partition. `states` are the units' manifests as JSON."""

    plan: Plan
    program: Program
    folder: StateFolder
    attempt: str
    number: int
    states: Mapping[int, str]
    schema: pa.Schema
    """Of the rows that leave: columns of results, and the report."""
    direct: bool
    """Whether results leave as rows; otherwise they are posted to the end of the batch."""

    def run(self, arrivals: Mapping[int, dict[str, list[pa.Table]]], seen: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """Step every unit that has arrivals."""
        for unit in sorted(arrivals):
            state = self.states.get(unit)
            manifest = Manifest.fresh(self.plan) if state is None else Manifest.from_json(state, self.plan)
            store, post = FileStore(self.folder, self.attempt), PostOffice(self.folder, self.attempt)
            call = Call(self.number, unit, arrivals[unit], manifest, store, seen)
            for item in self.program.step(call):
                if isinstance(item, Mail):
                    post.post(item)
                elif self.direct:
                    yield from self._rows(item)
                else:
                    post.post(Mail(-1, RESULTS, item))
            post.close()
            yield self._report(call, post.parcels)

    def _rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = arrow_columns(self.plan, table)
        yield from (b.cast(self.schema) for b in pa.table(columns).combine_chunks().to_batches())

    def _report(self, call: Call, parcels: Sequence[Parcel]) -> pa.RecordBatch:
        said = {
            "unit": call.unit,
            "state": call.manifest.to_json(),
            "mail": [asdict(p) for p in parcels],
            "report": asdict(call.report),
        }
        columns = [
            pa.array([json.dumps(said)], f.type) if f.name == METRICS else pa.nulls(1, f.type) for f in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass
class Enter:
    """mapInArrow of round 0: rows of the union, routed."""

    round: Round
    slots: Slots

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [b for b in batches if b.num_rows]
        if held:
            table = pa.Table.from_batches(held)
            held.clear()
            arrivals = by_unit_and_alias(self.round.plan, self.slots, table)
            del table
            yield from self.round.run(arrivals, reached(self.round.plan, arrivals))
            arrivals.clear()
        pa.default_memory_pool().release_unused()


@dataclass
class Deliver:
    """mapInArrow of a later round: every row is the number of a share of the units, and `shares` has their parcels."""

    round: Round
    shares: Sequence[Sequence[Parcel]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                arrivals: dict[int, dict[str, list[pa.Table]]] = {}
                for parcel, table in opened(self.round.folder, self.shares[share]):
                    arrivals.setdefault(parcel.to, {}).setdefault(parcel.kind, []).append(table)
                yield from self.round.run(arrivals, {})
        pa.default_memory_pool().release_unused()


@dataclass
class Hand:
    """mapInArrow: results that were posted in earlier rounds, as rows."""

    round: Round
    shares: Sequence[Sequence[Parcel]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for _, table in opened(self.round.folder, self.shares[share]):
                    yield from self.round._rows(table)


def by_unit_and_alias(plan: Plan, slots: Slots, table: pa.Table) -> dict[int, dict[str, list[pa.Table]]]:
    """Wire tables by unit and alias; every row is taken at most once."""
    width = len(plan.inputs)
    group = integers(table.column(UNIT).combine_chunks()) * width + integers(table.column(ALIAS).combine_chunks())
    out: dict[int, dict[str, list[pa.Table]]] = {}
    edges = np.flatnonzero(np.diff(group)) + 1
    if len(edges) < 8 * width:
        pieces = list(zip([0, *edges.tolist()], [*edges.tolist(), len(group)], strict=True))
        for code in dict.fromkeys(int(group[b]) for b, _ in pieces):
            whole = _wire(plan, slots, table, code % width)
            own = [whole.slice(b, e - b) for b, e in pieces if int(group[b]) == code]
            _put(out, plan, code, pa.concat_tables(own))
        return out
    order = np.argsort(group.astype(np.uint16) if group.max() < 2**16 else group, kind="stable")
    codes, begins = np.unique(group[order], return_index=True)
    for code, begin, end in zip(codes.tolist(), begins, [*begins[1:], len(order)], strict=True):
        rows = pa.array(order[begin:end])
        _put(out, plan, code, _wire(plan, slots, table, code % width).take(rows))
    return out


def _wire(plan: Plan, slots: Slots, table: pa.Table, position: int) -> pa.Table:
    wire_of = slots.of[position]
    return table.select(list(wire_of.values())).rename_columns(list(wire_of))


def _put(out: dict[int, dict[str, list[pa.Table]]], plan: Plan, code: int, table: pa.Table) -> None:
    unit, position = divmod(code, len(plan.inputs))
    out.setdefault(unit, {})[plan.inputs[position].alias] = [table.combine_chunks()]


def reached(plan: Plan, arrivals: Mapping[int, Mapping[str, Sequence[pa.Table]]]) -> dict[str, int]:
    """Event times that the batch has reached for certain: those of the rows at hand."""
    out: dict[str, int] = {}
    for by_alias in arrivals.values():
        for alias, tables in by_alias.items():
            stream = plan.input(alias).stream
            for table in tables:
                times = table.column(TIME).drop_null()
                if len(times):
                    highest = int(integers(times.combine_chunks()).max())
                    out[stream] = max(out.get(stream, highest), highest)
    return out
