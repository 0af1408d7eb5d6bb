"""Which keys are hot: fading counts of the most frequent keys, and how far to spread each so that no unit is much busier than others.

    measured    by unit and side a sample of the keys of new tuples, and how many combinations were found
    predicted   the work of every coordinate of a dimension: its rows, and its share of the combinations of the keys it holds
    spread      as long as the busiest coordinate makes the batch longer than the rest of it: twice the units for the key that weighs most there
    cooled      a key that needs fewer than half of its units, COOL batches in a row, gives the others up
    ended       a coordinate that was given up gets copies until the clock says that nothing of the anchor lives there; then it is forgotten

Invariant: a pure function of what was measured and remembered; what is remembered has a bound. Results do not depend on it (`routing.spread`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from watersmeet.routing.spread import HotKey

ENOUGH = 500
"""Rows after which half of what was counted before is forgotten; of smaller batches as much less."""
SEEN_AT_LEAST = 100
"""Rows that must have been seen before a key is spread."""
FEWEST = 20
"""Rows that a hot key must have at least."""
MOST_COUNTED = 64
MOST_HOT = 256
"""Hot keys of a dimension at most."""
BUSIER = 1.15
"""The busiest coordinate may have this much more work than the mean."""
GAIN = 0.03
"""A key is spread further if that shortens the batch by this share,"""
CHEAP = 0.05
"""or takes this share off the busiest coordinate for so much more work in all."""
COOL = 2
RARE = 1000
"""So many keys share the tuples of keys that are not counted: a guess."""


@dataclass
class KeyCounts:
    """What is remembered of one dimension of one stage; JSON goes into the manifest."""

    rows: list[float] = field(default_factory=list)
    """By side, fading."""
    keys: dict[str, list[float]] = field(default_factory=dict)
    """Of the most frequent keys, by side, fading alike."""
    found: float = 0.0
    """Combinations that so many rows would have found in the latest batch."""

    def count(self, rows: Sequence[float], keys: Mapping[int, Sequence[float]], found: float) -> None:
        """Take a batch in.

        >>> counts = KeyCounts()
        >>> counts.count([600, 600], {7: [300, 10]}, 0)
        >>> counts.count([600, 600], {7: [300, 10]}, 0)
        >>> counts.rows, counts.keys
        ([900.0, 900.0], {'7': [450.0, 15.0]})
        """
        fade = max(0.5, 1 - sum(rows) / (2 * ENOUGH))
        self.rows = [old * fade + new for old, new in zip(self.rows or [0.0] * len(rows), rows, strict=True)]
        faded = {key: [n * fade for n in counts] for key, counts in self.keys.items()}
        for key, counts in keys.items():
            before = faded.get(str(key), [0.0] * len(rows))
            faded[str(key)] = [old + new for old, new in zip(before, counts, strict=True)]
        most = sorted(faded.items(), key=lambda item: (-sum(item[1]), item[0]))[:MOST_COUNTED]
        self.keys = {key: [round(n, 1) for n in counts] for key, counts in most if sum(counts) >= 1}
        if sum(rows):
            self.found = found / sum(rows) * sum(self.rows)


@dataclass(frozen=True)
class Wanted:
    """How a key should be spread."""

    anchor: int
    spread: tuple[int, ...]


def find_wanted(counts: KeyCounts, share: int, cores: int, known: Mapping[int, HotKey]) -> dict[int, Wanted]:
    """How keys should be spread over the coordinates of a dimension; keys that should not are left out.

    >>> counts = KeyCounts([1000.0, 1000.0], {"16": [500.0, 10.0]}, 2000.0)
    >>> find_wanted(counts, 4, 4, {})
    {16: Wanted(anchor=0, spread=(0, 1, 2, 3))}
    >>> find_wanted(KeyCounts([1000.0, 1000.0], {"16": [5.0, 5.0]}, 2000.0), 4, 4, {})
    {}
    """
    if sum(counts.rows) < SEEN_AT_LEAST:
        return {}
    loads = _Loads(counts, share, known)
    exhausted: set[int] = set()
    while True:
        busiest = int(np.argmax(loads.work))
        if loads.work[busiest] <= BUSIER * loads.work.mean():
            break
        key = loads.find_heaviest(busiest, exhausted)
        if key is None:
            break
        before, was = loads.measure(cores), loads.spread[key]
        while loads.grow(key) and not _pays(before, loads.measure(cores)):
            pass
        if not _pays(before, loads.measure(cores)):
            loads.put(key, was)
            exhausted.add(key)
    return {key: Wanted(loads.anchor[key], at) for key, at in loads.spread.items() if len(at) > 1}


class _Loads:
    """The work of all coordinates, under the present spread of keys."""

    def __init__(self, counts: KeyCounts, share: int, known: Mapping[int, HotKey]) -> None:
        self.rows = {int(key): own for key, own in counts.keys.items() if sum(own) >= FEWEST}
        self.anchor = {k: known[k].anchor if k in known else int(np.argmax(own)) for k, own in self.rows.items()}
        rest = [all_rows - sum(own[n] for own in self.rows.values()) for n, all_rows in enumerate(counts.rows)]
        pairs = {key: _multiply(own) for key, own in self.rows.items()}
        rare = _multiply([max(n, 0.0) / RARE for n in rest]) * RARE
        whole = sum(pairs.values()) + rare
        self.pairs = {key: counts.found * n / whole if whole else 0.0 for key, n in pairs.items()}
        self.work = np.full(share, (max(sum(rest), 0.0) + (counts.found * rare / whole if whole else 0.0)) / share)
        self.spread: dict[int, tuple[int, ...]] = {}
        for key in self.rows:
            self.spread[key] = (key % share,)
            self._add(key, 1.0)

    def _add(self, key: int, sign: float) -> None:
        at, own = list(self.spread[key]), self.rows[key]
        spread = (own[self.anchor[key]] + self.pairs[key]) / len(at)
        self.work[at] += sign * (spread + sum(own) - own[self.anchor[key]])

    def put(self, key: int, at: tuple[int, ...]) -> None:
        """Spread a key over these coordinates."""
        self._add(key, -1.0)
        self.spread[key] = at
        self._add(key, 1.0)

    def grow(self, key: int) -> bool:
        """Twice as many coordinates, the least busy ones; False if there are no more."""
        at = self.spread[key]
        others = [c for c in np.argsort(self.work, kind="stable").tolist() if c not in at]
        if not others:
            return False
        self.put(key, (*at, *others[: len(at)]))
        return True

    def find_heaviest(self, coordinate: int, exhausted: set[int]) -> int | None:
        """The key of a coordinate whose spreading takes most off it."""
        here = [k for k, at in self.spread.items() if coordinate in at and len(at) < len(self.work)]
        here = [k for k in here if k not in exhausted]
        weigh = {k: (self.rows[k][self.anchor[k]] + self.pairs[k]) / len(self.spread[k]) for k in here}
        return max(here, key=lambda k: (weigh[k], k), default=None)

    def measure(self, cores: int) -> tuple[float, float, float]:
        """How long a batch takes on so many cores, at least; the work of the busiest coordinate; that of all."""
        most, whole = float(self.work.max()), float(self.work.sum())
        return max(most, whole / cores), most, whole


def _pays(before: tuple[float, float, float], after: tuple[float, float, float]) -> bool:
    """Whether a batch is shorter, or units are more alike for next to nothing."""
    is_shorter = after[0] <= before[0] * (1 - GAIN)
    return is_shorter or (after[1] <= before[1] * (1 - GAIN) and after[2] <= before[2] * (1 + CHEAP))


def _multiply(numbers: Sequence[float]) -> float:
    return math.prod(numbers)


def adjust(
    hot: Sequence[HotKey],
    wanted: Mapping[int, Wanted],
    place: tuple[int, int],
    now_ts: int,
    cuts: Sequence[int],
    *,
    adopts: bool,
) -> list[HotKey]:
    """The hot keys of a stage's dimension (`place`) in the next batch; `cuts` is by side the time before which nothing lives. If it must not adopt, no coordinate begins.

    >>> [first] = adjust([], {16: Wanted(0, (0, 1, 2, 3))}, (0, 0), 10, [0, 0], adopts=True)
    >>> first.adopting
    (1, 2, 3)
    >>> for ts in (20, 30, 40): [first] = adjust([first], {}, (0, 0), ts, [ts - 15, ts - 15], adopts=True)
    >>> first.spread, first.copied, first.left
    ((0,), (0, 1, 2, 3), {1: 30, 2: 30, 3: 30})
    >>> adjust([first], {}, (0, 0), 50, [35, 35], adopts=True)
    []
    """
    out = []
    for one in hot:
        want = wanted.get(one.key, Wanted(one.anchor, one.spread[:1])).spread
        one = replace(one, adopting=())
        if len(want) > len(one.spread):
            one = _grow(one, want, adopts=adopts)
        elif 2 * len(want) <= len(one.spread):
            one = _cool(one, want, now_ts)
        else:
            one = replace(one, cool=0)
        one = _forget(one, cuts[one.anchor])
        if len(one.copied) > 1:
            out.append(one)
    known = {one.key for one in hot}
    for key, want_new in sorted(wanted.items(), key=lambda item: item[0]):
        if adopts and key not in known and len(out) < MOST_HOT:
            at = want_new.spread
            out.append(HotKey(*place, key, want_new.anchor, at, at, at[1:]))
    return out


def _grow(hot: HotKey, want: Sequence[int], *, adopts: bool) -> HotKey:
    """Coordinates that still have copies first: they need not adopt."""
    more = len(want) - len(hot.spread)
    ready = [c for c in hot.copied if c not in hot.spread]
    begin = [c for c in want if c not in hot.copied] if adopts else []
    taken = [*ready, *begin][:more]
    adopting = tuple(c for c in taken if c not in hot.copied)
    left = {at: ts for at, ts in hot.left.items() if at not in taken}
    return replace(
        hot, spread=(*hot.spread, *taken), copied=(*hot.copied, *adopting), adopting=adopting, left=left, cool=0
    )


def _cool(hot: HotKey, want: Sequence[int], now_ts: int) -> HotKey:
    if hot.cool + 1 < COOL:
        return replace(hot, cool=hot.cool + 1)
    given_up = hot.spread[len(want) :]
    return replace(hot, spread=hot.spread[: len(want)], left={**hot.left, **dict.fromkeys(given_up, now_ts)}, cool=0)


def _forget(hot: HotKey, cut_ts: int) -> HotKey:
    """Without coordinates where nothing of the anchor lives any more."""
    gone = {at for at, ts in hot.left.items() if ts < cut_ts}
    left = {at: ts for at, ts in hot.left.items() if at not in gone}
    return replace(hot, left=left, copied=tuple(c for c in hot.copied if c not in gone))
