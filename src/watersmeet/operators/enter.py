"""Wire rows of a source to messages: what is kept, where it goes, and what the clock learns.

Routing asks rows for the placement hash of their keys or their content, or for values; each is computed once, when asked.

Invariant: the clock learns the highest event time of all rows, taken before filters. Under `dataframe()` a row goes to units by its values alone, so a task that
runs twice sends the same rows to the same units. Elsewhere what a task sends is taken whole or not at all, and its number may decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import codes, floats, integers, place_keys
from watersmeet.columns.row_hash import by_hash, content_hash, row_hash
from watersmeet.dataflow.clock import Seen, count
from watersmeet.dataflow.contract import HERE, PROBE, Message, Origin, first_unit
from watersmeet.kernels.placement import hash_codes
from watersmeet.plan.model import TIME, InputPlan, Plan, Stage
from watersmeet.plan.source_sql import OWN, PASS
from watersmeet.query.stream import COPY, COUNTED
from watersmeet.query.table import Lookup

AHEAD = "_ahead"
"""The wire column that is true where a tuple is too far ahead, of a stream with such a bound; it does not travel on."""
BROKEN = "_broken"
"""The wire column that says why a row is set aside, where some are: it breaks an expression; it does not travel on."""
LONE = "lone "
"""Prefix of the kinds of tuples that can have no partner, and leave at once."""
CONTENT = "_content_"
"""Prefix of the columns of a whole row, which the content hash is made of; they do not travel on."""
HASH = "_hash"
"""The content hash: the tie-break of sequences."""


class Copies:
    """The rows of one task that lookups have multiplied: of the copies of a row that pass, the first counts if it is late.

    Where tables are joined that Spark may both shuffle, copies of different rows lie mixed, so all numbers of the task are remembered. Otherwise copies
    of a row lie together, also where a table of wire rows ends and the next begins, and the last number is enough.
    """

    def __init__(self, lookups: Sequence[Lookup]) -> None:
        self._mixed = sum(not lookup.chained for lookup in lookups) > 1
        self._seen: list[np.ndarray] = []
        """Numbers of rows that have passed, each part in order; parts are merged so that there are few."""

    def mark(self, wire: pa.Table) -> pa.Table:
        """Wire rows that say who is counted instead of which of them are copies."""
        if COPY not in wire.column_names:
            return wire
        passing = pc.is_valid(wire.column(COPY)).combine_chunks()
        ids = integers(wire.column(COPY).drop_null().combine_chunks())
        again = np.ones(len(ids), bool)
        again[self._find_new(ids)] = False
        counted = np.zeros(wire.num_rows, bool)
        counted[np.asarray(passing.to_numpy(zero_copy_only=False), bool)] = again
        wire = wire.drop_columns([COPY])
        if COUNTED not in wire.column_names:
            return wire.append_column(COUNTED, pa.array(counted))
        before = wire.column(COUNTED).fill_null(False)
        return wire.set_column(wire.column_names.index(COUNTED), COUNTED, pc.or_(before, pa.array(counted)))

    def _find_new(self, ids: np.ndarray) -> np.ndarray:
        """Where numbers stand that have not come before, each once; they have come now."""
        found, first = np.unique(ids, return_index=True)
        is_new = np.ones(len(found), bool)
        for part in self._seen:
            at = np.searchsorted(part, found)
            is_new &= part[np.minimum(at, len(part) - 1)] != found
        if self._mixed and is_new.any():
            self._seen.append(found[is_new])
            while len(self._seen) > 1 and len(self._seen[-2]) <= 2 * len(self._seen[-1]):
                self._seen[-2:] = [np.sort(np.concatenate(self._seen[-2:]), kind="stable")]
        elif not self._mixed and len(ids):
            self._seen = [ids[-1:]]
        return first[is_new]


@dataclass(frozen=True)
class JoinEntry:
    """Rows to the units of the join where their alias enters, as stage `stage` of the dataflow."""

    plan: Plan
    alias: str
    stage: int
    routing: Any = None
    """That of the batch, if it is not the plan's."""
    join: Stage = field(init=False)
    side: int = field(init=False)

    def __post_init__(self) -> None:
        join, side = self.plan.entry(self.alias)
        object.__setattr__(self, "join", join)
        object.__setattr__(self, "side", side)

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        rows, seen = take_kept(self.plan.by_alias[self.alias], wire)
        if OWN not in rows.column_names:
            return seen, route(self.plan, self.join, self.side, rows, self.stage, self.routing)
        hopeful, lone = split(rows.drop_columns([OWN]), rows.column(OWN).fill_null(False))
        sent = route(self.plan, self.join, self.side, hopeful, self.stage, self.routing)
        return seen, chain(send_lone(self.join, self.side, lone, self.stage), sent)


