"""DISTINCT among registered queries: a row is answered once per query and bucket of its youngest member's event time.

    pairs of a batch -> rows (query, values, bucket) -> first of each -> not among the kept -> answers

All answers of a query are made at one unit, so what `operators.finish.distinct` does in a round of its own is done here, with the same
rows, hashes, equality and buckets. An engine makes one `AnsweredRows` for a unit's turn, has it answer the pairs of every block, and
calls `settle` when it knows the watermarks.

What has been answered is kept as segments, by the types of the rows' columns and by whether they are kept for ever:

    |until|bigint|string     _query, _effect, p0, p1, _ts = last instant of the bucket, _hash

A row is dropped when its bucket is over: all watermarks of its own query's streams have passed the last instant, see
`operators.finish.distinct`. Rows of a query that has been removed are dropped with it. A query that comes again under its id took effect
in another batch, and `_effect` tells the two apart, so it starts anew.

Of equal rows in one turn the one with the earliest youngest member is answered, so the answer's time, too, depends on nothing
but the set of pairs and the state.

Invariant: values decide, hashes find candidates. Kept rows are at most 1.1 times those that are needed. In full history nothing
that was answered is ever forgotten. Whether a row is answered is decided here, after the join; what RJoin drops in it (`registry.rjoin.covering`) would be dropped here.
Implements: Idreos, Liarou, Koubarakis (2008), section 4, set semantics.
Departs from the paper: projections that repeat are found where answers are made, and a row is answered again in every bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import Fold, integers, slice_by_bytes
from watersmeet.columns.row_hash import HASH, row_hash
from watersmeet.columns.spark_types import unit_type
from watersmeet.dataflow.clock import NEVER
from watersmeet.operators.finish.distinct import are_new, firsts, last_instant
from watersmeet.plan.model import TIME
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.shared.answers import answer_rows, answers, write_texts
from watersmeet.registry.shared.block import FOR_EVER, UNTIL, Block
from watersmeet.registry.shared.fan_out import Pairs, group_positions
from watersmeet.storage.compaction import SLACK, Settler
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

QUERIES = "distinct"
"""In a manifest's extra: a sum over the queries whose rows are kept. If it has changed, some may have been removed."""
QUERY_OF_ROW, EFFECT_OF_ROW = "_query", "_effect"
"""Columns of rows that are kept: whose they are, and the batch in which that query took effect."""
_OF_THE_PAIR = ["_number", "_youngest"]
"""Columns of rows before they leave: the query's number in its block, and the youngest member's time."""


