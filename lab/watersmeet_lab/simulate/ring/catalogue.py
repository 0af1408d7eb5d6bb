"""The templates of a simulated ring: those of RJoin's catalogue, with ends, constants, and windows that count or tumble.

Windows by time are tested where a row meets a tuple. The others are tested on the rows that come out of it:

    tumbling        all members lie in the same of the windows [0, w), [w, 2w), ...
    rows            every ROWS n member is among the last n of its stream up to the youngest member
    tumbling_rows   all members have the same number of their stream's blocks of n tuples

Invariant: as for `watersmeet.registry.rjoin.catalogue`; no row leaves whose members break a window of any kind.
Implements: Idreos, Liarou, Koubarakis (2008), section 5, windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from watersmeet.errors import QueryError, UnknownNameError
from watersmeet.kernels.registered.rewriting import (
    ALIAS,
    ALIASES,
    AT_NUMBERS,
    AT_SLOTS,
    AT_TS,
    BIND,
    BOUND,
    INFO,
    NEWEST,
    STREAMS,
    TEMPLATE,
    WAIT,
)
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.rjoin.catalogue import ALWAYS, Columns, Layout, TemplateCatalogue
from watersmeet_lab.simulate.ring.coded_join import CodedJoin


class RingCatalogue(TemplateCatalogue):
    """Templates by number."""

    def __init__(self, streams: Columns, layout: Layout) -> None:
        super().__init__(streams, layout)
        self.templates: list[CodedJoin] = []
        self._until, self.tumbling = np.zeros(0, np.int64), np.zeros(0, np.int64)
        """By template its last batch, and the width of its tumbling windows, 0 without."""
        self.once, self._is_special = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        """By template whether a rewritten query is made once for all, and whether it counts or tumbles."""
        self._time, self._rows = (np.zeros((0, layout.aliases), np.int64) for _ in range(2))
        """By template and alias how much younger a partner may be, and n of ROWS n; UNBOUNDED without."""
        self.times: list[np.ndarray] = [np.zeros(0, np.int64) for _ in streams]
        """By stream the event times of all its tuples, in ascending order: what a sequencer numbers them by."""

    @property
    def columns(self) -> np.ndarray:
        """By stream which columns it has."""
        sizes = np.array([[len(c)] for c in self.streams.values()])
        return np.arange(sizes.max()) < sizes

    def add(self, template: CodedJoin, since: int, until: int = ALWAYS) -> int:
        """The number of a template that sees tuples of these batches."""
        return self.add_between([template], since, until)[0]

    def add_between(self, templates: Sequence[CodedJoin], since: int, until: int = ALWAYS) -> range:
        """The numbers of many templates; checked before any is added."""
        for template in templates:
            self._check(template)
        numbers = self.add_all(templates, [since] * len(templates))
        self.templates += templates
        self._until = np.append(self._until, np.full(len(templates), until))
        self.tumbling = np.append(self.tumbling, np.array([t.tumbling for t in templates], np.int64))
        self.once = np.append(self.once, np.array([t.distinct and not t.windowed for t in templates], np.bool_))
        special = np.array([t.counted or t.tumbling > 0 for t in templates], np.bool_)
        self._is_special = np.append(self._is_special, special)
        widest = [
            [max(t.hi(x, y) for y in range(len(t.streams)) if y != x) for x in range(len(t.streams))] for t in templates
        ]
        counts = [[n or UNBOUNDED for n in t.rows or [0] * len(t.streams)] for t in templates]
        self._time, self._rows = self._append(self._time, widest), self._append(self._rows, counts)
        return numbers

    def _append(self, lines: np.ndarray, more: list[list[int]]) -> np.ndarray:
        """Lines by alias; -1 stands beyond the last."""
        padded = [line + [-1] * (self.layout.aliases - len(line)) for line in more]
        return np.concatenate([lines, np.array(padded, np.int64).reshape(-1, self.layout.aliases)])

    def _check(self, t: CodedJoin) -> None:
        if len(t.streams) > self.layout.aliases or len(t.slots) > self.layout.slots:
            raise QueryError(
                f"the query over {', '.join(t.streams)} has more aliases or columns than this run was laid out for; plan with it"
            )
        for stream in t.streams:
            if stream not in self.streams:
                raise UnknownNameError(f"there is no stream {stream!r}; there are {', '.join(self.streams)}")
        for alias, column in (place for slot in t.slots for place in slot.places):
            known = self.streams[t.streams[alias]]
            if column not in known:
                raise UnknownNameError(f"stream {t.streams[alias]} has no column {column!r}; it has {', '.join(known)}")

    def end(self, number: int, until: int) -> None:
        """A template sees no tuple of later batches."""
        self._until[number] = until

    def until(self, number: int) -> int:
        return int(self._until[number])

    def pose(self, numbers: Sequence[int]) -> np.ndarray:
        """The rows of posed queries: nothing is bound but constants."""
        out = super().pose(numbers)
        for row, number in zip(out, numbers, strict=True):
            slots = self.templates[number].slots
            row[AT_SLOTS : AT_SLOTS + len(slots)] = [slot.constant or 0 for slot in slots]
        return out

    def retention(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """For every stream how much younger than a tuple its partners may be, and how many tuples of its own stream:
        the most over all templates that see this batch or later, UNBOUNDED where one has no limit or there is none."""
        time, rows = np.full(len(self.streams), -1, np.int64), np.full(len(self.streams), -1, np.int64)
        in_force = self._until >= batch
        stream = self.arrays[STREAMS][in_force]
        np.maximum.at(time, stream, self._time[in_force])
        np.maximum.at(rows, stream, self._rows[in_force])
        time[time < 0] = rows[rows < 0] = UNBOUNDED
        return time, rows

    # ---------------------------------------------------------------- windows that count or tumble

    def hold_windows(self, rows: np.ndarray) -> np.ndarray:
        """Which rows have seen no tuple after their template's end, and keep the windows that the rewriting loops do not know."""
        out = rows[:, NEWEST] <= self._until[rows[:, TEMPLATE]]
        for number in self._special(rows):
            at = np.flatnonzero(rows[:, TEMPLATE] == number)
            out[at] &= self._hold(self.templates[number], rows[at])
        return out

    def _special(self, rows: np.ndarray) -> list[int]:
        """The templates of rows that count or tumble."""
        return np.unique(rows[self._is_special[rows[:, TEMPLATE]], TEMPLATE]).tolist() if self._is_special.any() else []

    def _hold(self, t: CodedJoin, rows: np.ndarray) -> np.ndarray:
        ts, numbers, bound = self._members(t, rows)
        out = np.ones(len(rows), np.bool_)
        for width, of in ((t.tumbling, ts), (t.tumbling_rows, numbers - 1)):
            if width:
                block = of // width
                out &= np.where(bound, block, UNBOUNDED).min(axis=1) == np.where(bound, block, -UNBOUNDED).max(axis=1)
        youngest = np.where(bound, ts, -UNBOUNDED).max(axis=1)
        for x, n in enumerate(t.rows):
            if n:
                seen = np.searchsorted(self.times[self._stream[t.streams[x]]], youngest, side="right")
                out &= ~bound[:, x] | (numbers[:, x] > seen - n)
        return out

    def may_match(self, rows: np.ndarray, ts: int, batch: int, numbered: np.ndarray) -> np.ndarray:
        """Which rows a tuple of this time and batch or later may still match, when `numbered` tuples of each stream have been."""
        out = self._until[rows[:, TEMPLATE]] >= batch
        for number in self._special(rows):
            at = np.flatnonzero(rows[:, TEMPLATE] == number)
            out[at] &= self._may_match(self.templates[number], rows[at], ts, numbered)
        return out

    def _may_match(self, t: CodedJoin, rows: np.ndarray, mark: int, numbered: np.ndarray) -> np.ndarray:
        ts, numbers, bound = self._members(t, rows)
        out = np.ones(len(rows), np.bool_)
        if t.tumbling:
            out &= ~(bound & (ts // t.tumbling < mark // t.tumbling)).any(axis=1)
        if t.tumbling_rows:
            streams = self.arrays[STREAMS][rows[:, TEMPLATE], self.arrays[BIND][rows[:, WAIT], ALIAS]]
            reached = numbered[streams] // t.tumbling_rows
            out &= ~(bound & (reached[:, None] > (numbers - 1) // t.tumbling_rows)).any(axis=1)
        for x, n in enumerate(t.rows):
            if n:
                out &= ~bound[:, x] | (numbers[:, x] > numbered[self._stream[t.streams[x]]] - n)
        return out

    def _members(self, t: CodedJoin, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By row and alias the event time and the number of its tuple, and whether there is one."""
        lay, n = self.layout.array, len(t.streams)
        bound = ((rows[:, BOUND, None] >> np.arange(n)) & 1).astype(np.bool_)
        return rows[:, lay[AT_TS] : lay[AT_TS] + n], rows[:, lay[AT_NUMBERS] : lay[AT_NUMBERS] + n], bound

    def are_complete(self, rows: np.ndarray) -> np.ndarray:
        """Which rows have a tuple for every alias: answers."""
        return np.asarray(rows[:, BOUND] == (1 << self.arrays[INFO][rows[:, TEMPLATE], ALIASES]) - 1)
