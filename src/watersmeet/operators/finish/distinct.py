"""DISTINCT: a projected row leaves once per bucket of its youngest member's event time.

Units that join drop repeats among their own results of a batch; equal rows of different units and batches meet here, in
the deduplicator of the row's hash, which keeps every row that has left:

    rows of the batch -> first of each (row, bucket) -> not among the kept -> out, and kept until its bucket is over

When is a bucket over? A result of a later batch has a member that arrives later, which is not late: its time is at least
its stream's watermark, and the youngest member's time no less. So once the lowest watermark of all streams has passed a
bucket's last instant, no new result can fall into it, and its rows are forgotten. A held-back tuple (ROWS) is no older
than the watermarks, either. In full history there is one bucket, which is never over: the state grows with every
distinct row.

Invariant: rows are compared by their values; hashes only find candidates. State is rows of the last horizon and of
what the slowest stream's lateness and silence add to it.
Implements: Lin, Ooi, Wang, Yu (2015), section 3.4.1, the deduplicator, by hash probing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import block_bytes, cuts, fold, integers, number_fields, slice_by_bytes, table_widths
from watersmeet.columns.retype import retype
from watersmeet.columns.row_hash import HASH, row_hash
from watersmeet.dataflow.clock import NEVER, TIMELESS, Clock
from watersmeet.dataflow.contract import Turn, Yielded
from watersmeet.expressions.evaluator import ask
from watersmeet.kernels import hash_window
from watersmeet.kernels.hash_window import pairs
from watersmeet.kernels.instants import shift
from watersmeet.plan.finish import bucket_us
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.expr import ColumnRef
from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment

KEPT = ""
"""Under this name a manifest holds rows and groups, beside the aliases' tuples; no alias is empty."""
LEFT = "left"
"""The kind of messages that hold what has left the joins."""
CANDIDATES = 262_144
"""Pairs of rows with equal hashes are compared in chunks of at most so many."""


@dataclass(frozen=True)
class DistinctUnits:
    """The units that drop repeated rows."""

    plan: Plan

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        tables = turn.inbox.pop(LEFT, [])
        infos, new = turn.state.segments.setdefault(KEPT, []), None
        for rows in fold(tables, lambda held: first_of_each(pa.concat_tables(held).combine_chunks())):
            hashes = row_hash(rows.drop_columns([TIME]))
            unknown = are_new(rows, hashes, (turn.store.read(info) for info in infos))
            fresh = rows.filter(pa.array(unknown))
            new = Segment.of(fresh.append_column(HASH, pa.array(hashes[unknown])))
        settler = Settler(turn.store, self.cuts(turn.clock)[KEPT], _span(self.plan))
        turn.state.segments[KEPT] = settler.settle(infos, new)
        if new is not None:
            yield from slice_by_bytes(new.table.drop_columns([TIME, HASH]))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Buckets that end before this instant are over."""
        return {KEPT: NEVER if bucket_us(self.plan.join) is None else clock.lowest}


def add_buckets(plan: Plan, rows: pa.Table, results: pa.Table) -> pa.Table:
    """Rows made of results, with the last instant of the bucket of each."""
    times = [plan.output.index(ColumnRef(i.alias, plan.join.spec(i.alias).time)) for i in plan.inputs]
    youngest = np.maximum.reduce([integers(results.column(n).combine_chunks()) for n in times])
    width = bucket_us(plan.join)
    last = last_instant(youngest, np.int64(UNBOUNDED if width is None else width))
    return rows.append_column(TIME, pa.array(last))


def last_instant(youngest: np.ndarray, width_us: np.ndarray | np.int64) -> np.ndarray:
    """The last instant of the buckets of some times: what DISTINCT tells equal rows apart by, and what they expire by.

    With buckets of width h a time t lies in [b h, (b + 1) h) for b = floor(t / h). Zero: every instant is a bucket;
    UNBOUNDED: all time is one, whose end is put before all time, since it never comes.

    >>> last_instant(np.array([12, 12, 12]), np.array([10, 0, UNBOUNDED])).tolist() == [19, 12, TIMELESS]
    True
    """
    width = np.broadcast_to(width_us, youngest.shape)
    left = np.maximum(width, 1) - 1 - youngest % np.maximum(width, 1)
    return np.where(width >= UNBOUNDED, TIMELESS, np.where(width == 0, youngest, shift(youngest, left)))


def first_of_each(rows: pa.Table) -> pa.Table:
    """One row of those that are equal, bucket included."""
    at = firsts(rows)
    return rows if len(at) == rows.num_rows else rows.take(pa.array(at))


def firsts(rows: pa.Table) -> np.ndarray:
    """The position of the first of every set of rows that are equal, bucket included."""
    hashes = row_hash(rows)
    if len(np.unique(hashes)) == len(hashes):
        return np.arange(len(hashes))
    names = [f'"{name}"' for name in rows.column_names]
    columns = [retype(column, number_fields(column.type)) for column in rows.columns]
    numbered = pa.table([*columns, pa.array(np.arange(rows.num_rows))], names=[*rows.column_names, "_at"])
    found = ask(f"SELECT min(_at) AS at FROM _rows GROUP BY {', '.join(names)}", "DISTINCT", _rows=numbered)
    return np.sort(integers(found.column("at").combine_chunks()))


def are_new(rows: pa.Table, hashes: np.ndarray, kept: Iterable[Segment]) -> np.ndarray:
    """Which rows, with hashes of all but their buckets, no segment of kept rows holds."""
    unknown = np.ones(rows.num_rows, bool)
    for segment in kept:
        unknown[_find_known(segment, rows, hashes)] = False
    return unknown


def _find_known(segment: Segment, rows: pa.Table, hashes: np.ndarray) -> np.ndarray:
    """The positions of rows that a segment holds."""
    found = [np.empty(0, np.int64)]
    widths = table_widths(rows)
    for probe_idx, row_idx in _candidates(segment, integers(rows.column(TIME).combine_chunks()), hashes):
        each = widths if isinstance(widths, int) else widths[probe_idx]
        for begin, end in cuts(each, len(probe_idx), block_bytes()):
            probes = probe_idx[begin:end]
            known = segment.table.take(pa.array(row_idx[begin:end]))
            found.append(probes[_equal(rows.take(pa.array(probes)), known)])
    return np.concatenate(found)


def _candidates(segment: Segment, ts: np.ndarray, hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(position, row of the segment) where hash and bucket agree."""
    if len(ts) == 0 or segment.max_ts < ts.min() or segment.min_ts > ts.max():
        return
    index = segment.index_by(HASH)
    yield from pairs(*hash_window.probe(index, hashes, ts, ts), index.rows, CANDIDATES)


def _equal(left: pa.Table, right: pa.Table) -> np.ndarray:
    names = [name for name in left.column_names if name != TIME]
    sides = {f"{side}{n}": t.column(name) for side, t in (("l", left), ("r", right)) for n, name in enumerate(names)}
    columns = {name: retype(column, number_fields(column.type)) for name, column in sides.items()}
    same = " AND ".join(f"l{n} IS NOT DISTINCT FROM r{n}" for n in range(len(names))) or "true"
    answer = ask(f"SELECT {same} AS same FROM _pairs", "DISTINCT", _pairs=pa.table(columns)).column("same")
    return np.asarray(answer.to_numpy(zero_copy_only=False), np.bool_)


def _span(plan: Plan) -> int:
    """How long rows are kept, for the merging of segments."""
    width = bucket_us(plan.join)
    return UNBOUNDED if width is None else max(width, 1)
