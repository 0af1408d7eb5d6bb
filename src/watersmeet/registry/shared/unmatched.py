"""Outer, semi and anti joins of registered queries: preserved tuples that leave without a partner, or since they have one.

    LEFT, ANTI    a tuple leaves in the batch in which its wait ends, to the queries for which it has no partner by then
    SEMI          it leaves in the batch that brings its first partner, to the queries for which none was there before

                       watermark of the partners' stream
    before the batch   ----------|                            x1 had no partner, or had one: it left, or did not, in an earlier batch
    after it           ---------------------|                 x2's wait ends in this batch
                         x1+b        x2+b         x3+b        x3 waits

Whether a tuple has a partner differs from query to query, and a bit for each tuple and query would be more state than the tuples are. So nothing is noted: when the
wait ends, the stored partners are looked up by the same trie that finds pairs, for the tuples that some query wants. Partners are kept so long
(`registry.template`). When a tuple leaves is a function of the clock and of when it arrived, so nothing is kept from batch to batch, either.

Invariant: a tuple leaves for each query in the first batch after which no partner can come (SEMI: in which one has), and once: that batch is the only one in whose span
its wait ends. A tuple with a NULL key has no partner, and leaves when it arrives. When a wait ends is what `dataflow.clock` says, as for `operators.outer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from watersmeet.dataflow.clock import Clock
from watersmeet.kernels.instants import FIRST
from watersmeet.kernels.registered.fan_out import span
from watersmeet.kernels.registered.probe_trie import LIMIT, Segments, walk
from watersmeet.registry.plan import wire_name
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.fan_out import Pairs, fan_out, find_held, gather, take
from watersmeet.registry.shared.meter import Meter
from watersmeet.registry.shared.probe_trie import Trie
from watersmeet.registry.shared.visible import Visible
from watersmeet.registry.template import Template

Held = tuple[np.ndarray, np.ndarray]
"""Preserved tuples, and the numbers of queries."""


def is_due(block: Block, clock: Clock) -> bool:
    """Whether some wait ends in a batch without new tuples of the block's streams."""
    return any(low < high for low, high in _spans(block, clock).values())


def _spans(block: Block, clock: Clock) -> dict[int, tuple[int, int]]:
    """By template whose tuples leave without a partner: the span of event time in which waits end."""
    waits = {n: (t.streams[t.partner], t.wait_us) for n, t in block.outer.items() if t.outer != "semi"}
    ends = {wait: clock.find_ends(*wait) for wait in set(waits.values())}
    return {n: ends[wait] for n, wait in waits.items()}


