"""What a tree ships in letters, and the tree whose letters are the cheapest.

    ((a b) c)    level 1: a <-> b, results are stream 3;    level 2: 3 <-> c

The results of a level are a stream (decision 0050), and so they are priced: with a rate, a size and values of their own, which follow from those of the streams that
they are made of. Then both joins of a level are one-way joins like those of linear plans (`planning.letters`).

    states     (streams joined, site of the results)     a level costs the same however the streams below it were joined, so the cheapest way into a state is kept

Invariant: the search finds the cheapest tree under these prices. Items are named as letters name them. Ties go to what comes first.
Implements: Tran and Lee (2010), section 4.2, for the protocol that `sites.one_way.joins` runs; the paper leaves the cost of trees open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from watersmeet.sites.planning.items import RESULTS, Item, list_own_items, list_shared_items
from watersmeet.sites.planning.letters import REPEAT_BYTES, Facts, Letters, Placement, StreamFacts
from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, SiteQuery
from watersmeet.sites.planning.trees import Level, TreePlan
from watersmeet.sites.planning.values import Values

LEAST_STREAMS = 3
"""Of two streams a tree is a linear plan."""
MOST_STREAMS = 6
_BELOW = "*"
"""The name of the results below a level, among aliases."""
_LEAST_RATE = 1e-6
"""Results per second of a level that is not expected to have any: the stream that it is joined with is shipped all the same."""
_HERE = tuple(a for a in Algorithm if a in AT_SOURCE)
_THERE = tuple(a for a in Algorithm if a not in AT_SOURCE)

Price = Callable[[list[Item]], float]
_Cargo = tuple[float, list[Item]]
"""What a join ships, and its price."""


class _Way(NamedTuple):
    seconds: float
    first: str
    levels: tuple[Level, ...]


class TreeSearch:
    """Prices and finds trees of one query; `price` is that of items."""

    def __init__(self, query: SiteQuery, letters: Letters, price: Price) -> None:
        self.query, self.price_items = query, price
        self.delivered = letters
        self.placement = letters.placement
        # Inside a level the younger of two parts is the head, whatever the tuples of other streams.
        spans, pairs = letters.placement.spans, letters.placement.pairs
        self.letters = letters if spans == pairs else Letters(replace(letters.placement, spans=pairs), letters.facts)
        self._levels: dict[tuple[frozenset[str], str], Letters | None] = {}
        self._cargo: dict[tuple[frozenset[str], str, str, Algorithm, bool], _Cargo] = {}

    @property
    def is_possible(self) -> bool:
        """Whether there are trees worth looking at."""
        counted = any(s.window_rows is not None for s in self.query.streams)
        return LEAST_STREAMS <= len(self.query.aliases) <= MOST_STREAMS and not counted

    def find(self) -> TreePlan:
        """The cheapest tree."""
        sites = self.placement.sites
        states = {(frozenset({a}), sites[a]): _Way(0.0, a, ()) for a in self.query.aliases}
        for _ in range(len(self.query.aliases) - 1):
            wider: dict[tuple[frozenset[str], str], _Way] = {}
            for (done, place), way in states.items():
                for to in (a for a in self.query.aliases if a not in done and self.query.between(done, a)):
                    for level in self._list_best(done, place, to):
                        found = way.seconds + self._price(done, place, level)
                        state = done | {to}, sites[to] if level.at_stream else place
                        if state not in wider or found < wider[state].seconds:
                            wider[state] = _Way(found, way.first, (*way.levels, level))
            states = wider
        whole = [
            (way.seconds + self.price_items(list(self._deliver(place))), way) for (_, place), way in states.items()
        ]
        best = min(whole, key=lambda one: one[0])[1]
        return TreePlan(self.query, best.first, best.levels)

    def list_items(self, plan: TreePlan) -> Iterator[Item]:
        """All that a tree ships, per second."""
        done = frozenset({plan.first})
        for level, place in zip(plan.levels, plan.places(), strict=False):
            yield from self._ship(done, place, level)
            done |= {level.stream}
        yield from self._deliver(plan.places()[-1])

    def _list_best(self, done: frozenset[str], place: str, to: str) -> Iterator[Level]:
        """For each place of the results the cheapest pair of joins; a copy of the whole serves both."""
        if place == self.placement.sites[to]:
            yield Level(to, Algorithm.SP_S, Algorithm.SP_D)
            return
        for here, there in ((_HERE, _THERE), (_THERE, _HERE)):
            levels = [Level(to, up, down) for up in here for down in there]
            yield min(levels, key=lambda level: self._price(done, place, level))

    def _price(self, done: frozenset[str], place: str, level: Level) -> float:
        return sum(seconds for seconds, _ in self._list_cargo(done, place, level))

    def _ship(self, done: frozenset[str], place: str, level: Level) -> Iterator[Item]:
        """What the two joins of a level ship."""
        for _, items in self._list_cargo(done, place, level):
            yield from items

    def _list_cargo(self, done: frozenset[str], place: str, level: Level) -> Iterator[_Cargo]:
        """Of each join of a level; rows set out from a copy of all, if the other join has one sent."""
        for how, opposite, upward in ((level.downward, level.upward, False), (level.upward, level.downward, True)):
            if opposite is not Algorithm.SP_S or how in AT_SOURCE:
                key = done, place, level.stream, how, upward
                if key not in self._cargo:
                    items = list(self._list_join(*key))
                    self._cargo[key] = self.price_items(items), items
                yield self._cargo[key]

    def _list_join(self, done: frozenset[str], place: str, to: str, how: Algorithm, upward: bool) -> Iterator[Item]:
        """What one join of a level ships: upward from the stream to what is below it, else from there to the stream."""
        there = self.placement.sites[to]
        letters = self._letters_of(done, to) if place != there else None
        if letters is None:
            return
        below = next(iter(done)) if len(done) == 1 else _BELOW
        ends = (below, self._number(done), place), (to, self.placement.aliases.index(to), there)
        (head, n, at), (other, m, home) = reversed(ends) if upward else ends
        if (head, other) not in letters.placement.spans:
            return  # none of its rows is ever the younger
        step = letters.step(head, frozenset({head}), other, how)
        names = {_BELOW: "+".join(sorted(done))}
        source, target = names.get(head, head), names.get(other, other)
        yield from list_own_items(step, how, (at, home), f"{n} 0", f"{source} in a tree at {at} to {target}")
        what = f"{target} at {at}" + ("" if how is Algorithm.SP_S else f" for {source}")
        yield from list_shared_items(step, how, (home, at), m, letters.classes(frozenset({head}), other), what)

    def _number(self, done: frozenset[str]) -> int:
        """Of a stream that arrives its position, of a level's results the number after these."""
        aliases = self.placement.aliases
        return aliases.index(next(iter(done))) if len(done) == 1 else len(aliases) + len(done) - 2

    def _letters_of(self, done: frozenset[str], to: str) -> Letters | None:
        """Prices with the results below as a stream; None if they never meet the stream."""
        if len(done) == 1:
            return self.letters
        if (done, to) not in self._levels:
            self._levels[done, to] = self._join_below(done, to)
        return self._levels[done, to]

    def _join_below(self, done: frozenset[str], to: str) -> Letters | None:
        base, facts = self.letters.placement, self.letters.facts
        heads = [h for h in sorted(done) if all((h, x) in base.spans for x in done - {h})]
        flows = {h: self.letters.flow(h, done) for h in heads}
        if not heads:
            return None
        rate = max(sum(flow.rows for flow in flows.values()), _LEAST_RATE)
        spans = dict(base.spans)
        down = {h: base.spans[h, to] for h in heads if (h, to) in base.spans}
        if down:
            spans[_BELOW, to] = sum(flows[h].rows * s for h, s in down.items()) / rate
        if all((to, x) in base.spans for x in done):
            spans[to, _BELOW] = min(base.spans[to, x] for x in done)
        different = sum(min(f.rows, n) * facts.streams[a].each for f in flows.values() for a, n in f.members.items())
        repeated = sum(max(0.0, f.rows - n) for f in flows.values() for n in f.members.values()) * REPEAT_BYTES
        stream = StreamFacts(
            rate,
            (different + repeated) / rate if rate > _LEAST_RATE else sum(facts.streams[a].each for a in done),
            sum(facts.streams[a].item for a in done),
            min(facts.streams[h].interval for h in heads),
            min(facts.streams[a].memory for a in done),
        )
        classes = frozenset[int]().union(*(base.classes[a] for a in done))
        values = {}
        for c, known in facts.values.items():
            share = sum((flow.by_value[c] for flow in flows.values() if c in flow.by_value), np.zeros(len(known.count)))
            values[c] = Values(known.count, {**known.share, **({_BELOW: share / rate} if c in classes else {})})
        placement = Placement(
            {**base.sites, _BELOW: ""},
            {**base.classes, _BELOW: classes},
            spans,
            {**base.kept, _BELOW: max(spans.get((to, _BELOW), 0.0), 1e-3)},
        )
        return Letters(placement, Facts({**facts.streams, _BELOW: stream}, values, facts.codes))

    def _deliver(self, place: str) -> Iterator[Item]:
        """Results that are shipped to one site."""
        to = self.placement.results_at
        if to not in (None, place):
            heads = self.placement.heads
            size = sum(map(self.delivered.results, heads))
            yield Item(place, str(to), RESULTS, f"results: of {' '.join(heads)} at {place}", size)
