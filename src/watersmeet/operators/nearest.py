"""As-of joins: each tuple of the left side meets the one tuple of the right side that is nearest to it in time, on one side of it.

    backward   a.ts >= b.ts      right   . .   .b  |        the last at or before a; a leaves when the watermark of b is past a
    forward    a.ts <= b.ts                    |a  .b  .    the first at or after a; a leaves when the watermark of b is past that one

Left tuples wait. Who is nearest is decided when one leaves, among all right tuples with its keys, within the window if there is one; of several with the same time the
one with the smallest hash of its content is taken.

    right state   tuples that a left tuple can still be nearest to: those after the earliest left tuple that may come or waits, and of those before it the last of
                  every key; with a window no more than that reaches

Invariant: a left tuple leaves once, in the first batch after which nothing nearer can come. The turn is deterministic in (inbox as a set, state).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import codes, integers
from watersmeet.columns.row_hash import row_hash
from watersmeet.dataflow.clock import NEVER, Clock
from watersmeet.dataflow.contract import Onward, Turn, Yielded
from watersmeet.kernels.instants import LAST, shift
from watersmeet.operators.enter import LONE
from watersmeet.operators.join import on_time
from watersmeet.operators.outer.unmatched import Extend
from watersmeet.plan import model
from watersmeet.plan.model import ROWS_ONLY, TIME, Plan
from watersmeet.plan.types import exact
from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.compaction import SLACK, Settler
from watersmeet.storage.manifest import OTHER
from watersmeet.storage.segment import Segment, SegmentInfo

WAITING = f"{OTHER}waiting "
"""The kind of segments of left tuples."""


@dataclass(frozen=True)
class AsOf:
    """The as-of join with a number of a plan, as stage `stage` of its dataflow."""

    plan: Plan
    number: int
    stage: int
    onward: Onward

    def step(self, turn: Turn) -> Iterator[Yielded]:
        turn.listen()
        yield from self.onward(self._results(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Only a turn may drop tuples: it lets them leave first."""
        return {}

    @property
    def spec(self) -> model.Stage:
        return self.plan.stages[self.number]

    @property
    def into(self) -> model.Side | None:
        """The side that its results are; None: they are the query's."""
        if self.spec.onward is None:
            return None
        stage, side = self.spec.onward
        return self.plan.stages[stage].sides[side]

    def _results(self, turn: Turn) -> Iterator[pa.Table]:
        (left, right), extend = self.spec.sides, Extend(self.plan, self.spec.sides[0], self.into)
        lone = on_time(turn, self.plan, left, LONE + left.name, counts=True)
        if lone is not None:
            yield self._count(turn, extend(lone.table))
        kind = WAITING + left.name
        waiting = [turn.store.read(i) for i in turn.state.segments.get(kind, [])]
        arrived = on_time(turn, self.plan, left, left.name, counts=True)
        stored = [turn.store.read(i) for i in turn.state.segments.get(right.name, [])]
        new = on_time(turn, self.plan, right, right.name, counts=self._is_primary(turn, 1))
        partners = Partners(self.plan, self.spec, [s.table for s in (*stored, *([new] if new else []))])
        earliest, left_over = LAST, list[SegmentInfo]()
        infos = turn.state.segments.get(kind, [])
        for info, segment in [*zip(infos, waiting, strict=True), *([(None, arrived)] if arrived else [])]:
            nearest, leaves = partners.find(segment.table, turn.clock)
            yield from self._leave(turn, segment.table.filter(pa.array(leaves)), nearest[leaves], partners, extend)
            if leaves.all():
                if info is not None:
                    turn.store.remove(info)
                continue
            stays = segment if not leaves.any() else segment.where(~leaves)
            if info is None or stays is not segment:
                if info is not None:
                    turn.store.remove(info)
                info = turn.store.write(stays)
            left_over.append(info)
            earliest = min(earliest, stays.min_ts)
        turn.state.segments[kind] = Settler(turn.store, NEVER, 0).settle(left_over, None)
        self._keep(turn, partners, new, earliest)

    def _leave(
        self, turn: Turn, rows: pa.Table, nearest: np.ndarray, partners: Partners, extend: Extend
    ) -> Iterator[pa.Table]:
        """Left tuples with their partners; those without one alone, if they are preserved."""
        assert self.spec.part is not None
        alone = nearest < 0
        if (~alone).any():
            met = rows.filter(pa.array(~alone))
            yield self._count(turn, self._combine(met, partners.rows.take(pa.array(nearest[~alone]))))
        if alone.any() and self.spec.part.node.preserved:
            yield self._count(turn, extend(rows.filter(pa.array(alone))))

    def _count(self, turn: Turn, table: pa.Table) -> pa.Table:
        turn.report.results += table.num_rows if self.into is None else 0
        return table

    def _combine(self, left: pa.Table, right: pa.Table) -> pa.Table:
        tables = dict(zip(self.spec.sides, (left, right), strict=True))

        def column(alias: str, wire: str) -> pa.ChunkedArray:
            side = next(s for s in self.spec.sides if alias in s.aliases)
            return tables[side].column(side.column(alias, wire))

        if self.into is not None:
            return pa.table({self.into.column(a, name): column(a, name) for a, name in self.into.carried})
        if not self.plan.output:
            return pa.table({ROWS_ONLY: pa.nulls(left.num_rows, pa.bool_())})
        refs = enumerate(self.plan.output)
        return pa.table({f"o{n}": column(r.alias, self.plan.by_alias[r.alias].column(r)) for n, r in refs})

    def _keep(self, turn: Turn, partners: Partners, new: Segment | None, earliest: int) -> None:
        """Store what left tuples that wait or may come can be nearest to."""
        name, node = self.spec.sides[1].name, self.spec.part.node  # type: ignore[union-attr]
        assert node.nearest is not None
        left = node.inputs[0]
        bounds = [
            (self.plan.by_alias[z].stream, max(left.delays(v)[node.nearest.left, z] for v in left.variants))
            for z in left.aliases
        ]
        lives = partners.find_living(min(earliest, turn.clock.cut(bounds)))
        dead, infos = int(np.count_nonzero(~lives)), turn.state.segments.get(name, [])
        if dead * SLACK > len(lives) - dead:
            for info in infos:
                turn.store.remove(info)
            infos, new = [], Segment.of(partners.rows.filter(pa.array(lives))) if lives.any() else None
        turn.state.segments[name] = Settler(turn.store, NEVER, 0).settle(infos, new)
        turn.report.watermarks = turn.clock.after
        turn.report.retained = {s: n for s, n in turn.state.rows().items() if not s.startswith(OTHER)}
        turn.report.bytes = turn.state.bytes()

    def _is_primary(self, turn: Turn, side: int) -> bool:
        return self.spec.routing.is_primary(side, turn.unit % self.spec.units)