class Unmatched:
    """The preserved tuples of a block that leave in one turn."""

    def __init__(self, block: Block, visible: Visible, clock: Clock, meter: Meter) -> None:
        self.block, self.visible, self.meter = block, visible, meter
        self._spans = _spans(block, clock)
        self._low, self._high = (np.full(block.templates, FIRST, np.int64) for _ in range(2))
        for n, (low, high) in self._spans.items():
            self._low[n], self._high[n] = low, high
        self._ended: dict[tuple[str, int, int, tuple[str, ...]], np.ndarray] = {}

    def leave(self) -> Iterator[Pairs]:
        """Answers of tuples that leave without a partner."""
        for templates, tuples in gather(self._alone(), LIMIT // 2):
            index = self.block.index.start
            for found in fan_out(self.block, self.visible, tuples, index[templates], np.diff(index)[templates]):
                yield from self._without_partner(found)

    def firsts(self, chunks: Iterable[Pairs]) -> Iterator[Pairs]:
        """The same answers, but of semi joins: each of their tuples once, if it has no earlier partner."""
        held: list[Held] = []
        for pairs in chunks:
            semi = self.block.is_semi[pairs.query]
            if not semi.all():
                yield pairs.where(~semi) if semi.any() else pairs
            if semi.any():
                held.append(_unique(*self._name(pairs.where(semi))))
        if held:
            x, query = _unique(*(np.concatenate(parts) for parts in zip(*held, strict=True)))
            old = ~self._is_new[x >> 32]
            keep = np.ones(len(x), np.bool_)
            keep[old] = ~self._have_partner(x[old], query[old], self._stored, ends=False)
            yield from self._let_out(x[keep], query[keep])

    def _alone(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Chunks of lone templates, and preserved tuples whose wait ends."""
        for n, (low, high) in self._spans.items():
            template = self.block.outer[n]
            ended = self._find_ended(template, low, high)
            for begin in range(0, len(ended), LIMIT):
                part = ended[begin : begin + LIMIT]
                tuples = np.full((len(part), self.block.width), -1, np.int64)
                tuples[:, template.preserved] = part
                yield np.full(len(part), self.block.lone[n]), tuples

    def _find_ended(self, template: Template, low: int, high: int) -> np.ndarray:
        """The tuples whose wait ends: stored ones in the span, new ones up to its end, and new ones that can match nothing."""
        stream = template.streams[template.preserved]
        place = stream, low, high, template.needed
        if place not in self._ended:
            number = self.visible.streams.index(stream)
            begin, end = self.visible.first[number : number + 2]
            kernel = self.visible.kernel
            reached = (kernel.min_ts[begin : end - 1] < high) & (kernel.max_ts[begin : end - 1] >= low)
            found = [
                self._find_rows(at, FIRST if at == end - 1 else low, high, stream, template.needed)
                for at in (*(begin + np.flatnonzero(reached)).tolist(), end - 1)
            ]
            self._ended[place] = np.concatenate(found)
        return self._ended[place]

    def _find_rows(self, at: int, low: int, high: int, stream: str, needed: tuple[str, ...]) -> np.ndarray:
        segment, is_new = self.visible.segments[at], bool(self._is_new[at])
        if segment is None:
            return np.empty(0, np.int64)
        spec = self.visible.plan.streams[stream]
        hopeless = segment.find_nulls(*(wire_name(spec, column) for column in needed))
        if hopeless is None and (segment.min_ts >= high or segment.max_ts < low):
            return np.empty(0, np.int64)
        ends = (segment.ts >= low) & (segment.ts < high)
        if hopeless is not None:
            ends = ends | hopeless if is_new else ends & ~hopeless
        return (at << 32) | np.flatnonzero(ends)

    def _without_partner(self, found: Pairs) -> Iterator[Pairs]:
        x, query = self._name(found)
        keep = ~self._have_partner(x, query, self._all, ends=True)
        if keep.any():
            yield found.where(keep)

    def _name(self, pairs: Pairs) -> Held:
        """The preserved tuples of pairs, and their queries."""
        return pairs.tuples[pairs.combination, self.block.preserved[pairs.query]], self.block.owner[pairs.query]

    def _have_partner(self, x: np.ndarray, query: np.ndarray, segments: Segments, *, ends: bool) -> np.ndarray:
        """Which tuples have a partner for a query, among those that may be seen; `ends`: in templates in which their wait ends."""
        asked, place = np.unique(x, return_inverse=True)
        wanted, has = place * len(self.block.queries) + query, np.zeros(len(x), np.bool_)
        for found, theirs in self._find_partners(asked, segments, ends=ends):
            at = np.minimum(np.searchsorted(asked, found), len(asked) - 1)
            mine = asked[at] == found
            has |= np.isin(wanted, at[mine] * len(self.block.queries) + theirs[mine])
        return has

    def _find_partners(self, asked: np.ndarray, segments: Segments, *, ends: bool) -> Iterator[Held]:
        """Chunks of tuples that have a partner, and the queries for which they have it."""
        block, start, trie = self.block, self.block.index.start, self.block.partners
        assert trie is not None
        made = self.meter.count_combinations(block, trie, lambda tried: self._combine(trie, asked, segments, tried))
        for templates, tuples in made:
            if ends:
                templates, tuples = self._keep_ending(templates, tuples)
            first = start[templates]
            for combination, rule in find_held(block, self.visible, tuples, first, start[templates + 1] - first):
                yield tuples[combination, block.preserved[rule]], block.owner[rule]

    def _combine(
        self, trie: Trie, asked: np.ndarray, segments: Segments, tried: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """What tuples make with those that may be seen, by templates."""
        for at in np.unique(asked >> 32):
            rows = asked[asked >> 32 == at] & 0xFFFFFFFF
            stream = self.visible.stream_of[at]
            yield from walk(
                trie,
                self.block.width,
                segments,
                stream,
                rows,
                driving=int(at),
                tried=tried,
                most_leaves=self.block.most_leaves,
            )

    def _keep_ending(self, templates: np.ndarray, tuples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The combinations of templates in which the preserved tuple's wait ends."""
        x = tuples[np.arange(len(tuples)), self._preserved[templates]]
        ts, _ = span(np.ascontiguousarray(x[:, None]), self.visible.ts, self.visible.batch)
        keep = (ts < self._high[templates]) & (self._is_new[x >> 32] | (ts >= self._low[templates]))
        return templates[keep], np.ascontiguousarray(tuples[keep])

    def _let_out(self, x: np.ndarray, query: np.ndarray) -> Iterator[Pairs]:
        """Answers of tuples by themselves."""
        rules = np.flatnonzero(self.block.is_semi & self.block.is_lone)
        rule_of = np.zeros(len(self.block.queries), np.int64)
        rule_of[self.block.owner[rules]] = rules
        for begin in range(0, len(x), LIMIT):
            rule, part = rule_of[query[begin : begin + LIMIT]], x[begin : begin + LIMIT]
            tuples = np.full((len(part), self.block.width), -1, np.int64)
            tuples[np.arange(len(part)), self.block.preserved[rule]] = part
            youngest, _ = span(tuples, self.visible.ts, self.visible.batch)
            yield from take(self.visible, tuples, youngest, np.arange(len(part)), rule).blocks()

    @cached_property
    def _preserved(self) -> np.ndarray:
        """By template."""
        out = np.zeros(self.block.templates, np.int64)
        out[list(self.block.outer)] = [t.preserved for t in self.block.outer.values()]
        return out

    @cached_property
    def _is_new(self) -> np.ndarray:
        """By segment."""
        return self.visible.kernel.is_new != 0

    @cached_property
    def _all(self) -> Segments:
        """Stored and new tuples, whichever came first."""
        kernel = self.visible.kernel
        return kernel._replace(is_new=np.zeros_like(kernel.is_new))

    @cached_property
    def _stored(self) -> Segments:
        """Tuples of earlier batches: the others are not to be found."""
        indexes = self._all.indexes.copy()
        indexes[:, self._is_new] = 0
        return self._all._replace(indexes=indexes)


def _unique(x: np.ndarray, query: np.ndarray) -> Held:
    """Each pair once."""
    order = np.lexsort((query, x))
    x, query = x[order], query[order]
    first = np.append(True, (x[1:] != x[:-1]) | (query[1:] != query[:-1]))[: len(x)]
    return x[first], query[first]
