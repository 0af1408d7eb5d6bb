"""Tuples under keys of the ring: which codes a tuple has, under which keys it lies, and which nodes get it.

    tuple of r   (r, k)         attribute level, for queries that wait for any tuple of r
                 (r, k, 7)      value level, for those that wait for k = 7          the same for every indexed column

A node gets a tuple once, however many of its keys it owns, and finds out by itself which these are.

Invariant: keys depend on schemas and values alone, so source tasks and nodes agree. NULL has no key at value level. The one 64-bit
code that stands for NULL here is replaced where a value has it; `owner` compares such values again.
Implements: Idreos, Liarou, Koubarakis (2008), procedure 1. Departs from it: columns that no query compares are not indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import codes, integers
from watersmeet.kernels.registered import rewriting
from watersmeet.kernels.registered.key_table import attribute_key
from watersmeet.kernels.registered.rewriting import (
    ARRIVED,
    AT_VALUES,
    BATCH,
    LEVEL,
    NULL,
    NUMBER,
    STREAM,
    TS,
    TUPLE_KEY,
)
from watersmeet.plan.model import TIME
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.rjoin.shape import code_streams, parts

STAND_IN = NULL + 1
"""The code of a value whose own code is NULL's."""
ID = "_id"
"""The wire column that tells tuples apart."""


@dataclass(frozen=True)
class Index:
    """The streams of a registry as the ring sees them, and the ring."""

    plan: RegistryPlan

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        return code_streams(self.plan.streams)

    @cached_property
    def streams(self) -> dict[str, int]:
        return {s: n for n, s in enumerate(self.columns)}

    @cached_property
    def width(self) -> int:
        return max(map(len, self.columns.values()))

    @cached_property
    def _places(self) -> np.ndarray:
        """Where the nodes sit on the circle of 64 bits: at equal distances, since a handful at places of chance would share the keys unequally."""
        units = self.plan.units
        return np.array([((2 * n + 1) << 63) // units for n in range(units)], np.uint64)

    def owners(self, keys: np.ndarray) -> np.ndarray:
        """The node of every key: the first at or after it."""
        return np.searchsorted(self._places, keys.astype(np.uint64)) % self.plan.units

    def mask(self, indexed: Mapping[str, Iterable[str]]) -> np.ndarray:
        """By stream and column whether it is indexed."""
        out = np.zeros((len(self.columns), self.width), np.bool_)
        for stream, names in indexed.items():
            for name in names:
                out[self.streams[stream], self.columns[stream].index(name)] = True
        return out

    def block(self, stream: str, table: pa.Table, batch: np.ndarray | int, mask: np.ndarray) -> np.ndarray:
        """Wire rows with ids as lines of tuples; NULL in columns that are not indexed."""
        number, spec = self.streams[stream], self.plan.streams[stream]
        out = np.full((table.num_rows, AT_VALUES + self.width), NULL, np.int64)
        out[:, :AT_VALUES] = 0
        out[:, STREAM], out[:, BATCH], out[:, ARRIVED] = number, batch, batch
        out[:, TS], out[:, NUMBER] = _numbers(table, TIME), _numbers(table, ID)
        for at in np.flatnonzero(mask[number]).tolist():
            column, kind = parts(self.columns[stream][at])
            values = table.column(wire_name(spec, column)).combine_chunks()
            present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
            found = codes(values.drop_null(), kind)
            found[found == NULL] = STAND_IN
            out[present, AT_VALUES + at] = found
        return out

    def copies(self, tuples: np.ndarray, mask: np.ndarray, unit: int, now: int) -> np.ndarray:
        """The copies that a node stores: under its own keys, at attribute level those of this batch only."""
        out = rewriting.copies(tuples, mask)
        mine = self.owners(out[:, TUPLE_KEY]) == unit
        return out[mine & ((out[:, LEVEL] == rewriting.VALUE_LEVEL) | (out[:, BATCH] == now))]

    def route(self, stream: str, indexed: Sequence[str], wire: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Nodes that own a key of some tuples, and these tuples."""
        mask = self.mask({stream: indexed})
        copies = rewriting.copies(self.block(stream, wire, 0, mask), mask)
        owners, tuples = self.owners(copies[:, TUPLE_KEY]), copies[:, rewriting.TUPLE_NEXT]
        for unit in range(self.plan.units):
            gets = np.zeros(wire.num_rows, np.bool_)
            gets[tuples[owners == unit]] = True
            if gets.all():
                yield unit, wire
            elif gets.any():
                yield unit, wire.filter(pa.array(gets))

    def counter(self, stream: str, indexed: Sequence[str]) -> int:
        """The node that gets all tuples of a stream, under its first indexed column: it counts the late ones."""
        number = self.columns[stream].index(min(indexed, key=self.columns[stream].index))
        key = attribute_key(self.streams[stream], number)
        return int(self.owners(np.array([key], np.int64))[0])


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return integers(table.column(name).combine_chunks())
