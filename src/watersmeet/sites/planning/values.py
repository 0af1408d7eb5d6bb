"""How often the values of a key come: frequent ones one by one, the others by a sample that all streams draw alike.

    heavy     the most frequent values, whatever their hashes: a hot key is never missed
    watched   values that are heavy in some stream, counted exactly in all others, too: whether a hot key has partners decides about most of the bytes
    sample    all values with a hash below a bound, of the last two spans of time (`planning.key_sample`)

From the sketches of several streams follow `Values`: a list of values, each of which stands for `count` like it, with its share of every stream's tuples.
All that a plan ships is a sum over it, so nothing is assumed about how values are spread.

Invariant: sketches are JSON and bounded. Shares of a stream sum up to one.
Departs from the paper: Tran and Lee (2010) reckon with equally frequent values, see `planning.statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from watersmeet.sites.planning.key_sample import ALL, SAMPLE, KeySample

HEAVY = 48
"""Frequent values that a sketch keeps."""
TOLD = 128
"""Sampled values that are told, unless more are wanted."""
ENOUGH = 40
"""Values that samples of two streams should have in common: then it is known to a sixth how many match."""
_LEAST_WATCHED = 30
"""Tuples after which it is known how often a watched value comes."""
_LEAST_SHARE = 1 / 256
"""A value that is told as heavy has at least this share of the tuples."""
_MOST_PARTS = 8
_EXACT, _STEPS = 16, 8
"""Sampled values that have come so often, or more, are alike if they differ by less than one of so many steps to the double."""

Counts = Sequence[Sequence[float]]
"""Pairs of a hash and a number of tuples."""


@dataclass
class Generation:
    """The sample of a span of time; JSON."""

    rows: float = 0.0
    below: int = ALL
    """The bound of all parts together, as far as they have been joined."""
    parts: list[list[Any]] = field(default_factory=list)
    """Samples of batches, joined now and then: the bound, the number of values and these as text."""

    def add(self, rows: float, part: list[Any]) -> None:
        """A batch's own."""
        self.rows, self.parts = self.rows + rows, [*self.parts, part]
        if len(self.parts) > _MOST_PARTS or sum(values for _, values, _ in self.parts) > 2 * SAMPLE:
            whole = KeySample.join(self.read())
            self.below, self.parts = whole.below, [whole.write()]

    def read(self) -> list[KeySample]:
        return [KeySample.read(part) for part in self.parts]


@dataclass
class Sketch:
    """Of one key of one stream. Weights of heavy and watched values are numbers of tuples, older ones faded; samples are of this span of time and of the one before."""

    rows: float = 0.0
    heavy: dict[str, float] = field(default_factory=dict)
    watched: dict[str, list[float]] = field(default_factory=dict)
    """Weights of watched values, and of all tuples since they are."""
    now: Generation = field(default_factory=Generation)
    before: Generation = field(default_factory=Generation)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Sketch:
        return cls(**{**raw, "now": Generation(**raw["now"]), "before": Generation(**raw["before"])})

    def fade(self, factor: float) -> None:
        """Let what has come so far count for less."""
        self.rows *= factor
        self.heavy = {h: w * factor for h, w in self.heavy.items()}
        self.watched = {h: [w * factor, rows * factor] for h, (w, rows) in self.watched.items()}

    def turn(self) -> None:
        """Another span of time begins."""
        self.before, self.now = self.now, Generation()

    def watch(self, rows: int, counts: Counts) -> None:
        """A batch's watched values; those that are watched no longer are forgotten."""
        before = self.watched
        self.watched = {}
        for hash_, count in counts:
            weight, since = before.get(str(int(hash_)), (0.0, 0.0))
            self.watched[str(int(hash_))] = [weight + count, since + rows]

    def add(self, rows: int, sample: list[Any], heavy: Counts) -> None:
        """A batch's own, the sample as it is written.

        >>> sketch = Sketch()
        >>> sketch.add(10, KeySample.of(np.array([7, 8]), np.array([9, 1])).write(), [[7, 9]])
        >>> sketch.rows, sketch.heavy, sketch.to_shares().sampled.counts
        (10.0, {'7': 9}, array([9, 1]))
        """
        self.rows += rows
        self.now.add(rows, sample)
        for hash_, count in heavy:
            self.heavy[str(int(hash_))] = self.heavy.get(str(int(hash_)), 0) + count
        top = sorted(self.heavy.items(), key=lambda item: (-item[1], int(item[0])))
        self.heavy = dict(top[:HEAVY])

    @property
    def limit(self) -> int:
        """The bound of what is still sampled of new tuples."""
        return self.now.below

    def to_shares(self, most: int = SAMPLE) -> KeyShares:
        """As it is told: so many sampled values, and shares of heavy ones, three digits of each."""
        rows = max(self.rows, 1e-9)
        heavy = {int(h): _round(w / rows) for h, w in self.heavy.items() if w / rows >= _LEAST_SHARE}
        heavy |= {int(h): _round(w / n) for h, (w, n) in self.watched.items() if n >= _LEAST_WATCHED}
        sample = KeySample.join([*self.before.read(), *self.now.read()], most)
        return KeyShares(sample.write(), self.before.rows + self.now.rows, sorted(heavy.items()))


