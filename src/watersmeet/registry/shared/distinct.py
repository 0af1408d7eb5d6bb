"""DISTINCT among registered queries: a row is answered once per query and bucket of its youngest member's event time.

    pairs of a batch -> rows (query, values, bucket) -> first of each -> not among the kept -> pairs that are answered

All answers of a query are made at one unit, so what `operators.distinct` does in a round of its own is done here, between
`fan_out` and `answers`, with the same rows, hashes, equality and buckets. An engine makes one `AnsweredRows` for a unit's turn, sends
the pairs of every block through `once`, and calls `settle` when it knows the watermarks.

What has been answered is kept as segments, by the types of the rows' columns and by whether they are kept for ever:

    |until|bigint|string     _query, _effect, p0, p1, _ts = last instant of the bucket, _hash

A row is dropped when its bucket is over: all watermarks of its own query's streams have passed the last instant, see
`operators.distinct`. Rows of a query that has been removed are dropped with it. A query that comes again under its id took effect
in another batch, and `_effect` tells the two apart, so it starts anew.

Of equal rows in one turn the one with the earliest youngest member is answered, so the answer's time, too, depends on nothing
but the set of pairs and the state.

Invariant: values decide, hashes find candidates. Kept rows are at most 1.1 times those that are needed. In full history nothing
that was answered is ever forgotten: rows are pruned here, after the join, and never in it, where a window might make a repetition
the only member of a later bucket.
Implements: Idreos, Liarou, Koubarakis (2008), section 4, set semantics.
Departs from the paper: projections that repeat are found where answers are made, and a row is answered again in every bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import block_bytes, codes, integers
from watersmeet.columns.row_hash import HASH, row_hash
from watersmeet.columns.spark_types import unit_type
from watersmeet.dataflow.clock import NEVER
from watersmeet.kernels.hashing import combine
from watersmeet.operators.distinct import are_new, firsts
from watersmeet.operators.project import last_instant
from watersmeet.plan.model import TIME
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.shared.block import FOR_EVER, UNTIL, Block
from watersmeet.registry.shared.fan_out import Pairs, group_positions
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import SLACK, Segment, SegmentInfo, SegmentStore, Settler

QUERIES = "distinct"
"""In a manifest's extra: a sum over the queries whose rows are kept. If it has changed, some may have been removed."""
_QUERY, _EFFECT = "_query", "_effect"


@dataclass
class _Held:
    """Pairs that are the first of their rows so far, and these rows."""

    pairs: Pairs
    rows: pa.Table


@dataclass
class _Waiting:
    """Parts that wait for the end of a turn. Rows that several of them have are dropped each time that they have doubled
    beyond a block, so what waits is at most a few times the answer."""

    parts: list[_Held] = field(default_factory=list)
    size: int = 0
    enough: int = 0

    def add(self, part: _Held) -> None:
        self.parts.append(part)
        self.size += part.rows.nbytes
        if self.size > max(self.enough, block_bytes()) and len(self.parts) > 1:
            self.parts = _firsts(self.parts)
            self.size = sum(p.rows.nbytes for p in self.parts)
            self.enough = 2 * self.size


def _firsts(parts: list[_Held]) -> list[_Held]:
    """The first pairs of all parts together, of every row the earliest."""
    rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
    youngest = np.concatenate([part.pairs.youngest[part.pairs.combination] for part in parts])
    order = np.argsort(youngest, kind="stable")
    is_first = np.zeros(len(order), np.bool_)
    is_first[order[firsts(rows.take(pa.array(order)))]] = True
    out, begin = [], 0
    for part in parts:
        mine = is_first[begin : begin + len(part.pairs.query)]
        begin += len(mine)
        if mine.all():
            out.append(part)
        elif mine.any():
            out.append(_Held(part.pairs.where(mine).compact(), part.rows.filter(pa.array(mine))))
    return out


