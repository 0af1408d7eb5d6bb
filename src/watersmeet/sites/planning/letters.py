"""What a plan ships in letters: for every one-way join the bytes of each kind of item, per second of event time.

    a: b SM-S1      paris > tokyo   ask 0 0     keys of a's tuples, with the times of their first and last heads
                    tokyo > paris   @1 copy     tuples of b that match and were not sent before

Every batch of a site sends each other site one letter, whatever the plan: heartbeats travel anyway. So plans differ in bytes alone:

    seconds of line  =  latency * letters  +  bytes / bandwidth

An item of a letter is an Arrow stream, compressed: it costs a few hundred bytes, and then so many for each row. Tuples of a stream and codes of a key
have the size that was measured of them. A result so far repeats the tuples that it is made of, which compresses well: each different tuple is counted once.

All figures are sums over the values of a key (`planning.values`). Tuples of a value come by chance, evenly (Poisson): one comes in a span L with
1 - exp(-rate L).

Invariant: the terms of a plan are named as its letters name their items, so what was expected can be compared with what was counted, item by item.
Implements: Tran and Lee (2010), section 4.1 and appendix B, for the protocol that `sites.one_way.joins` runs.
Departs from the paper: no processing; times in place of counts, so values are told once in a while; values need not be equally frequent, nor nested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from watersmeet.sites.planning.cost import BYTES_PER_VALUE, FALSE_POSITIVES, LEAST_BYTES
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.planning.values import Values

COLUMN_BYTES, ITEM_BYTES = 35.0, 140.0
"""What an Arrow stream of an item takes for each column, and besides."""
TIME_BYTES, REPEAT_BYTES = 3.2, 4.0
"""The times of a code in an item, compressed: the second is mostly the first. What a row of results so far takes for each member that another row has, too."""
_MOST_OF_MEMORY = 0.8
_SPARE = 0.25
"""Of the time that a tuple is kept: so much longer than its last tuple a value is told to live, see `sites.one_way.joins`."""


@dataclass(frozen=True)
class StreamFacts:
    """What was measured of a stream."""

    rate: float
    """Tuples per second of event time."""
    each: float
    """Bytes of a tuple in a letter, compressed."""
    item: float = 1000.0
    """Bytes of an item of tuples, besides."""
    interval: float = 1.0
    """Seconds of event time of a batch at its site."""
    memory: float = np.inf
    """Seconds of the stream in which its values were counted."""


@dataclass(frozen=True)
class Facts:
    """What was measured of all streams."""

    streams: Mapping[str, StreamFacts]
    values: Mapping[int, Values]
    """By class of keys."""
    codes: Mapping[int, float] = field(default_factory=dict)
    """By class of keys, the bytes of a code, compressed; 8 if nothing is known."""

    def list_figures(self) -> list[float]:
        """In one order what prices depend on: rates, sizes, and of keys how many values there are and how many tuples of two streams have the same."""
        streams = sorted(self.streams.items())
        out = [figure for _, one in streams for figure in (one.rate, one.each, one.interval)]
        for number, values in sorted(self.values.items()):
            out.append(self.codes.get(number, 8.0))
            shares = [share for _, share in sorted(values.share.items())]
            out += [float((values.count * x * y).sum()) for x, y in combinations_with_replacement(shares, 2)]
        return out


@dataclass(frozen=True)
class Placement:
    """What of a query the prices depend on."""

    sites: Mapping[str, str]
    """By alias."""
    classes: Mapping[str, frozenset[int]]
    """By alias, the classes of its keys."""
    spans: Mapping[tuple[str, str], float]
    """By head and other alias, the seconds of the other stream that a head meets; none of a head that is never a result's youngest tuple."""
    kept: Mapping[str, float]
    """By alias, the seconds that a tuple is kept."""
    results_at: str | None = None
    """The site that results are shipped to; None: they stay where they are found."""
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """As `spans`, where the one is the younger of the two, whatever the others: a level of a tree knows no others."""

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(self.sites)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Whose tuples may be a result's youngest."""
        return tuple(a for a in self.sites if any(a == head for head, _ in self.spans))

    @property
    def longest(self) -> float:
        """The longest window, in seconds."""
        return max(self.kept.values())


class Flow(NamedTuple):
    """What a head's tuples have become, per second."""

    rows: float
    heads: float
    """Tuples of the head that have a row."""
    by_value: Mapping[int, np.ndarray]
    """By class, the rows of each value."""
    heads_by_value: Mapping[int, np.ndarray]
    """The same of tuples of the head, where the head has the class."""
    members: Mapping[str, float]
    """By alias, different tuples in a second's batches."""


