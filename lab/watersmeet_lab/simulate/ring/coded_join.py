"""A query template: a multi-way equi-join over streams of coded columns, as thousands of continuous queries share it.

    select R.B, S.B from R, S, P where R.A = S.A and S.B = P.B

    aliases   0 = R    1 = S    2 = P
    slots     {R.A, S.A}   {S.B, P.B}   {R.B}        what a rewritten query carries: one value for each

Columns that the WHERE clause makes equal are one slot, so conditions that follow from others need no rule of their own:
every slot whose value is known names a value for each of its columns. A slot of a single column is only selected.

Invariant: a `CodedJoin` that exists is well formed: every place names an alias, its equalities connect all aliases, its
windows can be satisfied. Templates with the same `canonical` form are the same query, whoever poses it.
Implements: Idreos, Liarou, Koubarakis (2008), sections 2, 3 and 5: what a query says.
Departs from the paper: windows are the closed graph of `query.window`, tumbling windows by time, ROWS windows and
tumbling windows by tuples, alone or together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from watersmeet.errors import QueryError, WindowError
from watersmeet.query.window import UNBOUNDED, Edge, WindowGraph, horizon, reach, symmetric_edges
from watersmeet.registry.rjoin.catalogue import MOST, Place, Slot, merge_places


@dataclass(frozen=True)
class ValuedSlot(Slot):
    """A slot, and the constant that its columns equal."""

    constant: int | None = None


@dataclass(frozen=True)
class CodedJoin:
    """A continuous equi-join without its owner; columns hold 64-bit codes.

    bounds: the closed window graph, bounds[x][y] the largest y.ts - x.ts; () is full history. tumbling: members lie in the
    same of the windows [0, w), [w, 2w), ... of event time. rows: for each alias n of ROWS n, or 0. tumbling_rows: members
    have the same number of their stream's blocks of n tuples.
    """

    streams: tuple[str, ...]
    equalities: tuple[tuple[Place, Place], ...]
    select: tuple[Place, ...]
    constants: tuple[tuple[Place, int], ...] = ()
    bounds: tuple[tuple[int, ...], ...] = ()
    tumbling: int = 0
    rows: tuple[int, ...] = ()
    tumbling_rows: int = 0
    distinct: bool = False

    def __post_init__(self) -> None:
        n = len(self.streams)
        if not 2 <= n <= MOST:
            raise QueryError(f"the query reads {n} streams: a continuous join has 2 to {MOST}")
        both = [place for pair in self.equalities for place in pair]
        for alias, column in (*both, *self.select, *(place for place, _ in self.constants)):
            if not 0 <= alias < n:
                raise QueryError(f"column {column!r} is of alias {alias}, but FROM has only 0 to {n - 1}")
        if not self.select:
            raise QueryError("the query selects nothing: name one column or more in SELECT")
        linked = reach([0], [(x, y) for (x, _), (y, _) in self.equalities])
        lonely = [alias for alias in range(n) if alias not in linked]
        if lonely:
            raise QueryError(
                f"alias {lonely[0]} ({self.streams[lonely[0]]}) is joined to nothing: continuous queries need equalities"
                " that connect all streams"
            )
        if len(self.slots) > MOST:
            raise QueryError(f"the query carries {len(self.slots)} different columns; {MOST} at most: select fewer")
        self._check_windows()

    def _check_windows(self) -> None:
        n = len(self.streams)
        if self.tumbling < 0 or self.tumbling_rows < 0 or any(r < 0 for r in self.rows):
            raise WindowError("a window's size is negative; give a number above 0, or 0 for none")
        if self.bounds and [len(row) for row in self.bounds] != [n] * n:
            raise WindowError(f"the window graph is not over the {n} aliases of the query")
        if self.bounds and not _is_closed(self.bounds):
            raise WindowError(
                "the window graph is not closed by shortest paths; make its bounds with `close_bounds` or `within`"
            )
        if self.rows and len(self.rows) != n:
            raise WindowError(f"rows={self.rows}: give one number for each of the {n} aliases, 0 for none")

    @cached_property
    def slots(self) -> tuple[ValuedSlot, ...]:
        """Classes of columns that are equal by the WHERE clause, and single ones that are selected."""
        alone = [[place] for place in (*(p for p, _ in self.constants), *self.select)]
        values: dict[Place, int] = {}
        for place, value in self.constants:
            if values.setdefault(place, value) != value:
                raise QueryError(f"column {place[1]!r} of alias {place[0]} cannot equal two constants at once")
        return tuple(_slot(places, values) for places in merge_places([*self.equalities, *alone]))

    @cached_property
    def canonical(self) -> CodedJoin:
        """The same query, however its FROM and WHERE clauses are arranged: aliases by stream, equalities by slot.

        >>> a = CodedJoin(("s", "r"), (((0, "x"), (1, "y")),), ((1, "z"),))
        >>> b = CodedJoin(("r", "s"), (((0, "y"), (1, "x")),), ((0, "z"),))
        >>> a == b, a.canonical == b.canonical
        (False, True)
        """
        order = sorted(range(len(self.streams)), key=lambda a: (self.streams[a], a))
        at = {alias: n for n, alias in enumerate(order)}
        slots = [(sorted((at[a], c) for a, c in slot.places), slot.constant) for slot in self.slots]
        return CodedJoin(
            tuple(self.streams[a] for a in order),
            tuple(sorted(pair for places, _ in slots for pair in pairwise(places))),
            tuple((at[a], c) for a, c in self.select),
            tuple(sorted((places[0], value) for places, value in slots if value is not None)),
            tuple(tuple(self.bounds[x][y] for y in order) for x in order) if self.bounds else (),
            self.tumbling,
            tuple(self.rows[a] for a in order) if any(self.rows) else (),
            self.tumbling_rows,
            self.distinct,
        )

    def slot_of(self, place: Place) -> int:
        return next(i for i, slot in enumerate(self.slots) if place in slot.places)

    @property
    def windowed(self) -> bool:
        return bool(self.bounds or self.tumbling or any(self.rows) or self.tumbling_rows)

    @property
    def counted(self) -> bool:
        """Whether tuples must be numbered."""
        return bool(any(self.rows) or self.tumbling_rows)

    def hi(self, x: int, y: int) -> int:
        """The largest y.ts - x.ts, tumbling windows included."""
        bound = self.bounds[x][y] if self.bounds else (0 if x == y else UNBOUNDED)
        return min(bound, self.tumbling - 1) if self.tumbling else bound

    @property
    def bucket(self) -> int:
        """How long a DISTINCT row stays the only one: a tumbling window, else the graph's horizon; UNBOUNDED: for ever."""
        return self.tumbling or horizon(self.bounds)


