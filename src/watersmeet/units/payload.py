"""Payloads apart from their tuples: split off under a reference, gathered again by it, and segments turned from one form
into the other.

    whole    _ts k p          narrow   _ts k _in _row       payload segment `_in`   _ts p

Invariant: splitting and gathering are inverse: a tuple's reference names the row that holds its payload, for as long as
the tuple lives, because both have the same time and expire together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.rules.ship import IN, ROW
from watersmeet.units.blocks import block_bytes, cuts, table_widths
from watersmeet.units.codes import integers
from watersmeet.units.segment import Segment
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.state import Manifest, SegmentInfo

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


def gathered(
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
    """The unit that holds a payload segment, by the segment's number."""
    units = plan.units
    return units * (1 + source.position) + number % units


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
        [beside(narrow, order, payload) for order, payload in gathered(store, held, numbers, rows, source.payload)]
    )


def beside(narrow: pa.Table, order: np.ndarray, payload: pa.Table) -> pa.Table:
    """Narrow tuples in an order, with payload columns beside them."""
    whole = narrow.take(pa.array(order))
    for field in payload.schema:
        whole = whole.append_column(field, payload.column(field.name))
    return whole
