"""Late materialisation: payloads stay apart from their tuples, and only results fetch them.

    whole    _ts k p          narrow   _ts k _in _row       payload segment `_in`   _ts p

    stage 0    units of the join find narrow results, which know (`_in`, `_row`) of every payload they need
    stage k    the holders of an alias' payloads add its columns, and send results on to those of the next; the last let them out

Payload segments are written where the tuples entered, before stage 0, and belong to the holder that their number selects.

Invariant: splitting and gathering are inverse: a tuple's reference names the row that holds its payload, for as long as the tuple lives, because both
have the same time and expire together. A holder's state only grows by adoption and shrinks by expiry; turns read it and never change it.
Implements: Tran and Lee (2010), section 3.1 (join attributes first, tuples only if they match), without sites.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, cuts, integers, table_widths
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Message, Onward, Pause, Turn, Yielded, first_unit
from watersmeet.kernels.hash_window import group_rows
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.rules.ship import IN, ROW, payload_refs
from watersmeet.query.expr import ColumnRef
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

Held = Mapping[int, SegmentInfo]
"""Payload segments by their number."""


def split(source: InputPlan, table: pa.Table) -> tuple[int, Segment, pa.Table]:
    """A table of whole tuples as (number of the payload segment, that segment, the narrow tuples)."""
    number = uuid.uuid4().int >> 66
    payload = Segment(f"{number:x}", table.select([TIME, *source.payload]).combine_chunks())
    narrow = (
        table.drop_columns(list(source.payload))
        .append_column(IN, pa.array(np.full(table.num_rows, number)))
        .append_column(ROW, pa.array(np.arange(table.num_rows)))
    )
    return number, payload, narrow


def number_of(info: SegmentInfo) -> int:
    """The number under which references name a payload segment."""
    return int(info.id, 16)


def gather(
    store: SegmentStore, held: Held, numbers: np.ndarray, rows: np.ndarray, columns: Sequence[str]
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Payload columns for references, in an order that reads each segment once: blocks of (the order, the columns in it)."""
    order = np.argsort(numbers, kind="stable")
    found, begins = np.unique(numbers[order], return_index=True)
    ends = [*begins[1:].tolist(), len(order)]
    waiting, size = list[tuple[np.ndarray, pa.Table]](), 0
    for number, first, last in zip(found.tolist(), begins.tolist(), ends, strict=True):
        payload, mine = store.read(held[number]).table.select(list(columns)), order[first:last]
        widths = table_widths(payload)
        each = widths if isinstance(widths, int) else widths[rows[mine]]
        for begin, end in cuts(each, len(mine), block_bytes()):
            taken = payload.take(pa.array(rows[mine[begin:end]]))
            if waiting and size + taken.nbytes > block_bytes():
                yield _together(waiting)
                waiting, size = [], 0
            waiting.append((mine[begin:end], taken))
            size += taken.nbytes
    if waiting:
        yield _together(waiting)


def _together(pieces: list[tuple[np.ndarray, pa.Table]]) -> tuple[np.ndarray, pa.Table]:
    return np.concatenate([order for order, _ in pieces]), pa.concat_tables([table for _, table in pieces])


def holder(plan: Plan, source: InputPlan, number: int) -> int:
    """The unit that holds a payload segment, by the segment's number: an alias' holders are a stage, after the join."""
    return first_unit(1 + source.position) + number % plan.units


def reship(
    before: Plan, after: Plan, manifest: Manifest, store: SegmentStore, held: Mapping[str, Held]
) -> list[tuple[int, str, SegmentInfo]]:
    """Turn a joining unit's segments from one plan's form into the other's; the payload segments that this has made,
    as (holder, alias, segment)."""
    made = []
    for old, new in zip(before.inputs, after.inputs, strict=True):
        if bool(old.payload) == bool(new.payload):
            continue
        infos = []
        for info in manifest.segments.get(new.alias, []):
            table = store.read(info).table
            if new.payload:
                number, payload, table = split(new, table)
                made.append((holder(after, new, number), new.alias, store.write(payload)))
            else:
                table = _whole(old, table, store, held[new.alias])
            store.remove(info)
            infos.append(store.write(Segment.of(table)))
        manifest.segments[new.alias] = infos
    return made


def _whole(source: InputPlan, table: pa.Table, store: SegmentStore, held: Held) -> pa.Table:
    numbers, rows = (integers(table.column(name).combine_chunks()) for name in (IN, ROW))
    narrow = table.drop_columns([IN, ROW])
    return pa.concat_tables(
        [beside(narrow, order, payload) for order, payload in gather(store, held, numbers, rows, source.payload)]
    )


def beside(narrow: pa.Table, order: np.ndarray, payload: pa.Table) -> pa.Table:
    """Narrow tuples in an order, with payload columns beside them."""
    whole = narrow.take(pa.array(order))
    for field in payload.schema:
        whole = whole.append_column(field, payload.column(field.name))
    return whole


MATCHES = "matches"
"""The kind of messages that hold results without some payloads."""


@dataclass(frozen=True)
class Fetch:
    """The holders of one alias' payloads."""

    plan: Plan
    alias: str
    onward: Onward

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        yield from self.onward(self._fill(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Payloads live as long as their tuples, whose join expires them."""
        return {}

    def _fill(self, turn: Turn) -> Iterator[pa.Table]:
        source = self.plan.by_alias[self.alias]
        held = {number_of(i): i for i in turn.state.segments[self.alias]}
        names = [(_name(ref), source.column(ref)) for ref in payload_refs(self.plan, source)]
        for table in turn.inbox.pop(MATCHES, []):
            numbers, rows = (integers(table.column(_reference(self.alias, n)).combine_chunks()) for n in (IN, ROW))
            narrow = table.drop_columns([_reference(self.alias, IN), _reference(self.alias, ROW)])
            for order, fetched in gather(turn.store, held, numbers, rows, [c for _, c in names]):
                yield beside(narrow, order, fetched.rename_columns([n for n, _ in names]))


@dataclass(frozen=True)
class ToHolders:
    """Results to the holders of an alias' payloads; `names` are their columns, if they do not have their names yet."""

    plan: Plan
    alias: str
    names: tuple[ColumnRef, ...] = ()

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        first = holder(self.plan, self.plan.by_alias[self.alias], 0)
        for table in tables:
            if isinstance(table, Pause) or not table.num_rows:
                continue
            named = table.rename_columns([_name(ref) for ref in self.names]) if self.names else table
            segment = integers(named.column(_reference(self.alias, IN)).combine_chunks())
            for slot, rows in group_rows(segment % self.plan.units):
                yield Message(first + slot, MATCHES, named if rows is None else named.take(pa.array(rows)))


@dataclass(frozen=True)
class Whole:
    """Results that have all their columns, in their order, go where those of a join would."""

    plan: Plan
    onward: Onward

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        names = [_name(ref) for ref in self.plan.output]
        return self.onward(t if isinstance(t, Pause) else t.select(names) for t in tables)


def list_fetched(plan: Plan) -> list[InputPlan]:
    """The inputs whose payloads follow later."""
    return [i for i in plan.inputs if i.payload]


def _name(ref: ColumnRef) -> str:
    return f"{ref.alias}.{ref.column}"


def _reference(alias: str, name: str) -> str:
    return f"{alias}.{name}"