@dataclass(frozen=True)
class SequenceEntry:
    """Rows to the sequencer, stage 0.

    Of an alias with a ROWS window those are all rows, before WHERE: `_pass` says which of them may join, and the content of the whole row, which
    breaks ties, travels as a hash.
    """

    plan: Plan
    alias: str
    stage: int = 0

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        rows, seen = take_counted(self.plan.by_alias[self.alias], wire)
        return seen, iter([Message(first_unit(self.stage), self.alias, rows)] if rows.num_rows else [])


def take_counted(source: InputPlan, wire: pa.Table) -> tuple[pa.Table, Seen]:
    """Wire rows as they are to be numbered: of an alias with a ROWS window all that have a time, marked by whether they can match, and hashed."""
    if source.rows is None:
        return take_kept(source, wire)
    table = wire.combine_chunks()
    kept, seen = rows_kept(source, table)
    content = [c for c in table.column_names if c.startswith(CONTENT)]
    rows = table.drop_columns([c for c in (PASS, AHEAD, BROKEN, *content) if c in table.column_names])
    may_join = np.zeros(table.num_rows, bool)
    may_join[kept] = True
    rows = rows.append_column(PASS, pa.array(may_join))
    rows = rows.append_column(HASH, pa.array(content_hash(table.select(content))))
    return rows.filter(pa.array(find_usable(table))), seen


def route(plan: Plan, join: Stage, side: int, table: pa.Table, stage: int, routing: Any = None) -> Iterator[Message]:
    """The rows of a side of a join to its units, by the join's own routing if none is given."""
    if table.num_rows == 0:
        return
    spec, first = join.sides[side], first_unit(stage)
    for delivery in (routing or join.routing).deliveries(side, WireContent(plan, spec.keys, table)):
        rows = table if delivery.rows is None else table.take(pa.array(delivery.rows))
        kind = PROBE + spec.name if delivery.role == "probe" else spec.name
        for unit in delivery.units:
            yield Message(first + unit, kind, rows)