class AnsweredRows:
    """The rows that a unit has answered, during one turn of the unit."""

    def __init__(self, manifest: Manifest, store: SegmentStore) -> None:
        self.manifest, self.store = manifest, store
        self._new: dict[str, list[Segment]] = {}

    def answer(self, block: Block, chunks: Iterable[Pairs]) -> Iterator[pa.Table]:
        """The answers of pairs: of all for queries without DISTINCT, of the first of every row for those with it.

        Give all of a turn's pairs of a block together: those of DISTINCT leave when all have been seen.
        """
        held: dict[str, Fold] = {}
        for pairs in chunks:
            if not block.has_distinct:
                yield answers(block, pairs)
                continue
            wants = block.distinct[pairs.query]
            if not wants.all():
                yield answers(block, pairs.where(~wants) if wants.any() else pairs)
            for number, at in group_positions(np.where(wants, block.row_kind[pairs.query], -1)):
                if number >= 0:
                    kind = block.row_kinds[number]
                    held.setdefault(kind, Fold(_firsts)).add(self._fresh(kind, _rows(block, kind, pairs.where(at))))
        for kind, rows in held.items():
            yield from self._let_out(block, kind, rows.merge())

    def settle(self, blocks: Sequence[Block], marks: Mapping[str, int]) -> None:
        """Keep what has left, and drop what is over or of queries that have been removed; all living queries are in `blocks`."""
        kinds = sorted({k for k in self.manifest.segments if k.startswith((UNTIL, FOR_EVER))} | set(self._new))
        living = _Living([block for block in blocks if block.has_distinct], marks)
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

    def _fresh(self, kind: str, rows: pa.Table) -> pa.Table:
        """The first of every row that has not been answered before this turn."""
        rows = _firsts([rows])
        kept = [*map(self.store.read, self.manifest.segments.get(kind, [])), *self._new.get(kind, [])]
        told = rows.drop_columns(_OF_THE_PAIR)
        return rows.filter(pa.array(are_new(told, _hashes(told), kept)))

    def _let_out(self, block: Block, kind: str, rows: pa.Table) -> Iterator[pa.Table]:
        """The answers of rows, which are kept."""
        if rows.num_rows:
            told = rows.drop_columns(_OF_THE_PAIR)
            self._new.setdefault(kind, []).append(Segment.of(told.append_column(HASH, pa.array(_hashes(told)))))
        types = kind.split("|")[2:]
        for part in slice_by_bytes(rows):
            values = [part.column(f"p{n}").combine_chunks() for n in range(len(types))]
            number, youngest = (integers(part.column(name).combine_chunks()) for name in _OF_THE_PAIR)
            yield answer_rows(block, number, youngest, write_texts(values, types, "DISTINCT"))

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
    """The living queries with DISTINCT, and the times before which their kept rows are over. What is not asked for costs nothing."""

    def __init__(self, blocks: Sequence[Block], marks: Mapping[str, int]) -> None:
        self._blocks, self._marks = blocks, marks

    @cached_property
    def sum(self) -> int:
        """The same for the same queries, however they lie in blocks."""
        return int(np.array([block.distinct_sum for block in self._blocks], np.int64).sum())

    @cached_property
    def names(self) -> pa.Array:
        """Their ids."""
        found = [b.names.take(pa.array(p)) for b, p in self._places]
        return pa.concat_arrays([pa.array([], pa.large_string()), *found])

    @cached_property
    def effect(self) -> np.ndarray:
        """The batches in which they took effect."""
        return self._gather([b.effect[p] for b, p in self._places])

    @cached_property
    def width(self) -> np.ndarray:
        """Of their buckets."""
        return self._gather([b.bucket_us[p] for b, p in self._places])

    @cached_property
    def cut(self) -> np.ndarray:
        """The times before which their rows are over."""
        over = self._gather([b.template_over(self._marks)[b.template_of[p]] for b, p in self._places])
        return np.where(self.width >= UNBOUNDED, NEVER, over)

    @cached_property
    def _places(self) -> list[tuple[Block, np.ndarray]]:
        """By block the numbers of its rules."""
        return [(b, b.living_distinct) for b in self._blocks]

    def _gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.empty(0, np.int64), *parts])

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
        found = pc.index_in(segment.column(QUERY_OF_ROW), self.names)
        at = integers(found.fill_null(0))
        known = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        known &= self.effect[at] == integers(segment.column(EFFECT_OF_ROW))
        return known & (segment.ts >= self.cut[at])


def _rows(block: Block, kind: str, pairs: Pairs) -> pa.Table:
    """The rows of pairs whose queries answer in the same types."""
    query = pairs.query
    columns: dict[str, pa.Array] = {
        QUERY_OF_ROW: block.names.take(pa.array(query)),
        EFFECT_OF_ROW: pa.array(block.effect[query]),
    }
    for n, type_ in enumerate(kind.split("|")[2:]):
        columns[f"p{n}"] = _column(block, pairs, n, unit_type(type_))
    youngest = pairs.youngest[pairs.combination]
    of_the_pair = dict(zip(_OF_THE_PAIR, (query, youngest), strict=True))
    return pa.table({**columns, TIME: last_instant(youngest, block.bucket_us[query]), **of_the_pair})


def _firsts(held: list[pa.Table]) -> pa.Table:
    """Of equal rows the one with the earliest youngest member."""
    rows = pa.concat_tables(held).sort_by(_OF_THE_PAIR[1])
    return rows.take(pa.array(firsts(rows.drop_columns(_OF_THE_PAIR).combine_chunks()))).combine_chunks()


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