class Step(NamedTuple):
    """What a one-way join ships, in bytes per second."""

    copied: float = 0.0
    """Tuples of the stream that come to the source."""
    told: float = 0.0
    """Values or filters of the stream."""
    asked: float = 0.0
    wanted: float = 0.0
    rows: float = 0.0


class Letters:
    """Prices of one query under what was measured."""

    def __init__(self, placement: Placement, facts: Facts) -> None:
        self.placement, self.facts = placement, facts
        self._flows: dict[tuple[str, frozenset[str]], Flow] = {}
        self._steps: dict[tuple[str, frozenset[str], str, Algorithm], Step] = {}
        self._joins: dict[tuple[str, frozenset[str], str], OneWay] = {}
        self._classes: dict[tuple[frozenset[str], str], tuple[int, ...]] = {}

    def flow(self, head: str, done: frozenset[str]) -> Flow:
        """Of a head that has been joined with streams, itself among them."""
        key = head, done
        if key not in self._flows:
            self._flows[key] = self._first(head) if len(done) == 1 else self._join_last(head, done)
        return self._flows[key]

    def step(self, head: str, done: frozenset[str], to: str, how: Algorithm) -> Step:
        """A one-way join, as if it were the only one of the plan."""
        key = head, done, to, how
        if key not in self._steps:
            if key[:3] not in self._joins:
                self._joins[key[:3]] = OneWay(self, head, done, to)
            self._steps[key] = self._joins[key[:3]].price(how)
        return self._steps[key]

    def results(self, head: str) -> float:
        """Bytes of a head's results, per second."""
        flow, streams = self.flow(head, frozenset(self.placement.aliases)), self.facts.streams
        interval = streams[head].interval
        item = ITEM_BYTES + COLUMN_BYTES * len(flow.members)
        different = sum(min(flow.rows, n) * streams[a].each for a, n in flow.members.items())
        repeated = sum(max(0.0, flow.rows - n) for n in flow.members.values()) * REPEAT_BYTES
        return -math.expm1(-flow.heads * interval) / interval * item + different + repeated

    def classes(self, done: frozenset[str], to: str) -> tuple[int, ...]:
        """The keys that rows and a stream have in common."""
        if (done, to) not in self._classes:
            ours = frozenset[int]().union(*(self.placement.classes[a] for a in done))
            self._classes[done, to] = tuple(sorted(ours & self.placement.classes[to]))
        return self._classes[done, to]

    def rate_by_value(self, alias: str, number: int) -> np.ndarray:
        """Tuples per second of each value of a key."""
        return self.facts.streams[alias].rate * self.facts.values[number].share[alias]

    def _first(self, head: str) -> Flow:
        rate = self.facts.streams[head].rate
        by_value = {c: self.rate_by_value(head, c) for c in self.placement.classes[head]}
        return Flow(rate, rate, by_value, by_value, {head: rate})

    def _join_last(self, head: str, done: frozenset[str]) -> Flow:
        """From the flow without one of its streams: that which comes last if others that are connected come first."""
        order = [head]
        while len(order) < len(done):
            left = [a for a in self.placement.aliases if a in done and a not in order]
            near = [a for a in left if self.classes(frozenset(order), a)]
            order.append((near or left)[0])
        return OneWay(self, head, frozenset(order[:-1]), order[-1]).join()