def split(table: pa.Table, keep: pa.Array | pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    """The rows of a mask, and the others; the table as it is if it has no others.

    >>> [t.num_rows for t in split(pa.table({"k": [1, 2, 3]}), pa.array([True, False, True]))]
    [2, 1]
    """
    if pc.all(keep, min_count=0).as_py():
        return table, table.slice(0, 0)
    return table.filter(keep), table.filter(pc.invert(keep))


def send_lone(join: Stage, side: int, table: pa.Table, stage: int) -> Iterator[Message]:
    """Rows of a preserved side that can have no partner, to units of the join, by their times."""
    times = integers(table.column(TIME).combine_chunks())
    for unit, part in by_hash(table, times, join.units):
        yield Message(first_unit(stage) + unit, LONE + join.sides[side].name, part)


def rows_kept(source: InputPlan, table: pa.Table) -> tuple[np.ndarray, Seen]:
    """The rows that can match anything, and what the clock learns of all of them."""
    seen, kept, usable = Seen(), find_wanted(source, table), find_usable(table)
    if BROKEN in table.column_names and (broken := find_broken_rows(table)).any():
        seen.broken[source.stream] = count(table, broken)
        kept = kept & ~broken
    if not usable.all():
        seen.aside[source.stream] = count(table, kept & ~usable)
        kept = kept & usable
    is_marked = AHEAD in table.column_names or BROKEN in table.column_names
    highest = pc.max(table.column(TIME).filter(pa.array(usable)) if is_marked else table.column(TIME))
    if highest.is_valid:
        seen.highest[source.stream] = highest.cast(pa.int64()).as_py()
    return np.flatnonzero(kept), seen


def take_kept(source: InputPlan, wire: pa.Table) -> tuple[pa.Table, Seen]:
    """Wire rows that can match anything, as they travel on, and what the clock learns of all of them."""
    table = wire.combine_chunks()
    kept, seen = rows_kept(source, table)
    content = [c for c in table.column_names if c.startswith(CONTENT)]
    rows = table.drop_columns([c for c in (PASS, AHEAD, BROKEN, *content) if c in table.column_names])
    return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept)), seen


def find_broken_rows(table: pa.Table) -> np.ndarray:
    """Which wire rows break an expression, where they say so."""
    return np.asarray(pc.is_valid(table.column(BROKEN)).to_numpy(), np.bool_)


def find_usable(table: pa.Table) -> np.ndarray:
    """Which rows have an event time that is not too far ahead, and break no expression."""
    time = table.column(TIME)
    usable = np.asarray(pc.is_valid(time).to_numpy(), np.bool_) if time.null_count else np.ones(table.num_rows, bool)
    if AHEAD in table.column_names:
        usable = usable & ~np.asarray(table.column(AHEAD).to_numpy(), np.bool_)
    if BROKEN in table.column_names:
        usable = usable & ~find_broken_rows(table)
    return usable


def find_wanted(source: InputPlan, table: pa.Table) -> np.ndarray:
    """Which rows can match something, their times aside."""
    keep = table.column(PASS).fill_null(False) if PASS in table.column_names else None
    for name in source.required:
        if name != TIME and table.column(name).null_count:
            valid = pc.is_valid(table.column(name))
            keep = valid if keep is None else pc.and_(keep, valid)
    return np.ones(table.num_rows, bool) if keep is None else np.asarray(keep.to_numpy(), np.bool_)


class WireContent:
    """The rows of a table; `keys` names the column of every class."""

    def __init__(self, plan: Plan, keys: Mapping[int, str], table: pa.Table) -> None:
        self.plan, self.keys, self.table, self.rows = plan, keys, table, table.num_rows
        self._spread: np.ndarray | None = None

    def key(self, classes: tuple[int, ...]) -> np.ndarray:
        """The placement hash of the row's keys in these classes."""
        return place_keys([(self._column(self.keys[c]), self.plan.classes[c].type) for c in classes])

    def spread(self) -> np.ndarray:
        """The placement hash of the row's content or, where rows are numbered, of its number: so equal rows are spread, too."""
        if self._spread is None and self.plan.numbers_rows:
            self._spread = hash_codes(self._first() + np.arange(self.rows))
        if self._spread is None:
            content = [name for name in self.table.column_names if name != COUNTED]
            self._spread = hash_codes(row_hash(self.table.select(content)))
        return self._spread

    def _first(self) -> int:
        """Where numbers begin: not at 0, which is where every small table would begin."""
        return int(integers(self.table.column(TIME).slice(0, 1).combine_chunks())[0]) if self.rows else 0

    def value(self, column: str) -> np.ndarray:
        """A column as doubles, in units of its codes."""
        values = self._column(column)
        if pa.types.is_floating(values.type):
            return floats(values)
        return (codes(values, "decimal") if pa.types.is_decimal(values.type) else integers(values)).astype(np.float64)

    def _column(self, name: str) -> pa.Array:
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