@dataclass
class KeyShares:
    """What a site tells of a key of its stream; JSON."""

    sample: list[Any] = field(default_factory=lambda: [ALL, 0, ""])
    """Sampled values: the bound, how many they are, and they as text."""
    rows: float = 1.0
    """The tuples that were sampled."""
    heavy: Counts = ()
    """Pairs of a hash and the share of the stream's tuples."""

    @property
    def below(self) -> int:
        return int(self.sample[0])

    @property
    def values(self) -> int:
        return int(self.sample[1])

    @property
    def sampled(self) -> KeySample:
        return KeySample.read(self.sample)

    @property
    def light(self) -> float:
        """The share of tuples that have no heavy value."""
        return max(0.0, 1 - sum(share for _, share in self.heavy))

    @property
    def distinct(self) -> float:
        """About how many values there are."""
        return max(1.0, self.values * ALL / self.below)

    def differs(self, other: KeyShares) -> bool:
        """Whether a plan may depend on the difference."""
        mine, its = _by_hash(self.heavy), _by_hash(other.heavy)
        moved = sum(abs(mine.get(h, 0.0) - its.get(h, 0.0)) for h in {*mine, *its})
        return moved > 0.1 or not 0.75 < self.distinct / other.distinct < 1.33


@dataclass(frozen=True)
class Values:
    """The values of a key, as several streams have them."""

    count: np.ndarray
    """How many values each one stands for."""
    share: Mapping[str, np.ndarray]
    """By alias, the share of its tuples that one such value has."""

    @classmethod
    def uniform(cls, aliases: Iterable[str], values: float) -> Values:
        """So many values, all equally frequent in all streams.

        >>> Values.uniform("ab", 100).share["a"]
        array([0.01])
        """
        return cls(np.array([float(values)]), {alias: np.array([1 / values]) for alias in aliases})

    @classmethod
    def of(cls, told: Mapping[str, KeyShares]) -> Values:
        """From what was told, by alias."""
        heavy = np.array(sorted({int(h) for shares in told.values() for h, _ in shares.heavy}), np.int64)
        samples = _cut(told)
        below = min(sample.below for sample in samples.values())
        sampled = np.setdiff1d(np.unique(np.concatenate([s.hashes for s in samples.values()])), heavy)
        if not len(heavy) + len(sampled):
            return cls.uniform(told, 1)
        counts = {alias: _look_up(sample, sampled) for alias, sample in samples.items()}
        group, size = _group(list(counts.values()), len(sampled))
        count = np.concatenate([np.ones(len(heavy)), size * (ALL / below)])
        share = {}
        for alias in told:
            frequent = _fill_heavy(alias, told, samples, heavy)
            rest = np.bincount(group, counts[alias], len(size)) / np.maximum(size, 1)
            share[alias] = _complete(frequent, rest, size * (ALL / below))
        return cls(count, share)


def want_values(told: Mapping[str, KeyShares]) -> int:
    """How many sampled values streams should tell, so that any two of them have enough in common; none where all values are known.

    >>> one, two = (KeySample(1000, np.arange(n, n + 100), np.ones(100, np.int64)) for n in (0, 90))
    >>> want_values({a: KeyShares(s.write()) for a, s in (("a", one), ("b", two))})
    400
    """
    samples = _cut(told)
    if min(sample.below for sample in samples.values()) == ALL:
        return 0
    pairs = combinations(samples.values(), 2)
    common = min(len(np.intersect1d(x.hashes, y.hashes, assume_unique=True)) for x, y in pairs)
    values = min(len(sample.hashes) for sample in samples.values())
    return min(SAMPLE, math.ceil(values * ENOUGH / max(common, 1)))


