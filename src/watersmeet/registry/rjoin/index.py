"""Tuples under keys of the ring: which codes a tuple has, under which keys it lies, which nodes get it; and how busy keys are.

    tuple of r   (r, k)         attribute level, for queries that wait for any tuple of r
                 (r, k, 7)      value level, for those that wait for k = 7          the same for every indexed column

A node gets a tuple once, however many of its keys it owns, and finds out by itself which these are.

A batch's tuples are counted by key where they are indexed; counts fade, so that a rate is that of about the last eight batches. A
node tells its busiest keys; every other node reads that when it has to choose where a query waits. A key of which nothing is told is quiet.

Invariant: keys depend on schemas and values alone, so source tasks and nodes agree. NULL has no key at value level. The one 64-bit
code that stands for NULL here is replaced where a value has it; `owner` compares such values again. Rates are a function of the batches
that have been counted. A wrong or missing rate costs messages, never an answer.
Implements: Idreos, Liarou, Koubarakis (2008), procedure 1; sections 6 and 7, RIC.
Departs from the paper: columns that no query compares are not indexed. Nodes do not ask candidates one by one, which would be two rounds
more for every rewriting; each tells all others once a batch, so what is known is at most one batch old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from watersmeet.registry.placement import Places
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.rjoin.shape import code_streams, parts
from watersmeet.storage.segment import Segment

STAND_IN = NULL + 1
"""The code of a value whose own code is NULL's."""
ID = "_id"
"""The wire column that tells tuples apart."""
TOLD = 8_192
"""So many keys a node tells of."""
_MEMORY = 8
"""Batches that a rate is of."""
_WHOLE = 1_000
"""Rates are in thousandths of tuples per batch."""


@dataclass(frozen=True)
class Index:
    """The streams of a registry as the ring sees them, and the ring."""

    plan: RegistryPlan
    places: Places
    """Where the nodes sit on the circle of 64 bits."""

    @property
    def units(self) -> int:
        return len(self.places)

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
    def _around(self) -> tuple[np.ndarray, np.ndarray]:
        """The places in their order, and the nodes that sit there; beyond the last one it is the first again."""
        places = np.array(self.places, np.uint64)
        order = np.argsort(places)
        return places[order], np.append(order, order[0])

    def owners(self, keys: np.ndarray) -> np.ndarray:
        """The node of every key: the first at or after it."""
        places, nodes = self._around
        return nodes[np.searchsorted(places, keys.astype(np.uint64))]

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

    def route(
        self, stream: str, indexed: Sequence[str], wire: pa.Table, whole: Collection[int] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Nodes that own a key of some tuples, and these tuples; the nodes of `whole` get all."""
        mask = self.mask({stream: indexed})
        copies = rewriting.copies(self.block(stream, wire, 0, mask), mask)
        owners, tuples = self.owners(copies[:, TUPLE_KEY]), copies[:, rewriting.TUPLE_NEXT]
        for unit in range(self.units):
            gets = np.zeros(wire.num_rows, np.bool_)
            gets[tuples[owners == unit]] = True
            if unit in whole or gets.all():
                yield unit, wire
            elif gets.any():
                yield unit, wire.filter(pa.array(gets))

    def counter(self, stream: str, indexed: Sequence[str], whole: Collection[int] = ()) -> int:
        """The node that gets all tuples of a stream, under its first indexed column or because it is among `whole`: it counts the late ones."""
        if not indexed:
            return min(whole)
        number = self.columns[stream].index(min(indexed, key=self.columns[stream].index))
        key = attribute_key(self.streams[stream], number)
        return int(self.owners(np.array([key], np.int64))[0])


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return integers(table.column(name).combine_chunks())


def count_rates(before: Segment | None, keys: np.ndarray) -> Segment | None:
    """The rates of a node's busiest keys after a batch that brought tuples under these keys."""
    found, counts = np.unique(keys, return_counts=True)
    rates = counts * (_WHOLE // _MEMORY)
    if before is not None:
        old, faded = before.codes("key", "integer"), before.codes("rate", "integer") * (_MEMORY - 1) // _MEMORY
        both = np.concatenate([found, old])
        found, place = np.unique(both, return_inverse=True)
        rates = np.bincount(place, np.concatenate([rates, faded]), len(found)).astype(np.int64)
    kept = np.lexsort((found, -rates))[:TOLD]
    kept = kept[rates[kept] > 0]
    if not len(kept):
        return None
    zeros = np.zeros(len(kept), np.int64)
    return Segment.of(pa.table({TIME: zeros, "key": found[kept], "rate": rates[kept]}))


def collect_rates(segments: Iterable[Segment]) -> tuple[np.ndarray, np.ndarray]:
    """What all nodes tell: keys in ascending order, and their rates. A key is told by its owner alone."""
    parts = [np.stack((s.codes("key", "integer"), s.codes("rate", "integer"))) for s in segments]
    keys, rates = np.concatenate([np.zeros((2, 0), np.int64), *parts], axis=1)
    order = np.argsort(keys)
    return keys[order], rates[order]
