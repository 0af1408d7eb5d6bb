"""Routing that has changed while rows were stored: the newest routing stores, every one that still holds rows is probed.

    before   [ units 0 1 4 | 2 3 ]    unit 4 still holds rows
    now      [ units 0 1 | 2 3 ]      stores

A routing is forgotten when the newest one's probes reach all that was stored under it: units were only added, keys only
became hot, or the units that were removed hold nothing any more; and when nothing lives that is as old as it.

Invariant: as in `biclique`: a probe visits the unit where a partner is stored exactly once, under whichever routing it was
stored.
Implements: Lin, Ooi, Wang, Yu (2015), section 6.4: scaling without migration, since old rows expire by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.kernels.instants import FIRST, LAST
from watersmeet.routing.biclique import Biclique, Keys
from watersmeet.routing.hypercube import Content, Delivery


@dataclass(frozen=True)
class Epochs:
    """Routings that hold rows, oldest first; the last one stores."""

    routings: tuple[Biclique, ...]
    until: tuple[int, ...] = ()
    """By earlier routing the highest event time when it stopped to store."""

    @property
    def current(self) -> Biclique:
        return self.routings[-1]

    @property
    def units(self) -> set[int]:
        """All units that store, or may hold rows."""
        return {u for routing in self.routings for members in routing.members for u in members}

    def deliveries(self, side: int, content: Content) -> Iterator[Delivery]:
        """Where the rows of a side go."""
        yield from self.current.store(side, content)
        if len(self.routings) == 1:
            yield from self.current.probe(side, content)
        else:
            yield from self._probe(side, content)

    def _probe(self, side: int, content: Content) -> Iterator[Delivery]:
        """Every unit that any routing would visit, once; units that the same rows visit share a delivery."""
        visited: dict[int, np.ndarray] = {}
        for routing in self.routings:
            for delivery in routing.probe(side, content):
                for unit in delivery.units:
                    mask = visited.setdefault(unit, np.zeros(content.rows, bool))
                    mask[slice(None) if delivery.rows is None else delivery.rows] = True
        alike: dict[bytes, list[int]] = {}
        for unit, mask in sorted(visited.items()):
            alike.setdefault(np.packbits(mask).tobytes(), []).append(unit)
        for units in alike.values():
            mask = visited[units[0]]
            yield Delivery("probe", tuple(units), None if mask.all() else np.flatnonzero(mask))

    def then(self, routing: Biclique, now_ts: int = LAST) -> Epochs:
        """The same with a new routing from the next batch on; no tuple is younger than `now_ts`."""
        return self if routing == self.current else Epochs((*self.routings, routing), (*self.until, now_ts))

    def prune(self, empty: Set[int], cut_ts: int = FIRST) -> Epochs:
        """Without routings that the newest one covers, or whose tuples are all dead; `empty` are units that hold nothing, and nothing older than `cut_ts` lives."""
        old = zip(self.routings[:-1], self.until, strict=True)
        kept = [(r, ts) for r, ts in old if ts >= cut_ts and not covers(self.current, r, empty)]
        return Epochs((*(r for r, _ in kept), self.current), tuple(ts for _, ts in kept))

    def to_json(self, stage: int = 0) -> list[dict[str, Any]]:
        """Entries of a batch's routing; those of later stages say so."""
        ends, which = (*self.until, LAST), {"stage": stage} if stage else {}
        return [{**routing.to_json(), "until": ts, **which} for routing, ts in zip(self.routings, ends, strict=True)]

    @classmethod
    def by_stage(cls, raw: Sequence[Mapping[str, Any]]) -> dict[int, Epochs]:
        """The routings of all stages that are bicliques, from a batch's routing as JSON."""
        mine = [entry for entry in raw if "sides" in entry]
        stages = dict.fromkeys(entry.get("stage", 0) for entry in mine)
        return {n: cls.from_json([entry for entry in mine if entry.get("stage", 0) == n]) for n in stages}

    @classmethod
    def from_json(cls, raw: Sequence[Mapping[str, Any]]) -> Epochs:
        ends = tuple(r.get("until", LAST) for r in raw[:-1])
        return cls(tuple(Biclique.from_json(r) for r in raw), ends)


def covers(new: Biclique, old: Biclique, empty: Set[int] = frozenset()) -> bool:
    """Whether whatever was stored under the old routing, in units that are not empty, is found by the new one's probes.

    >>> from watersmeet.routing.biclique import biclique
    >>> covers(biclique(2, 2), biclique(2, 1)), covers(biclique(2, 1), biclique(2, 2)), covers(biclique(2, 1), biclique(2, 2), {3})
    (True, False, True)
    """
    if isinstance(new.by, Keys) and isinstance(old.by, Keys):
        same = new.by.classes == old.by.classes and set(old.by.hot) <= set(new.by.hot)
    else:
        same = new.by == old.by
    return same and all(
        len(now) == len(then) and all(set(t) - empty <= set(n) for n, t in zip(now, then, strict=True))
        for now, then in zip(new.sides, old.sides, strict=True)
    )
