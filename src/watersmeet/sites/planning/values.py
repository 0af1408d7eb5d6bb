"""How often the values of a key come: frequent ones one by one, the others by a sample that all streams draw alike.

    heavy     the most frequent values, whatever their hashes: a hot key is never missed
    watched   values that are heavy in some stream, counted exactly in all others, too: whether a hot key has partners decides about most of the bytes
    sample    all values with a hash below `below`: the same values at every stream, so it shows what streams have in common

From the sketches of several streams follow `Values`: a list of values, each of which stands for `count` like it, with its share of every stream's tuples.
All that a plan ships is a sum over it, so nothing is assumed about how values are spread.

Invariant: sketches are JSON and bounded. Shares of a stream sum up to one.
Departs from the paper: Tran and Lee (2010) reckon with equally frequent values, see `planning.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

ALL = 2**32
"""Hashes are below this."""
SAMPLE, HEAVY = 128, 48
"""Values that a sketch keeps of each kind. What one tuple in a hundred shares is seen by chance: what is counted corrects it."""
_LEAST_WEIGHT = 0.02
_LEAST_WATCHED = 30
"""Tuples after which it is known how often a watched value comes."""
_LEAST_SHARE = 1 / 256
"""A value that is told as heavy has at least this share of the tuples."""

Counts = Sequence[Sequence[float]]
"""Pairs of a hash and a number of tuples."""


@dataclass
class Sketch:
    """Of one key of one stream; weights are numbers of tuples, older ones faded."""

    rows: float = 0.0
    below: int = ALL
    sample: dict[str, float] = field(default_factory=dict)
    heavy: dict[str, float] = field(default_factory=dict)
    watched: dict[str, list[float]] = field(default_factory=dict)
    """Weights of watched values, and of all tuples since they are."""

    def fade(self, factor: float) -> None:
        """Let what has come so far count for less."""
        self.rows *= factor
        self.heavy = {h: w * factor for h, w in self.heavy.items()}
        self.watched = {h: [w * factor, rows * factor] for h, (w, rows) in self.watched.items()}
        self.sample = {h: w * factor for h, w in self.sample.items() if w * factor > _LEAST_WEIGHT}
        if self.below < ALL and len(self.sample) < SAMPLE // 8:
            # There were many values and few are left: what a thin sample says of them is chance, so begin again.
            self.below, self.sample, self.heavy, self.rows = ALL, {}, {}, 0.0

    def watch(self, rows: int, counts: Counts) -> None:
        """A batch's watched values; those that are watched no longer are forgotten."""
        before = self.watched
        self.watched = {}
        for hash_, count in counts:
            weight, since = before.get(str(int(hash_)), (0.0, 0.0))
            self.watched[str(int(hash_))] = [weight + count, since + rows]

    def add(self, rows: int, below: int, sample: Counts, heavy: Counts) -> None:
        """A batch's own.

        >>> sketch = Sketch()
        >>> sketch.add(10, ALL, [[7, 9], [8, 1]], [[7, 9]])
        >>> sketch.rows, sketch.sample["8"], sketch.heavy
        (10.0, 1, {'7': 9})
        """
        self.rows += rows
        if below < self.below:
            self.below = below
            self.sample = {h: w for h, w in self.sample.items() if int(h) < below}
        for hash_, count in sample:
            if hash_ < self.below:
                self.sample[str(int(hash_))] = self.sample.get(str(int(hash_)), 0) + count
        if len(self.sample) > SAMPLE:
            self.below = sorted(map(int, self.sample))[SAMPLE]
            self.sample = {h: w for h, w in self.sample.items() if int(h) < self.below}
        for hash_, count in heavy:
            self.heavy[str(int(hash_))] = self.heavy.get(str(int(hash_)), 0) + count
        top = sorted(self.heavy.items(), key=lambda item: (-item[1], int(item[0])))
        self.heavy = dict(top[:HEAVY])

    def to_shares(self) -> KeyShares:
        """As it is told: shares in place of weights, three digits of each."""
        rows = max(self.rows, 1e-9)
        heavy = {int(h): _round(w / rows) for h, w in self.heavy.items() if w / rows >= _LEAST_SHARE}
        heavy |= {int(h): _round(w / n) for h, (w, n) in self.watched.items() if n >= _LEAST_WATCHED}
        sample = {int(h): _round(w / rows) for h, w in self.sample.items()}
        return KeyShares(self.below, sorted(sample.items()), sorted(heavy.items()))


@dataclass
class KeyShares:
    """What a site tells of a key of its stream; JSON."""

    below: int = ALL
    sample: Counts = ()
    """Of sampled values, pairs of the hash and the share of the stream's tuples."""
    heavy: Counts = ()

    @property
    def light(self) -> float:
        """The share of tuples that have no heavy value."""
        return max(0.0, 1 - sum(share for _, share in self.heavy))

    @property
    def distinct(self) -> float:
        """About how many values there are."""
        return max(1.0, len(self.sample) * ALL / self.below)

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
        heavy = sorted({int(h) for shares in told.values() for h, _ in shares.heavy})
        below = min(shares.below for shares in told.values())
        sampled = sorted({int(h) for shares in told.values() for h, _ in shares.sample if h < below} - set(heavy))
        count = np.array([1.0] * len(heavy) + [ALL / below] * len(sampled))
        share = {alias: _fill(alias, told, heavy, sampled, below) for alias in told}
        if not len(count):
            return cls.uniform(told, 1)
        return cls(count, share)


def _fill(alias: str, told: Mapping[str, KeyShares], heavy: list[int], sampled: list[int], below: int) -> np.ndarray:
    """The shares of one stream: as told, or what is likely of another stream's heavy value."""
    own = told[alias]
    known, seen = _by_hash(own.heavy), _by_hash(own.sample)
    likely = _guess_unseen(alias, told, below)
    frequent = [known.get(h, seen.get(h, 0.0) if h < own.below else likely) for h in heavy]
    rest = np.array([seen.get(h, 0.0) for h in sampled])
    left = max(0.0, 1 - sum(frequent))
    total = rest.sum() * ALL / below
    if total > 0:
        return np.concatenate([frequent, rest * left / total])
    return np.concatenate([np.array(frequent) / max(sum(frequent), 1e-9), rest])


def _guess_unseen(alias: str, told: Mapping[str, KeyShares], below: int) -> float:
    """The share that a value has which is heavy elsewhere, and neither heavy nor sampled here: that of a light value, if values are found in both streams."""
    own = told[alias]
    mine = {int(h) for h, _ in own.sample if h < below}
    others = {int(h) for a, shares in told.items() if a != alias for h, _ in shares.sample if h < below}
    common = len(mine & others) / len(others) if others else 1.0
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