def within(aliases: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Bounds of a sliding window that all pairs share.

    >>> within(2, 10)
    ((0, 10), (10, 0))
    """
    names = tuple(map(str, range(aliases)))
    pairs = [(x, y) for x in names for y in names if x < y]
    return close_bounds(aliases, [e for x, y in pairs for e in symmetric_edges(x, y, width, "")])


def close_bounds(aliases: int, edges: Sequence[Edge]) -> tuple[tuple[int, ...], ...]:
    """The closed window graph over aliases that are called '0', '1', ..."""
    return WindowGraph.close(tuple(map(str, range(aliases))), edges).bounds


@lru_cache(maxsize=1024)
def _is_closed(bounds: tuple[tuple[int, ...], ...]) -> bool:
    n = range(len(bounds))
    return all(bounds[x][x] == 0 for x in n) and all(
        bounds[x][y] <= bounds[x][k] + bounds[k][y]
        for x in n
        for y in n
        for k in n
        if bounds[x][k] < UNBOUNDED and bounds[k][y] < UNBOUNDED
    )


def _slot(places: tuple[Place, ...], values: dict[Place, int]) -> ValuedSlot:
    constants = {values[p] for p in places if p in values}
    if len(constants) > 1:
        raise QueryError(f"columns {sorted(p[1] for p in places)} are equal, and equal to different constants")
    return ValuedSlot(places, bool(constants), len(places) > 1 or bool(constants), next(iter(constants), None))
