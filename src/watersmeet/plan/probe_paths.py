"""Paths of probes: in which order each driver of each template binds the other aliases, for all templates at once.

    template   r.k = s.j AND s.m = t.a        driver r:   s by j = r.k      then   t by a = s.m
                                              driver t:   s by m = t.a      then   r by k = s.j

The next alias is the one that most equalities join to what is bound; of these the first by (stream, column, slot, column it
is looked up by), so that templates which have probes in common begin with them. All paths take a step together: a loop over
templates would take seconds for tens of thousands of queries.

Invariant: a path binds every alias of its template once, each by an equality with an alias that is bound before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from watersmeet.plan.subscription import Template


class Side(NamedTuple):
    """One direction of an equality of a template: `there.own` is looked up by `here.other`."""

    template: int
    here: int
    other: int
    there: int
    own: int


class Step(NamedTuple):
    """One probe of each of some paths."""

    path: np.ndarray
    alias: np.ndarray
    """What is bound."""
    own: np.ndarray
    slot: np.ndarray
    other: np.ndarray
    """The column looked up; the slot and the column it is looked up by."""
    more: np.ndarray
    """By path and further equality: slot, its column, own column; -1 where there is none."""


class Paths:
    """All paths: one for every alias of every template, which drives it."""

    def __init__(self, templates: Sequence[Template], sides: Sequence[int], stream_of: Sequence[int]) -> None:
        widths = np.array([len(t.streams) for t in templates], np.int64)
        self.width = int(widths.max(initial=1))
        self.template = np.repeat(np.arange(len(templates)), widths)
        self.aliases = np.full((len(self.template), self.width), -1, np.int64)
        """By path and slot."""
        self.aliases[:, 0] = np.arange(len(self.template)) - np.repeat(np.cumsum(widths) - widths, widths)
        self.length = widths[self.template]
        self._slot_of = np.full((len(self.template), self.width), -1, np.int64)
        self._slot_of[np.arange(len(self.template)), self.aliases[:, 0]] = 0
        self._sides = np.array(sides, np.int64).reshape(-1, len(Side._fields))
        of_column = np.array(stream_of, np.int64)
        self._rank = np.empty(len(of_column), np.int64)
        """Columns in the order of their streams."""
        self._rank[np.argsort(of_column, kind="stable")] = np.arange(len(of_column))

    def steps(self) -> Iterator[Step]:
        """The first probe of all paths, the second of all that have one, and so on."""
        path, side = self._all_sides()
        for depth in range(1, self.width):
            here, there = self._slot_of[path, side[:, 1]], self._slot_of[path, side[:, 3]]
            open_ = (here >= 0) & (there < 0)
            step = self._chosen(path[open_], side[open_], here[open_])
            self.aliases[step.path, depth] = step.alias
            self._slot_of[step.path, step.alias] = depth
            left = there < 0
            path, side = path[left], side[left]
            yield step

    def _all_sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Paths with every side of their templates; sides come in the order of templates."""
        counts = np.bincount(self._sides[:, 0], minlength=int(self.template[-1]) + 1 if len(self.template) else 0)
        mine = counts[self.template]
        path = np.repeat(np.arange(len(self.template)), mine)
        first = (np.cumsum(counts) - counts)[self.template]
        return path, self._sides[np.arange(len(path)) + np.repeat(first - (np.cumsum(mine) - mine), mine)]

    def _chosen(self, path: np.ndarray, side: np.ndarray, slot: np.ndarray) -> Step:
        """Of all probes that a path could make next, the best."""
        # 1. Equalities of one path with one alias lie together, the first of them is the probe.
        columns = len(self._rank)
        probe = (self._rank[side[:, 4]] * self.width + slot) * columns + self._rank[side[:, 2]]
        place = path * self.width + side[:, 3]
        order = np.lexsort((probe, place))
        path, side, slot, probe, place = path[order], side[order], slot[order], probe[order], place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        size = np.diff(first, append=len(place))
        # 2. Of every path the alias with most equalities, then the first probe.
        best = np.lexsort((probe[first], -size, path[first]))
        best = best[np.flatnonzero(np.diff(path[first[best]], prepend=-1))]
        first, size = first[best], size[best]
        more = np.full((len(first), int(size.max(initial=1)) - 1, 3), -1, np.int64)
        for n in range(more.shape[1]):
            has = size > n + 1
            at = first[has] + n + 1
            more[has, n] = np.stack((slot[at], side[at, 2], side[at, 4]), axis=1)
        return Step(path[first], side[first, 3], side[first, 4], slot[first], side[first, 2], more)
