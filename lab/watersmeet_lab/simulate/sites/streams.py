"""The streams of a query as sites see them: numbered tuples with order times, windows and keys as integers.

Invariant: equal keys have equal codes on both sides of a join; a NULL has a negative code, and so has any key with a NULL in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from watersmeet.errors import StreamError
from watersmeet.kernels.hashing import combine
from watersmeet.sites.planning.model import Column, SiteQuery
from watersmeet.sites.planning.statistics import Statistics, StreamStatistics
from watersmeet_lab.simulate.sites.halves import Joint
from watersmeet_lab.simulate.sites.window import EVER, NONE, Arrival, Rows, Tuples

_BITS = 62


@dataclass(frozen=True)
class Sample:
    """A piece of a stream: times, and join attributes as codes (equal values, equal codes, in all streams of a query)."""

    ts: np.ndarray
    codes: Mapping[str, np.ndarray]
    full_bytes: float
    partial_bytes: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Streams:
    """A query with the samples of its streams: times ascending, codes dense from 0 in every class of columns."""

    query: SiteQuery
    samples: Mapping[str, Sample]

    def __post_init__(self) -> None:
        for alias in self.query.aliases:
            if alias not in self.samples:
                raise StreamError(f"stream {alias}: there is no data")
            ts = self.samples[alias].ts
            if len(ts) and np.any(ts[1:] < ts[:-1]):
                raise StreamError(f"stream {alias}: tuples must come in the order of their times; sort them")

    @property
    def width(self) -> int:
        return len(self.query.aliases)

    @cached_property
    def base(self) -> dict[str, Base]:
        return {alias: Base(self, alias) for alias in self.query.aliases}

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """The first and the last time of all streams."""
        times = [s.ts for s in self.samples.values() if len(s.ts)]
        return (min(int(t[0]) for t in times), max(int(t[-1]) for t in times)) if times else (0, -1)

    def keys(self, pairs: tuple[tuple[Column, Column], ...]) -> tuple[Keys, Keys]:
        """What both sides of a join are matched by: the columns of the source and of the destination."""
        most = [max(self._most(x), self._most(y)) for x, y in pairs]
        return tuple(Keys(self, tuple(p[side] for p in pairs), tuple(most)) for side in (0, 1))  # type: ignore[return-value]

    def key_bytes(self, columns: tuple[Column, ...]) -> int:
        return round(sum(self.samples[a].partial_bytes[c] for a, c in dict.fromkeys(columns)))

    def row_bytes(self, aliases: frozenset[str]) -> int:
        return round(sum(self.samples[a].full_bytes for a in aliases))

    def _most(self, column: Column) -> int:
        codes = self.samples[column[0]].codes[column[1]]
        return int(codes.max(initial=0)) + 1


@dataclass(frozen=True)
class Keys:
    """The key of rows: codes of columns, put together."""

    streams: Streams
    columns: tuple[Column, ...]
    most: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether different keys have different codes for certain."""
        return sum(m.bit_length() for m in self.most) <= _BITS

    def of(self, members: Mapping[str, np.ndarray]) -> np.ndarray:
        """Codes of joined tuples, given by number."""
        columns = [self.streams.samples[a].codes[c][members[a]] for a, c in self.columns]
        out = columns[0].astype(np.int64, copy=False)
        if len(columns) == 1:
            return out
        null = out < 0
        for codes, most in zip(columns[1:], self.most[1:], strict=True):
            null = null | (codes < 0)
            out = out * most + codes if self.exact else combine(out, codes) & EVER
        return np.where(null, -1, out)


class Other(Protocol):
    """What a one-way join leads to: a stream, or the results of a tree's level."""

    def members(self, pos: np.ndarray) -> dict[str, np.ndarray]:
        """The base tuples of tuples."""

    def arrival(self, tick_us: tuple[int, int], keys: Keys) -> Arrival:
        """What comes in an interval [begin, end)."""


class Base:
    """A stream that arrives at its site."""

    def __init__(self, streams: Streams, alias: str) -> None:
        stream, self.alias = streams.query.stream(alias), alias
        self.ts = streams.samples[alias].ts.astype(np.int64)
        m, position = streams.width, streams.query.position[alias]
        self.at = self.ts * m + position
        self.rows = stream.window_rows
        self.until = np.full(len(self.ts), EVER)
        """The last order time at which a tuple may be met."""
        if stream.window_us is not None:
            self.until = (self.ts + stream.window_us) * m + m - 1
        elif len(self.ts) > (n := stream.window_rows or 0):
            self.until[:-n] = self.ts[n:] * m - 1

    def members(self, pos: np.ndarray) -> dict[str, np.ndarray]:
        return {self.alias: pos}

    def numbers(self, tick_us: tuple[int, int]) -> np.ndarray:
        begin, end = np.searchsorted(self.ts, tick_us)
        return np.arange(begin, end)

    def head(self, tick_us: tuple[int, int]) -> Rows:
        """The new tuples of an interval as rows; one that others of its instant push out of a window of rows is no head."""
        pos = self.numbers(tick_us)
        pos = pos[self.until[pos] >= self.at[pos]]
        return Rows(self.at[pos], {self.alias: pos})

    def arrival(self, tick_us: tuple[int, int], keys: Keys) -> Arrival:
        pos = self.numbers(tick_us)
        code = keys.of({self.alias: pos})
        until = self.until[pos] if self.rows is None else np.full(len(pos), EVER)
        tuples = Tuples(pos, self.at[pos], until, code).with_keys(code)
        if self.rows is None or len(pos) == 0:
            return Arrival(tuples)
        out = np.arange(max(pos[0] - self.rows, 0), max(pos[-1] + 1 - self.rows, 0))
        return Arrival(tuples, out, self.until[out])


