"""Templates as arrays: what the rewriting loops read instead of query objects; and how rows are laid out, in memory and as Arrow tables.

Columns that the WHERE clause makes equal are one slot, so conditions that follow from others need no rule of their own: every slot whose
value is known names a value for each of its columns.

    select ... from R, S, P where R.A = S.A and S.B = P.B           slots   {R.A, S.A}   {S.B, P.B}

Invariant: a template keeps its number; a row means the same as long as its template is in the catalogue. All rows and tuples
of a catalogue have one layout, wide enough for its widest template and its widest stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.kernels.registered import next_key
from watersmeet.kernels.registered.rewriting import (
    AT_SLOTS,
    AT_VALUES,
    BIND,
    BIND_AT,
    CONSTANT,
    INFO,
    NEWEST,
    OLDEST,
    ROW_WIDTH,
    SINCE,
    TEMPLATE,
)
from watersmeet.query.window import UNBOUNDED

ALWAYS, NEVER = 2**62, -(2**62)
"""Batches after and before all others."""
MOST = 62
"""Aliases, and slots: sets of them are the bits of a number."""
_ROW = ("template", "bound", "wait", "key", "oldest", "newest", "next")
Columns = Mapping[str, Sequence[str]]
"""The columns of every stream, by name."""
Place = tuple[int, str]
"""An alias, by its position in FROM, and a column."""


@dataclass(frozen=True)
class Slot:
    """Columns that have one value in every result; `join`: NULL matches nothing here."""

    places: tuple[Place, ...]
    is_constant: bool
    join: bool = True

    @property
    def aliases(self) -> frozenset[int]:
        return frozenset(alias for alias, _ in self.places)


def merge_places(groups: Iterable[Iterable[Place]]) -> list[tuple[Place, ...]]:
    """The classes of places that are equal, if those of every group are.

    >>> merge_places([[(1, "b"), (2, "b")], [(0, "a")], [(2, "b"), (3, "c")]])
    [((0, 'a'),), ((1, 'b'), (2, 'b'), (3, 'c'))]
    """
    classes: list[set[Place]] = []
    for group in map(set, groups):
        touched = [c for c in classes if c & group]
        classes = [c for c in classes if not c & group] + [group.union(*touched)]
    return sorted(tuple(sorted(c)) for c in classes)


class Rewritable(Protocol):
    """A join that is rewritten tuple by tuple."""

    @property
    def streams(self) -> tuple[str, ...]:
        """By alias."""

    @property
    def slots(self) -> tuple[Slot, ...]: ...

    def hi(self, x: int, y: int) -> int:
        """The largest y.ts - x.ts."""


@dataclass(frozen=True)
class Layout:
    """The widths of rows."""

    aliases: int
    slots: int

    @classmethod
    def of(cls, templates: Iterable[Rewritable]) -> Layout:
        widths = [(len(t.streams), len(t.slots)) for t in templates]
        return cls(max((a for a, _ in widths), default=2), max((s for _, s in widths), default=1))

    @property
    def array(self) -> np.ndarray:
        """Where the parts of a row begin, as `kernels.registered.rewriting` numbers them."""
        return AT_SLOTS + self.slots + np.array([0, self.aliases, 2 * self.aliases])

    @property
    def names(self) -> list[str]:
        """The names of a row's fields, in their order.

        >>> Layout(aliases=2, slots=1).names[7:]
        ['slot0', 'ts0', 'ts1', 'number0', 'number1']
        """
        parts = (("slot", self.slots), ("ts", self.aliases), ("number", self.aliases))
        return [*_ROW, *(f"{part}{n}" for part, count in parts for n in range(count))]

    def no_rows(self) -> np.ndarray:
        return np.zeros((0, int(self.array[ROW_WIDTH])), np.int64)


class TemplateCatalogue:
    """Templates by number; `arrays` is what the loops read."""

    def __init__(self, streams: Columns, layout: Layout) -> None:
        self.streams, self.layout = streams, layout
        self.tuple_width = AT_VALUES + max(map(len, streams.values()))
        self._stream = {name: n for n, name in enumerate(streams)}
        self._column = {name: {c: n for n, c in enumerate(columns)} for name, columns in streams.items()}
        a, s = layout.aliases, layout.slots
        self._arrays = [np.zeros((0, w), np.int64) for w in (2, a, a + 1, 4, s, a * a)]

    def __len__(self) -> int:
        return len(self._arrays[INFO])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(self._arrays)

    def add_all(self, templates: Sequence[Rewritable], since: Sequence[int]) -> range:
        """The numbers of templates that see tuples from these batches on; checked before any is added."""
        encoded = [self._encode(t, s) for t, s in zip(templates, since, strict=True)]
        first, bound = len(self), len(self._arrays[BIND])
        for arrays in encoded:
            arrays[BIND_AT] += bound
            bound += len(arrays[BIND])
        for number, parts in enumerate(zip(*encoded, strict=True)):
            self._arrays[number] = np.concatenate([self._arrays[number], *parts])
        return range(first, len(self))

    def begin(self, since: np.ndarray) -> None:
        """Every template sees tuples from a batch of its own on."""
        self._arrays[INFO][:, SINCE] = since

    def pose(self, numbers: Sequence[int]) -> np.ndarray:
        """The rows of posed queries: nothing is bound."""
        out = np.zeros((len(numbers), int(self.layout.array[ROW_WIDTH])), np.int64)
        out[:, TEMPLATE], out[:, OLDEST], out[:, NEWEST] = numbers, ALWAYS, NEVER
        return out

    def _encode(self, t: Rewritable, since: int) -> list[np.ndarray]:
        """A template as lines of the arrays."""
        lay, n = self.layout, len(t.streams)
        bind = [self._binds(t, alias) for alias in range(n)]
        ends = np.cumsum([0, *map(len, bind)])
        if n > MOST:
            raise QueryError(f"the query reads {n} streams: a continuous join has 2 to {MOST}")
        if len(t.slots) > MOST:
            raise QueryError(f"the query carries {len(t.slots)} different columns; {MOST} at most: compare fewer")
        if ends[-1] > next_key.MOST_CANDIDATES:
            raise QueryError(f"the query names {ends[-1]} columns; {next_key.MOST_CANDIDATES} at most")
        slots = [sum(1 << a for a in s.aliases) | (CONSTANT if s.is_constant else 0) for s in t.slots]
        return [
            np.array([[n, since]], np.int64),
            _line(lay.aliases, [self._stream[s] for s in t.streams]),
            _line(lay.aliases + 1, ends, int(ends[-1])),
            np.concatenate(bind),
            _line(lay.slots, slots),
            _line(lay.aliases**2, [t.hi(x, y) for x in range(n) for y in range(n)], UNBOUNDED),
        ]

    def _binds(self, t: Rewritable, alias: int) -> np.ndarray:
        """(alias, column, slot, join) of every column of an alias that the query names."""
        columns = self._column[t.streams[alias]]
        out = [
            (alias, columns[column], number, slot.join)
            for number, slot in enumerate(t.slots)
            for a, column in slot.places
            if a == alias
        ]
        return np.array(out, np.int64).reshape(-1, 4)


def _line(width: int, values: Sequence[int] | np.ndarray, rest: int = 0) -> np.ndarray:
    """One line of an array: the values, then what stands in the places beyond them."""
    out = np.full((1, width), rest, np.int64)
    out[0, : len(values)] = values
    return out


def write_lines(lines: np.ndarray, names: Sequence[str]) -> pa.Table:
    """Lines of 64-bit fields as columns; "next", which links chains, is not one."""
    kept = [(n, name) for n, name in enumerate(names) if name != "next"]
    return pa.table({name: np.ascontiguousarray(lines[:, n]) for n, name in kept})


def read_lines(found: pa.Table, names: Sequence[str]) -> np.ndarray:
    """The columns side by side; those that are missing are zero, and chains are empty."""
    out = np.zeros((found.num_rows, len(names)), np.int64)
    there = set(found.column_names)
    for n, name in enumerate(names):
        if name == "next":
            out[:, n] = -1
        elif name in there:
            out[:, n] = found.column(name).to_numpy()
    return out
