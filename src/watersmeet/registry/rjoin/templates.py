"""The shapes and poses of a batch's queries, numbered for the rewriting loops of this process.

    query ---> shape      template in the catalogue: SINCE, the first batch that any of its queries sees
          \\-> pose       shape + constants: one posed row, which waits from the batch on in which its first living query took effect

Numbers are of this process; rows on disk and on their way name shapes by `Shape.name`. A shape whose last query has gone is not in force;
when more than half are not, all are numbered anew, and whoever holds numbers (`generation`) reads its rows again.

Invariant: every living pose waits in one row. If all its queries take effect with a batch, it is placed in that batch, and a row of
it from before, when other queries had the pose, is out of force; otherwise the row of its older queries serves the later ones too.
Implements: Idreos, Liarou, Koubarakis (2008), section 2: queries see tuples published since their insertion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.kernels.hashing import combine
from watersmeet.kernels.registered.rewriting import AT_SLOTS, BIND_AT, BOUND, NEWEST, OLDEST, TEMPLATE, WAIT
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.plan import wire_name
from watersmeet.registry.rjoin.catalogue import ALWAYS, Layout, TemplateCatalogue, read_lines, write_lines
from watersmeet.registry.rjoin.index import STAND_IN, Index
from watersmeet.registry.rjoin.shape import Shape, index_columns
from watersmeet.registry.shared.compiled import find_own_places, unit_of
from watersmeet.registry.shared.gates import code_of
from watersmeet.registry.subscription import Column, Registered
from watersmeet.registry.template import hull

Pose = tuple[int, tuple[int, ...]]
"""The number of a shape, and the codes of its constants."""
_FEW = 64
"""Shapes that may go out of force before numbering anew is worth it."""


@dataclass
class _Known:
    registered: Registered
    shape: Shape
    constants: tuple[int, ...]


class Templates:
    """The queries of one batch, as a ring sees them."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.generation = 0
        self._forget()

    def _forget(self) -> None:
        """Hold no query."""
        self.stands_for: dict[str, Any] | None = None
        """What a batch's intent said of the queries that are held."""
        self._queries: dict[str, _Known] = {}
        self._numbered: dict[Shape, int] = {}
        self.hull: dict[tuple[str, str], int] = {}
        self.indexed: dict[str, list[str]] = {}
        """The coded columns by stream that some query compares."""
        self.own_places: dict[str, list[int]] = {}
        """By stream the places of queries that share nothing and read it: they are not rewritten."""
        self.mask = self.index.mask({})
        self._begin({})
        self._find_distinct()

    def become(self, queries: Mapping[str, Registered]) -> None:
        """Hold exactly these queries; if they cannot be rewritten, none."""
        try:
            self._become(queries)
        except BaseException:
            self._forget()
            raise

    def _become(self, everything: Mapping[str, Registered]) -> None:
        queries = {id: known for id, known in everything.items() if known.query.own is None}
        for id in [id for id, known in self._queries.items() if queries.get(id) != known.registered]:
            del self._queries[id]
        for id, registered in queries.items():
            if id not in self._queries:
                query = registered.query
                self._queries[id] = _Known(
                    registered, Shape.of(query), tuple(_code(value) for *_, value in query.constants)
                )
        living: dict[Shape, int] = {}
        for known in self._queries.values():
            effect = known.registered.effect
            living[known.shape] = min(living.get(known.shape, effect), effect)
        self._number(living)
        self._pose()
        self._find_distinct()
        self.hull = hull(known.query.template for known in everything.values())
        self.indexed = index_columns(Shape.of(known.query) for known in everything.values())
        self.own_places = find_own_places(everything.values())
        self.mask = self.index.mask(self.indexed)

    def _find_distinct(self) -> None:
        """What `covering` asks of shapes: from which batch on all queries of one see its tuples and drop repetitions, and what of its tuples they show or test."""
        used: dict[int, set[Column]] = {}
        self.distinct_from = np.full(len(self.names), ALWAYS, np.int64)
        self.bucket_us = np.full(len(self.names), UNBOUNDED, np.int64)
        dropping = [known for known in self._queries.values() if known.registered.query.distinct]
        if dropping:
            others = {known.shape for known in self._queries.values() if not known.registered.query.distinct}
            dropping = [known for known in dropping if known.shape not in others]
        for known in dropping:
            query, effect, number = known.registered.query, known.registered.effect, self._numbered[known.shape]
            self.distinct_from[number] = max(effect, self.distinct_from[number]) if number in used else effect
            self.bucket_us[number] = UNBOUNDED if query.bucket_us is None else query.bucket_us
            used.setdefault(number, set()).update(query.columns)
        self.is_distinct = self.distinct_from < ALWAYS
        self._number_uses(used)

    def _number_uses(self, used: Mapping[int, set[Column]]) -> None:
        """By shape and alias the number of what is asked for of its tuples, -1 for nothing; and these as columns of the wire."""
        numbers: dict[tuple[str, tuple[str, ...]], int] = {}
        self.uses = np.full((len(self.names), self.catalogue.layout.aliases), -1, np.int64)
        for number, columns in used.items():
            for alias, stream in enumerate(self.shapes[number].streams):
                spec = self.index.plan.streams[stream]
                names = tuple(sorted(wire_name(spec, column) for a, column in columns if a == alias))
                if names:
                    self.uses[number, alias] = numbers.setdefault((stream, names), len(numbers))
        self.used_columns = [names for _, names in numbers]

    def take_places(self, index: Index) -> None:
        """Be those of a ring whose nodes sit here."""
        if index.places != self.index.places:
            self.index, self.owner = index, _find_owners(self.shapes, index.units)

    def find_whole(self, stream: str) -> set[int]:
        """The nodes that get all of a stream, for queries that share nothing."""
        return {place % self.index.units for place in self.own_places.get(stream, ())}

    def list_ids(self, numbers: np.ndarray) -> list[str]:
        """The queries of shapes with these numbers."""
        asked = set(numbers.tolist())
        return [id for id, known in self._queries.items() if asked and self._numbered[known.shape] in asked]

    # ---------------------------------------------------------------- rows

    def fresh(self, batch: int, unit: int) -> np.ndarray:
        """The rows of poses that take effect with a batch and belong to a unit."""
        new = (self._posed[:, NEWEST] == batch) & (self.owner[self._posed[:, TEMPLATE]] == unit)
        return self._posed[new].copy()

    def in_force(self, rows: np.ndarray, batch: int) -> np.ndarray:
        """Which stored rows some living query of a batch needs."""
        if not len(self.names):
            return np.zeros(len(rows), np.bool_)
        since = self.since[rows[:, TEMPLATE]]
        out = rows[:, OLDEST] >= since
        posed = np.flatnonzero(rows[:, BOUND] == 0)
        if len(posed):
            keys = self._keys(rows[posed])
            at = np.minimum(np.searchsorted(self._pose_keys, keys), max(len(self._pose_keys) - 1, 0))
            known = self._pose_keys[at] == keys if len(self._pose_keys) else np.zeros(len(posed), np.bool_)
            out[posed] = known
            out[posed[known]] = (self._pose_since[at[known]] < batch) | (rows[posed[known], NEWEST] == batch)
        return out

    def number_of(self, names: np.ndarray) -> np.ndarray:
        """The numbers of shapes by name, -1 for those that are not in force."""
        if not len(self.names):
            return np.full(len(names), -1, np.int64)
        order = np.argsort(self.names)
        at = np.minimum(np.searchsorted(self.names, names, sorter=order), len(order) - 1)
        found = order[at]
        return np.where((self.names[found] == names) & (self.since[found] < ALWAYS), found, -1)

    # ---------------------------------------------------------------- rows as tables that every process understands

    def write_rows(self, rows: np.ndarray) -> pa.Table:
        """Rows on their way, or stored: shapes by name, columns by their place in the shape."""
        named = rows.copy()
        named[:, TEMPLATE] = self.names[rows[:, TEMPLATE]]
        named[:, WAIT] -= self.catalogue.arrays[BIND_AT][rows[:, TEMPLATE], 0]
        return write_lines(named, self.catalogue.layout.names)

    def read_rows(self, found: pa.Table) -> np.ndarray:
        """The rows of a table, under the numbers of this process; those of shapes that are not in force are left out."""
        rows = read_lines(found, self.catalogue.layout.names)
        numbers = self.number_of(rows[:, TEMPLATE])
        rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
        rows[:, TEMPLATE] = numbers
        rows[:, WAIT] += self.catalogue.arrays[BIND_AT][numbers, 0]
        return rows

    # ---------------------------------------------------------------- numbering

    def _number(self, living: Mapping[Shape, int]) -> None:
        fresh = [s for s in living if s not in self._numbered]
        dead = len(self._numbered) + len(fresh) - len(living)
        wide, layout = Layout.of(fresh), self.catalogue.layout
        if wide.aliases > layout.aliases or wide.slots > layout.slots or dead > max(len(living), _FEW):
            self._begin(living)
        else:
            self._add(fresh)
        self.since = np.full(len(self._numbered), ALWAYS, np.int64)
        self.since[[self._numbered[s] for s in living]] = list(living.values())
        self.catalogue.begin(self.since)

    def _begin(self, living: Mapping[Shape, int]) -> None:
        """Number anew."""
        self.generation += 1
        self.catalogue = TemplateCatalogue(self.index.columns, Layout.of(living))
        self._numbered = {}
        self.shapes: list[Shape] = []
        self.names, self.owner = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.since = np.zeros(0, np.int64)
        self._add(list(living))
        self._pose()

    def _add(self, shapes: list[Shape]) -> None:
        if not shapes:
            return
        numbers = self.catalogue.add_all(shapes, [ALWAYS] * len(shapes))
        self._numbered |= dict(zip(shapes, numbers, strict=True))
        self.shapes += shapes
        self.names = np.append(self.names, np.array([s.name for s in shapes], np.int64))
        if len(np.unique(self.names)) < len(self.names):
            raise QueryError("two queries have shapes with the same 64-bit name; reword one of them")
        self.owner = np.append(self.owner, _find_owners(shapes, self.index.units))

    def _pose(self) -> None:
        """The rows of all living poses; NEWEST is the batch from which on they wait."""
        since: dict[Pose, int] = {}
        for known in self._queries.values():
            if known.shape in self._numbered:
                pose = self._numbered[known.shape], known.constants
                since[pose] = min(since.get(pose, ALWAYS), known.registered.effect)
        rows = self.catalogue.pose([number for number, _ in since])
        rows[:, NEWEST] = list(since.values())
        possible = np.ones(len(rows), np.bool_)
        for n, (number, constants) in enumerate(since):
            if constants:
                slots = self.shapes[number].wanted_slots
                possible[n] = len(set(zip(slots, constants, strict=True))) == len(set(slots))
                rows[n, AT_SLOTS + np.array(slots)] = constants
        self._posed = rows[possible]
        keys = self._keys(self._posed)
        order = np.argsort(keys)
        self._pose_keys, self._pose_since = keys[order], self._posed[order, NEWEST]

    def _keys(self, rows: np.ndarray) -> np.ndarray:
        """A hash of the pose of posed rows."""
        out = self.names[rows[:, TEMPLATE]]
        for slot in range(self.catalogue.layout.slots):
            out = combine(out, rows[:, AT_SLOTS + slot].copy())
        return out


def _find_owners(shapes: Sequence[Shape], units: int) -> np.ndarray:
    """The nodes that own the queries of shapes."""
    return np.array([unit_of(s.join, units) for s in shapes], np.int64)


def _code(value: int | str) -> int:
    code = code_of(value)
    return STAND_IN if code == STAND_IN - 1 else code


def check_shape(columns: Mapping[str, tuple[str, ...]], shape: Shape) -> None:
    """Raise if a shape cannot be rewritten: what a node would find out when it numbers the shape, before it does."""
    TemplateCatalogue(columns, Layout.of([shape])).add_all([shape], [ALWAYS])