def _cut(told: Mapping[str, KeyShares]) -> dict[str, KeySample]:
    """The samples of streams, with one bound."""
    below = min(shares.below for shares in told.values())
    samples = {alias: shares.sampled for alias, shares in told.items()}
    return {alias: KeySample.of(s.hashes, s.counts, below) for alias, s in samples.items()}


def _look_up(sample: KeySample, hashes: np.ndarray) -> np.ndarray:
    """How often values have come, 0 of those that a sample does not have."""
    if not len(sample.hashes):
        return np.zeros(len(hashes))
    at = np.minimum(np.searchsorted(sample.hashes, hashes), len(sample.hashes) - 1)
    return np.where(sample.hashes[at] == hashes, sample.counts[at], 0).astype(float)


def _group(counts: Sequence[np.ndarray], values: int) -> tuple[np.ndarray, np.ndarray]:
    """Put values together that come alike in all streams: the group of each, and how many values each group has."""
    group, size = np.zeros(values, np.int64), np.array([float(values)])
    for of in counts:
        steps = np.where(of < _EXACT, of, _EXACT + np.round(_STEPS * np.log2(np.maximum(of, _EXACT) / _EXACT)))
        _, group, found = np.unique(group * 4096 + steps.astype(np.int64), return_inverse=True, return_counts=True)
        size = found.astype(float)
    return group, size if values else np.zeros(0)


def _fill_heavy(
    alias: str, told: Mapping[str, KeyShares], samples: Mapping[str, KeySample], heavy: np.ndarray
) -> np.ndarray:
    """The shares of heavy values: as told, or what is likely of another stream's."""
    own = told[alias]
    known, seen = _by_hash(own.heavy), own.sampled
    likely = _guess_unseen(alias, told, samples)
    drawn = np.where(heavy < own.below, _look_up(seen, heavy) / max(own.rows, 1e-9), likely)
    return np.array([known.get(int(h), float(share)) for h, share in zip(heavy, drawn, strict=True)])


def _complete(frequent: np.ndarray, rest: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Shares that sum up to one: sampled values have what heavy ones leave."""
    total = float((rest * count).sum())
    if total > 0:
        return np.concatenate([frequent, rest * max(0.0, 1 - frequent.sum()) / total])
    return np.concatenate([frequent / max(frequent.sum(), 1e-9), rest])


def _guess_unseen(alias: str, told: Mapping[str, KeyShares], samples: Mapping[str, KeySample]) -> float:
    """The share that a value has which is heavy elsewhere, and neither heavy nor sampled here: that of a light value, if values are found in both streams."""
    own = told[alias]
    others = [s.hashes for a, s in samples.items() if a != alias]
    theirs = np.unique(np.concatenate(others)) if others else np.zeros(0, np.int64)
    common = np.isin(theirs, samples[alias].hashes).mean() if len(theirs) else 1.0
    return float(common * own.light / own.distinct)


def _by_hash(counts: Counts) -> dict[int, float]:
    return {int(hash_): share for hash_, share in counts}


def _round(share: float) -> float:
    return float(f"{share:.3g}")


WATCHED, BEGIN_WATCHING, END_WATCHING = 16, 1 / 50, 1 / 200
"""Values of a key that are watched: those with so large a share of some stream, until it is so small."""


def choose_watched(told: Iterable[KeyShares], before: Iterable[int]) -> list[int]:
    """The hashes of values that all streams should watch, in order.

    >>> choose_watched([KeyShares(heavy=[[7, 0.6], [8, 0.01]]), KeyShares(heavy=[[9, 0.001]])], before=[8])
    [7, 8]
    """
    most: dict[int, float] = {}
    for shares in told:
        for hash_, share in shares.heavy:
            most[int(hash_)] = max(most.get(int(hash_), 0.0), share)
    kept = set(before)
    wanted = [h for h, share in most.items() if share >= (END_WATCHING if h in kept else BEGIN_WATCHING)]
    return sorted(sorted(wanted, key=lambda h: (-most[h], h))[:WATCHED])