class Results:
    """The results of a tree's level, which have a window of their own: a tuple lives as long as all its members do."""

    def __init__(self, streams: Streams) -> None:
        self.streams, self._count = streams, 0
        self._members: dict[str, np.ndarray] = {}

    def add(self, rows: Rows) -> Tuples:
        """An interval's, numbered in the order of their coming; keys are another's matter."""
        pos = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        until = np.full(len(rows), EVER)
        for alias, numbers in rows.members.items():
            self._put(alias, pos, numbers)
            until = np.minimum(until, self.streams.base[alias].until[numbers])
        return Tuples(pos, rows.at, until, NONE)

    def members(self, pos: np.ndarray) -> dict[str, np.ndarray]:
        return {a: m[pos] for a, m in self._members.items()}

    def _put(self, alias: str, pos: np.ndarray, numbers: np.ndarray) -> None:
        """Room doubles, so that a tuple is copied twice on average."""
        held = self._members.get(alias, NONE)
        if len(held) < self._count:
            held = np.concatenate([held, np.empty(max(self._count, 1024), np.int64)])
            self._members[alias] = held
        held[pos] = numbers


def joint(
    streams: Streams,
    source: frozenset[str],
    destination: frozenset[str],
    members: Other | Results,
    *,
    limited: bool = True,
) -> tuple[Joint, Keys]:
    """The one-way join from rows of some streams to a stream or to rows of others, and the keys of the latter."""
    query = streams.query
    pairs = tuple(
        (there, (alias, here))
        for alias in query.aliases
        if alias in destination
        for there, here in query.between(source, alias)
    )
    mine, theirs = streams.keys(pairs)
    window_us = query.stream(next(iter(destination))).window_us if len(destination) == 1 else None
    m = streams.width

    def lowest(at: np.ndarray) -> np.ndarray:
        return np.full(len(at), -EVER) if window_us is None else (at // m - window_us) * m

    def extend(rows: Rows, row_idx: np.ndarray, pos: np.ndarray) -> Rows:
        if not mine.exact and len(row_idx):
            same = _same(streams, pairs, rows.take(row_idx).members, members.members(pos))
            row_idx, pos = row_idx[same], pos[same]
        taken = rows.take(row_idx)
        found = members.members(pos) if len(pos) else dict.fromkeys(destination, NONE)
        return Rows(taken.at, {**taken.members, **found})

    counted = any(query.stream(a).window_rows is not None for a in destination)
    return Joint(
        lambda rows: mine.of(rows.members), lowest, extend, streams.row_bytes(source), streams.row_bytes(destination),
        streams.key_bytes(theirs.columns), counted, limited,
    ), theirs  # fmt: skip


def _same(
    streams: Streams,
    pairs: tuple[tuple[Column, Column], ...],
    left: Mapping[str, np.ndarray],
    right: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Where all columns are equal, of rows whose codes are."""
    out = np.ones(len(next(iter(left.values()))), bool)
    for (a, x), (b, y) in pairs:
        out &= streams.samples[a].codes[x][left[a]] == streams.samples[b].codes[y][right[b]]
    return out


def measure(query: SiteQuery, samples: Mapping[str, Sample]) -> Statistics:
    """Statistics of streams that are there; NULL codes are negative and equal nothing."""
    streams = {}
    for alias, sample in samples.items():
        distinct = {column: _distinct(codes) for column, codes in sample.codes.items()}
        streams[alias] = StreamStatistics(_rate(sample.ts), sample.full_bytes, distinct, sample.partial_bytes)
    common = {}
    for members in query.classes:
        for x in members:
            for y in members:
                if x[0] < y[0]:
                    equal = _chance(samples[x[0]].codes[x[1]], samples[y[0]].codes[y[1]])
                    values = streams[x[0]].distinct[x[1]] * streams[y[0]].distinct[y[1]]
                    common[frozenset({x, y})] = equal * values
    return Statistics(streams, common)


def _rate(ts: np.ndarray) -> float:
    """Tuples per second; of a stream that has only one instant, as if that were a second.

    >>> _rate(np.array([0, 500_000, 1_000_000])), _rate(np.array([7, 7]))
    (2.0, 2.0)
    """
    if len(ts) < 2 or ts[-1] <= ts[0]:
        return max(float(len(ts)), 1.0)
    return (len(ts) - 1) * 1e6 / float(ts[-1] - ts[0])


def _distinct(codes: np.ndarray) -> float:
    """1 / the chance that two tuples are equal: unbiased, however short the sample.

    >>> _distinct(np.array([3, 3, 5, 5, 5])), _distinct(np.array([1, 2]))
    (2.5, 2.0)
    """
    n = len(codes)
    _, counts = np.unique(codes[codes >= 0], return_counts=True)
    pairs = float(np.sum(counts * (counts - 1.0)))
    return max(1.0, n * (n - 1.0) / max(pairs, 1.0))


def _chance(x: np.ndarray, y: np.ndarray) -> float:
    """That a tuple of each are equal."""
    if len(x) == 0 or len(y) == 0:
        return 0.0
    values_x, counts_x = np.unique(x[x >= 0], return_counts=True)
    values_y, counts_y = np.unique(y[y >= 0], return_counts=True)
    _, at_x, at_y = np.intersect1d(values_x, values_y, assume_unique=True, return_indices=True)
    return float(np.sum(counts_x[at_x].astype(float) * counts_y[at_y])) / (float(len(x)) * len(y))