class Partners:
    """The right tuples of a turn, sorted by key, time and hash."""

    def __init__(self, plan: Plan, spec: model.Stage, tables: list[pa.Table]) -> None:
        assert spec.part is not None
        assert spec.part.node.nearest is not None
        self.plan, (self.left, self.right) = plan, spec.sides
        self.node, self.order = spec.part.node, spec.part.node.nearest
        self.rows: pa.Table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
        graph = plan.join.windows
        self.lo, self.hi = graph.lo(self.order.left, self.order.right), graph.hi(self.order.left, self.order.right)
        self.others = {a: span for a in self.left.real_aliases if a != self.order.left and (span := self._span_of(a))}
        """The windows of the left side's other aliases, which the partner is within, too."""
        self.stream = plan.by_alias[self.order.right].stream
        self.ts = integers(self.rows.column(TIME).combine_chunks()) if tables else np.empty(0, np.int64)
        self.hash = row_hash(self.rows, whole=True)
        if self.order.is_backward:  # of equal times the last is taken
            self.hash = ~self.hash

    def _span_of(self, alias: str) -> tuple[int, int] | None:
        """The smallest and the largest difference to an alias; None: any."""
        graph, right = self.plan.join.windows, self.order.right
        span = graph.lo(alias, right), graph.hi(alias, right)
        if alias not in self.node.certain:
            edges = self.node.choices[0]
            his = [e.hi_us for e in edges if (e.old, e.young) == (alias, right)]
            los = [-e.hi_us for e in edges if (e.old, e.young) == (right, alias)]
            span = max(los, default=-UNBOUNDED), min(his, default=UNBOUNDED)
        return None if span[0] <= -UNBOUNDED and span[1] >= UNBOUNDED else span

    def _within(self, left: pa.Table, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last instant at which every left tuple's partner may be; an alias that is NULL bounds nothing."""
        first, last = shift(times, self.lo), shift(times, self.hi)
        for alias, (lo, hi) in self.others.items():
            column = left.column(self.left.column(alias, TIME)).combine_chunks()
            valid, ts = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool), integers(column)
            first = np.where(valid, np.maximum(first, shift(ts, lo)), first)
            last = np.where(valid, np.minimum(last, shift(ts, hi)), last)
        return first, last

    def find(self, left: pa.Table, clock: Clock) -> tuple[np.ndarray, np.ndarray]:
        """The right row nearest to every left tuple, -1 if there is none, and which of these tuples leave now."""
        times = integers(left.column(TIME).combine_chunks())
        nearest = self._nearest(left, times)
        if self.order.is_backward:
            return nearest, clock.has_passed(self.stream, times)
        _, last = self._within(left, times)
        has = nearest >= 0
        last[has] = self.ts[nearest[has]]
        return nearest, clock.has_passed(self.stream, last)

    def _nearest(self, left: pa.Table, times: np.ndarray) -> np.ndarray:
        if not self.rows.num_rows:
            return np.full(len(times), -1)
        mine, its = self._keys(left)
        order = np.lexsort((self.hash, self.ts, its))
        its, ts = its[order], self.ts[order]
        first, end = np.searchsorted(its, mine, "left"), np.searchsorted(its, mine, "right")
        earliest, latest = self._within(left, times)
        if self.order.is_backward:
            at = bisect(ts, first, end, latest, or_equal=True) - 1
            found = (at >= first) & (ts[np.maximum(at, 0)] >= earliest)
        else:
            at = bisect(ts, first, end, earliest, or_equal=False)
            found = (at < end) & (ts[np.minimum(at, len(ts) - 1)] <= latest)
        return np.where(found, order[np.clip(at, 0, len(ts) - 1)], -1)

    def _keys(self, left: pa.Table | None) -> tuple[np.ndarray, np.ndarray]:
        """Numbers for the keys of left tuples and of right ones: equal numbers, equal keys."""
        count = 0 if left is None else left.num_rows
        out = np.zeros(count + self.rows.num_rows, np.int64)
        for c in sorted({*self.left.keys} & {*self.right.keys}):
            parts = [] if left is None else [left.column(self.left.keys[c])]
            whole = pa.chunked_array(
                [p for part in (*parts, self.rows.column(self.right.keys[c])) for p in part.chunks]
            )
            column, kind = whole.combine_chunks(), self.plan.classes[c].kind
            coded = codes(column, kind) if exact(kind) else integers(column.dictionary_encode().indices)
            _, out = np.unique(np.stack([out, coded]), axis=1, return_inverse=True)
            out = out.reshape(-1)
        return out[:count], out[count:]

    def find_living(self, floor: int) -> np.ndarray:
        """Which right rows a left tuple at or after a time can be nearest to."""
        if not self.rows.num_rows:
            return np.empty(0, bool)
        if floor <= NEVER:
            return np.ones(len(self.ts), bool)
        first, last = (int(shift(np.array([floor]), span)[0]) for span in (self.lo, self.hi))
        if not self.order.is_backward or self.others:  # another alias may rule out the last of a key
            return self.ts >= first
        _, its = self._keys(None)
        order = np.lexsort((self.hash, self.ts, its))
        early = self.ts[order] <= last
        follows = np.append((its[order][1:] == its[order][:-1]) & early[1:], False)
        lives = np.empty(len(order), bool)
        lives[order] = ~(early & follows)
        return lives & (self.ts >= first)


def bisect(ts: np.ndarray, first: np.ndarray, end: np.ndarray, wanted: np.ndarray, *, or_equal: bool) -> np.ndarray:
    """In each stretch [first, end) of ascending times, the first position whose time is later than wanted; with `or_equal` false, not earlier than it.

    >>> bisect(np.array([1, 3, 3, 5]), np.array([0]), np.array([4]), np.array([3]), or_equal=True).tolist()
    [3]
    """
    first, end = first.copy(), end.copy()
    while (open_ := first < end).any():
        mid = (first + end) // 2
        before = ts[np.minimum(mid, len(ts) - 1)]
        goes = open_ & (before <= wanted if or_equal else before < wanted)
        first, end = np.where(goes, mid + 1, first), np.where(open_ & ~goes, mid, end)
    return first