class AnsweredRows:
    """The rows that a unit has answered, during one turn of the unit."""

    def __init__(self, manifest: Manifest, store: SegmentStore) -> None:
        self.manifest, self.store = manifest, store
        self._new: dict[str, list[Segment]] = {}

    def once(self, block: Block, chunks: Iterable[Pairs]) -> Iterator[Pairs]:
        """The pairs that are answered: all of queries without DISTINCT, the first of every row of those with it.

        Give all of a turn's pairs of a block together: those of DISTINCT leave when all have been seen.
        """
        held: dict[str, _Waiting] = {}
        for pairs in chunks:
            wants = block.distinct[pairs.query]
            if not wants.any():
                yield pairs
                continue
            if not wants.all():
                yield pairs.where(~wants)
            mine = pairs.where(wants)
            for number, at in group_positions(block.row_kind[mine.query]):
                kind = block.row_kinds[number]
                for part in self._fresh(block, kind, mine.where(at)):
                    held.setdefault(kind, _Waiting()).add(part)
        for kind, waiting in held.items():
            yield from self._let_out(kind, _firsts(waiting.parts))

    def settle(self, blocks: Sequence[Block], marks: Mapping[str, int]) -> None:
        """Keep what has left, and drop what is over or of queries that have been removed; all living queries are in `blocks`."""
        kinds = sorted({k for k in self.manifest.segments if k.startswith((UNTIL, FOR_EVER))} | set(self._new))
        living = _Living([block for block in blocks if block.distinct.any()], marks)
        said = self.manifest.extra.pop(QUERIES, 0)
        if living.sum:
            self.manifest.extra[QUERIES] = living.sum
        for kind in kinds:
            infos = self.manifest.segments.pop(kind, [])
            highest = UNBOUNDED if said != living.sum else NEVER if kind.startswith(FOR_EVER) else living.highest_cut
            trimmed = [i for info in infos for i in self._trim(info, living, highest)]
            retention = UNBOUNDED if kind.startswith(FOR_EVER) else living.widest
            kept = Settler(self.store, NEVER, retention).settle(trimmed, self._alive(kind, living))
            if kept:
                self.manifest.segments[kind] = kept
        self._new = {}

    def _fresh(self, block: Block, kind: str, pairs: Pairs) -> Iterator[_Held]:
        """One pair for every row that has not been answered before this turn, the earliest first."""
        pairs = pairs.where(np.argsort(pairs.youngest[pairs.combination], kind="stable"))
        rows = _rows(block, kind, pairs)
        at = firsts(rows)
        rows = rows.take(pa.array(at))
        kept = [*map(self.store.read, self.manifest.segments.get(kind, [])), *self._new.get(kind, [])]
        unknown = are_new(rows, _hashes(rows), kept)
        if unknown.any():
            yield _Held(pairs.where(at[unknown]).compact(), rows.filter(pa.array(unknown)))

    def _let_out(self, kind: str, parts: list[_Held]) -> Iterator[Pairs]:
        """The pairs of parts; their rows are kept."""
        fresh = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        segment = Segment.of(fresh.append_column(HASH, pa.array(_hashes(fresh))))
        self._new.setdefault(kind, []).append(segment)
        for part in parts:
            yield from part.pairs.blocks()

    def _trim(self, info: SegmentInfo, living: _Living, highest_cut: int) -> Iterator[SegmentInfo]:
        """A segment without its dead rows, as far as they are worth the writing."""
        if info.min_ts >= highest_cut:
            yield info
            return
        segment = self.store.read(info)
        alive = living.needs(segment)
        count = int(np.count_nonzero(alive))
        if count and (segment.rows - count) * SLACK <= count:
            yield info
            return
        self.store.remove(info)
        if count:
            yield self.store.write(segment.where(alive))

    def _alive(self, kind: str, living: _Living) -> Segment | None:
        """The new rows whose buckets are not over already."""
        new = self._new.get(kind)
        if not new:
            return None
        whole = new[0] if len(new) == 1 else Segment.of(pa.concat_tables([s.table for s in new]))
        return whole.where(living.needs(whole))


class _Living:
    """The living queries with DISTINCT, and the times before which their kept rows are over."""

    def __init__(self, blocks: Sequence[Block], marks: Mapping[str, int]) -> None:
        places = [np.flatnonzero(b.distinct & (b.active != 0)) for b in blocks]
        nothing, no_names = [np.empty(0, np.int64)], [pa.array([], pa.large_string())]
        self.names = pa.concat_arrays(
            [*no_names, *(b.names.take(pa.array(p)) for b, p in zip(blocks, places, strict=True))]
        )
        self.effect = np.concatenate([*nothing, *(b.effect[p] for b, p in zip(blocks, places, strict=True))])
        self.width = np.concatenate([*nothing, *(b.bucket_us[p] for b, p in zip(blocks, places, strict=True))])
        over = [b.template_over(marks)[b.template_of[p]] for b, p in zip(blocks, places, strict=True)]
        self.cut = np.where(self.width >= UNBOUNDED, NEVER, np.concatenate([*nothing, *over]))

    @cached_property
    def sum(self) -> int:
        """The same for the same queries, however they lie in blocks."""
        return int(combine(codes(self.names, "bytes"), self.effect).sum()) if len(self.names) else 0

    @property
    def highest_cut(self) -> int:
        return int(self.cut.max(initial=NEVER))

    @property
    def widest(self) -> int:
        """How long rows are kept that are not kept for ever."""
        return int(self.width[self.width < UNBOUNDED].max(initial=1))

    def needs(self, segment: Segment) -> np.ndarray:
        """Which kept rows are of living queries and of buckets that are not over."""
        if not len(self.names):
            return np.zeros(segment.rows, np.bool_)
        found = pc.index_in(segment.column(_QUERY), self.names)
        at = integers(found.fill_null(0))
        known = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        known &= self.effect[at] == integers(segment.column(_EFFECT))
        return known & (segment.ts >= self.cut[at])


def _rows(block: Block, kind: str, pairs: Pairs) -> pa.Table:
    """The rows of pairs whose queries answer in the same types."""
    query = pairs.query
    columns: dict[str, pa.Array] = {
        _QUERY: block.names.take(pa.array(query)),
        _EFFECT: pa.array(block.effect[query]),
    }
    for n, type_ in enumerate(kind.split("|")[2:]):
        columns[f"p{n}"] = _column(block, pairs, n, unit_type(type_))
    youngest = pairs.youngest[pairs.combination]
    return pa.table({**columns, TIME: last_instant(youngest, block.bucket_us[query])})


def _column(block: Block, pairs: Pairs, n: int, type_: pa.DataType) -> pa.Array:
    """The n-th values of pairs."""
    query, parts, where = pairs.query, [], []
    for number, at in group_positions(block.output_column[query, n]):
        if number >= 0:
            stream, column = block.plain_names[number]
            alias = block.output_alias[query[at], n]
            parts.append(pairs.taken.at(stream, column, pairs.places[pairs.combination[at], alias]).cast(type_))
            where.append(at)
    for form, at in group_positions(block.output_form[query, n]):
        if form >= 0:
            text, parameters = block.outputs[form]
            found = pairs.values(text, parameters, at, block.output_use[query[at], n], "{}")
            parts.append(found.cast(type_))
            where.append(at)
    order = np.empty(len(query), np.int64)
    order[np.concatenate(where)] = np.arange(len(query))
    return pa.concat_arrays(parts).take(pa.array(order))


def _hashes(rows: pa.Table) -> np.ndarray:
    return row_hash(rows.drop_columns([TIME]))
