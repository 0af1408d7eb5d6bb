"""Templates as arrays: what the rewriting loops read instead of query objects.

Invariant: a template keeps its number; a row means the same as long as its template is in the catalogue. All rows and tuples
of a run have one layout, wide enough for its widest template and its widest stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.errors import QueryError, UnknownNameError
from watersmeet.kernels.registered import next_key
from watersmeet.kernels.registered.rewriting import (
    ALIASES,
    ALL,
    BIND,
    BIND_AT,
    CONSTANT,
    COUNTED,
    HI,
    INFO,
    ONCE,
    ROW_HEAD,
    ROWS_N,
    SINCE,
    SLOT_ALIASES,
    STREAMS,
    TUMBLING,
    TUMBLING_ROWS,
    TUPLE_HEAD,
    UNTIL,
)
from watersmeet.query.coded_join import CodedJoin
from watersmeet.query.window import UNBOUNDED

ALWAYS, NEVER = 2**62, -(2**62)
"""Batches after and before all others."""
Columns = Mapping[str, Sequence[str]]
"""The columns of every stream, by name."""


@dataclass(frozen=True)
class Layout:
    """The widths of rows and tuples."""

    aliases: int
    slots: int
    columns: int
    streams: int
    counted: bool
    numbered: bool = False
    """Whether rows say which tuple every bound alias has; where a window counts tuples, they do."""

    @classmethod
    def of(cls, templates: Iterable[CodedJoin], streams: Columns) -> Layout:
        templates = list(templates)
        return cls(
            max((len(t.streams) for t in templates), default=2),
            max((len(t.slots) for t in templates), default=1),
            max(map(len, streams.values())),
            len(streams),
            any(t.counted for t in templates),
        )

    @property
    def array(self) -> np.ndarray:
        """Offsets, as `kernels.registered.rewriting` numbers them."""
        slots = ROW_HEAD
        ts = slots + self.slots
        numbers = ts + self.aliases
        seen = numbers + self.aliases * (self.counted or self.numbered)
        row = seen + self.aliases * self.counted
        stamps = TUPLE_HEAD + self.columns
        return np.array([slots, ts, numbers, seen, row, TUPLE_HEAD, stamps, stamps + self.streams * self.counted])


class TemplateCatalogue:
    """Templates by number; `arrays` is what the loops read."""

    def __init__(self, streams: Columns, layout: Layout) -> None:
        self.streams, self.layout = streams, layout
        self.templates: list[CodedJoin] = []
        self._stream = {name: n for n, name in enumerate(streams)}
        self._column = {name: {c: n for n, c in enumerate(columns)} for name, columns in streams.items()}
        a, s = layout.aliases, layout.slots
        self._arrays = [np.zeros((0, w), np.int64) for w in (8, a, a + 1, 4, s, a * a, a)]
        self._constants = np.zeros((0, s), np.int64)
        self._retained = np.zeros((0, a), np.int64)

    def __len__(self) -> int:
        return len(self.templates)

    @property
    def columns(self) -> np.ndarray:
        """By stream which columns it has."""
        return np.arange(self.layout.columns) < np.array([[len(c)] for c in self.streams.values()])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(self._arrays)

    def add(self, template: CodedJoin, since: int, until: int = ALWAYS) -> int:
        """The number of a template that sees tuples of these batches."""
        return self.add_all([template], [since], [until])[0]

    def add_all(self, templates: Sequence[CodedJoin], since: Sequence[int], until: Sequence[int]) -> range:
        """The numbers of many templates; checked before any is added."""
        encoded = [self._encode(t, s, u) for t, s, u in zip(templates, since, until, strict=True)]
        first, bound = len(self.templates), len(self._arrays[BIND])
        for arrays, *_ in encoded:
            arrays[BIND_AT] += bound
            bound += len(arrays[BIND])
        for number, parts in enumerate(zip(*(arrays for arrays, *_ in encoded), strict=True)):
            self._arrays[number] = np.concatenate([self._arrays[number], *parts])
        self._constants = np.concatenate([self._constants, *(constants for _, constants, _ in encoded)])
        self._retained = np.concatenate([self._retained, *(retained for *_, retained in encoded)])
        self.templates += templates
        return range(first, len(self.templates))

    def begin(self, since: np.ndarray) -> None:
        """Every template sees tuples from a batch of its own on."""
        self._arrays[INFO][:, SINCE] = since

    def end(self, number: int, until: int) -> None:
        """A template sees no tuple of later batches."""
        self._arrays[INFO][number, UNTIL] = until

    def until(self, number: int) -> int:
        return int(self._arrays[INFO][number, UNTIL])

    def pose(self, numbers: Sequence[int]) -> np.ndarray:
        """The rows of posed queries: nothing is bound but constants."""
        lay = self.layout.array
        out = np.zeros((len(numbers), int(lay[4])), np.int64)
        out[:, 0] = numbers
        out[:, 4], out[:, 5] = ALWAYS, NEVER  # OLDEST and NEWEST of no tuple
        out[:, lay[0] : lay[0] + self.layout.slots] = self._constants[np.asarray(numbers, np.int64)]
        return out

    def retention(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """For every stream how much younger than a tuple its partners may be, and how many tuples of its own stream:
        the most over all templates that see this batch or later, UNBOUNDED where one has no limit or there is none."""
        time = np.full(len(self.streams), -1, np.int64)
        rows = np.full(len(self.streams), -1, np.int64)
        info = self._arrays[INFO]
        alias = np.arange(self.layout.aliases)
        used = (alias < info[:, ALIASES, None]) & (info[:, UNTIL, None] >= batch)
        stream = self._arrays[STREAMS][used]
        np.maximum.at(time, stream, self._retained[used])
        np.maximum.at(rows, stream, np.where(self._arrays[ROWS_N] > 0, self._arrays[ROWS_N], UNBOUNDED)[used])
        time[time < 0] = rows[rows < 0] = UNBOUNDED
        return time, rows

    # ---------------------------------------------------------------- a template as lines of the arrays

    def _encode(self, t: CodedJoin, since: int, until: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """The lines of `arrays`, the constants by slot, and how much younger than each alias' tuple partners may be."""
        lay, n = self.layout, len(t.streams)
        if n > lay.aliases or len(t.slots) > lay.slots or (t.counted and not lay.counted):
            raise QueryError(
                f"the query over {', '.join(t.streams)} has more aliases, columns or windows than this run was laid out for; plan with it"
            )
        info = np.zeros((1, 8), np.int64)
        info[0, [ALIASES, SINCE, UNTIL, TUMBLING, TUMBLING_ROWS, ALL]] = (
            n, since, until, t.tumbling, t.tumbling_rows, (1 << n) - 1,
        )  # fmt: skip
        info[0, [COUNTED, ONCE]] = t.counted, t.distinct and not t.windowed
        streams = np.zeros((1, lay.aliases), np.int64)
        streams[0, :n] = [self._stream_number(s) for s in t.streams]
        bind = [self._binds(t, alias) for alias in range(n)]
        ends = np.cumsum([0, *map(len, bind)])
        at = np.full((1, lay.aliases + 1), ends[-1], np.int64)
        at[0, : n + 1] = ends
        if sum(map(len, bind)) > next_key.MOST_CANDIDATES:
            raise QueryError(f"the query names {sum(map(len, bind))} columns; {next_key.MOST_CANDIDATES} at most")
        aliases = np.zeros((1, lay.slots), np.int64)
        constants = np.zeros((1, lay.slots), np.int64)
        for i, slot in enumerate(t.slots):
            aliases[0, i] = sum(1 << a for a in slot.aliases) | (CONSTANT if slot.constant is not None else 0)
            constants[0, i] = slot.constant or 0
        hi = np.full((1, lay.aliases**2), UNBOUNDED, np.int64)
        hi[0, : n * n] = [t.hi(x, y) for x in range(n) for y in range(n)]
        rows = np.zeros((1, lay.aliases), np.int64)
        rows[0, :n] = t.rows or 0
        parts = {
            INFO: info, STREAMS: streams, BIND_AT: at, BIND: np.concatenate(bind), SLOT_ALIASES: aliases, HI: hi, ROWS_N: rows,
        }  # fmt: skip
        retained = np.zeros((1, lay.aliases), np.int64)
        retained[0, :n] = [max(t.hi(x, y) for y in range(n) if y != x) for x in range(n)]
        return [parts[i] for i in range(7)], constants, retained

    def _stream_number(self, stream: str) -> int:
        if stream not in self._stream:
            raise UnknownNameError(f"there is no stream {stream!r}; there are {', '.join(self.streams)}")
        return self._stream[stream]

    def _binds(self, t: CodedJoin, alias: int) -> np.ndarray:
        """(alias, column, slot, join) of every column of an alias that the query names."""
        columns = self._column[t.streams[alias]]
        out = []
        for number, slot in enumerate(t.slots):
            for a, column in slot.places:
                if a == alias:
                    if column not in columns:
                        raise UnknownNameError(
                            f"stream {t.streams[alias]} has no column {column!r}; it has {', '.join(columns)}"
                        )
                    out.append((alias, columns[column], number, slot.join))
        return np.array(out, np.int64).reshape(-1, 4)