class OneWay:
    """A one-way join of a flow with a stream."""

    def __init__(self, letters: Letters, head: str, done: frozenset[str], to: str) -> None:
        self.letters, self.head, self.to = letters, head, to
        placement, facts = letters.placement, letters.facts
        self.flow, self.stream = letters.flow(head, done), facts.streams[to]
        self.interval = facts.streams[head].interval
        self.span, self.kept = placement.spans[head, to], placement.kept[to]
        self.classes = letters.classes(done, to)
        self.code = max(1.0, sum(facts.codes.get(c, 8.0) for c in self.classes))
        main = min(self.classes, key=self._chance_equal, default=None)
        """Of several keys the one that tells most apart; what the others leave of a match is `rest`."""
        self.main = main
        self.rest = float(np.prod([self._chance_equal(c) for c in self.classes if c != main]))
        self.count = np.ones(1) if main is None else facts.values[main].count
        self.rows = np.array([self.flow.rows]) if main is None else self.flow.by_value[main]
        heads = self.flow.heads_by_value.get(-1 if main is None else main)
        self.heads = np.minimum(self.rows, self.flow.heads) if heads is None else heads
        rate = np.array([self.stream.rate]) if main is None else letters.rate_by_value(to, main)
        self.rate = rate * self.rest

    def _chance_equal(self, number: int) -> float:
        values, flow = self.letters.facts.values[number], self.flow
        theirs = flow.by_value[number] / max(flow.rows, 1e-12)
        return float((values.count * theirs * values.share[self.to]).sum())

    def join(self) -> Flow:
        """The flow with the stream."""
        matched, lives = self.rows * self.rate * self.span, self._come(self.span)
        total, before = self._sum(matched), self._sum(self.rows)
        by_value = {c: rows * (total / max(before, 1e-12)) for c, rows in self.flow.by_value.items()}
        alive = self._sum(self.heads * lives) / max(self._sum(self.heads), 1e-12)
        heads_by_value = {c: h * alive for c, h in self.flow.heads_by_value.items()}
        if self.main is not None:
            by_value[self.main] = matched
            if self.main in heads_by_value:
                heads_by_value[self.main] = self.heads * lives
        facts, placed = self.letters.facts, self.letters.placement
        for c in placed.classes[self.to]:
            by_value.setdefault(c, total * facts.values[c].share[self.to])
        arrive = self.rate * (self.span + self.interval) / self.interval * self._head_comes(self.heads, self.interval)
        new = self._sum(np.minimum(matched, arrive))
        members = {a: min(n * alive, total) for a, n in self.flow.members.items()} | {self.to: new}
        return Flow(total, self.flow.heads * alive, by_value, heads_by_value, members)

    def price(self, how: Algorithm) -> Step:
        """What an algorithm ships."""
        return {
            Algorithm.SP_S: lambda: Step(copied=self._tuples(np.ones(len(self.count)), 1.0)),
            Algorithm.SP_D: lambda: Step(rows=self._ship(1.0, self.rows)),
            Algorithm.SM_S1: self._sm_s1, Algorithm.SM_S2: self._sm_s2,
            Algorithm.SM_D1: self._sm_d1, Algorithm.SM_D2: self._sm_d2,
            Algorithm.SMB_S1: self._smb_s1, Algorithm.SMB_S2: self._smb_s2,
            Algorithm.SMB_D1: self._smb_d1, Algorithm.SMB_D2: self._smb_d2,
        }[how]()  # fmt: skip

    def _sm_s1(self) -> Step:
        asked = self._head_comes(self.heads, self.span + self.interval / 2)
        return Step(asked=self._items(3, self._keys(self.heads), self.interval), copied=self._tuples(asked))

    def _sm_s2(self) -> Step:
        passed = self.heads * self._known
        every = np.maximum(1 / np.maximum(passed, 1e-12), self.interval) + self.span
        active = self.span / every
        sent = active + (1 - active) * self._head_comes(passed, self.span + self.interval)
        asked = self._items(3, self._sum(1 / every), self.interval)
        return Step(asked=asked, told=self._values, copied=self._tuples(sent))

    def _sm_d1(self) -> Step:
        return Step(told=self._values, rows=self._ship(self._known, self.rows * self._known))

    def _sm_d2(self) -> Step:
        found = self._come(self.span + self.interval / 2)
        asked, wanted = self._keys(self.heads), self._keys(self.heads, found)
        return Step(
            asked=self._items(3, asked, self.interval),
            wanted=self._items(1, wanted, self.stream.interval),
            rows=self._ship(found, self.rows * found),
        )

    def _smb_s1(self) -> Step:
        asked = self._with_false(self._head_comes(self.heads, self._life), self._life / self.interval)
        return Step(asked=self._filter(self._keys(self.heads), self.interval), copied=self._tuples(asked))

    def _smb_s2(self) -> Step:
        passed = self.heads * self._with_false(self._stored)
        asked = self._with_false(self._head_comes(passed, self._life), self._life / self.interval)
        return Step(asked=self._filter(self._keys(passed), self.interval), told=self._bloom, copied=self._tuples(asked))

    def _smb_d1(self) -> Step:
        passed = self._with_false(self._stored)
        return Step(told=self._bloom, rows=self._ship(passed, self.rows * passed))

    def _smb_d2(self) -> Step:
        found = self._with_false(self._stored)
        return Step(
            asked=self._filter(self._keys(self.heads), self.interval),
            wanted=self._filter(self._keys(self.heads, self._stored), self.stream.interval),
            rows=self._ship(found, self.rows * found),
        )

    # ------------------------------------------------------------ parts

    def _sum(self, each: np.ndarray) -> float:
        return float((self.count * each).sum())

    def _come(self, seconds: float) -> np.ndarray:
        """By value the chance that the stream has a tuple in so many seconds."""
        return _any(self.rate * seconds * _widen(seconds / self.stream.memory))

    def _head_comes(self, heads: np.ndarray, seconds: float) -> np.ndarray:
        """By value the chance that there is a head in so many seconds."""
        memory = self.letters.facts.streams[self.head].memory
        return _any(heads * seconds * _widen(seconds / memory))

    @cached_property
    def _known(self) -> np.ndarray:
        """The chance that a head's value is among those that the source was told of."""
        return self._come(self.span + self.kept * _SPARE / 2)

    @property
    def _life(self) -> float:
        """Seconds that a tuple is stored: until the heads that it could meet have passed, which letters say two batches later."""
        return self.kept + 2 * self.interval

    @cached_property
    def _stored(self) -> np.ndarray:
        """The chance that a value is stored at the stream's home."""
        return self._come(self._life)

    @cached_property
    def _values(self) -> float:
        """Bytes of values that are told: each again when one comes after its time."""
        every = self.kept * _SPARE + np.maximum(1 / np.maximum(self.rate, 1e-12), self.stream.interval)
        return self._items(2, self._sum(np.where(self.rate > 0, 1 / every, 0.0)), self.stream.interval)

    @cached_property
    def _bloom(self) -> float:
        return self._filter(self._sum(self._stored) / self.stream.interval, self.stream.interval)

    def _with_false(self, share: np.ndarray, times: float = 1.0) -> np.ndarray:
        """A chance, with that of passing a filter, or one of several, falsely."""
        return 1 - (1 - share) * (1 - FALSE_POSITIVES) ** times

    def _keys(self, heads: np.ndarray, found: np.ndarray | float = 1.0) -> float:
        """Different values of heads in a batch, per second."""
        return self._sum(self._head_comes(heads, self.interval) * found) / self.interval

    def _items(self, columns: int, rows: float, interval: float) -> float:
        """Bytes of codes with times, in as many items as have any."""
        each = self.code + (TIME_BYTES if columns > 1 else 0.0)
        return self._often(rows, interval) * (ITEM_BYTES + COLUMN_BYTES * columns) + rows * each

    def _filter(self, values: float, interval: float) -> float:
        often = self._often(values, interval)
        return often * (ITEM_BYTES + COLUMN_BYTES) + max(values * BYTES_PER_VALUE, often * LEAST_BYTES)

    @staticmethod
    def _often(rows: float, interval: float) -> float:
        """Items per second, if so many rows per second are shipped."""
        return -math.expm1(-rows * interval) / interval

    def _tuples(self, share: np.ndarray, at_least: float = 0.0) -> float:
        """Bytes of the stream's tuples, of which each value's have a chance to be shipped."""
        rate = max(self._sum(self.rate / max(self.rest, 1e-12) * share), at_least * self.stream.rate)
        return self._often(rate, self.stream.interval) * self.stream.item + rate * self.stream.each

    def _ship(self, share: np.ndarray | float, by_value: np.ndarray) -> float:
        """Bytes of the flow's rows, of which each value's have a chance to be shipped."""
        streams, flow, rows = self.letters.facts.streams, self.flow, self._sum(by_value)
        part = rows / max(flow.rows, 1e-12)
        often = self._often(self._sum(self.heads * share), self.interval)
        item = sum(streams[a].item for a in flow.members)
        different = sum(min(rows, n * part) * streams[a].each for a, n in flow.members.items())
        repeated = sum(max(0.0, rows - n * part) for n in flow.members.values()) * REPEAT_BYTES
        return often * item + different + repeated


def _widen(part: float) -> float:
    """By what to multiply what is expected of a value in a span that is such a part of the time in which values were counted.

    A value that has come n times in M seconds comes in L of them with 1 - (1 - L / M)^n, on average over all values; n L / M in place of its rate would promise less, since values that come
    rarely are counted not at all, or once.

    >>> round(_widen(0.5), 2), _widen(0.0)
    (1.39, 1.0)
    """
    part = min(part, _MOST_OF_MEMORY)
    return -math.log1p(-part) / part if part > 0 else 1.0


def _any(expected: np.ndarray) -> np.ndarray:
    """The chance that something comes of which so many are expected."""
    return -np.expm1(-expected)
