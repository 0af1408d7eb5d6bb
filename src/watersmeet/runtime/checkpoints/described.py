"""A plan as an intent describes it: what the stored rows of a query that may be gone mean, where they lie, and until when they were kept.

Invariant: all of it comes from the description and the manifest, as JSON. Of the rows of an alias that lie at several units, `find_firsts` finds each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import place_keys
from watersmeet.dataflow.clock import Clock, watermarks
from watersmeet.plan.model import TIME
from watersmeet.query.stream import StreamSpec
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.hypercube import Hypercube, spread_class
from watersmeet.routing.spread import HotKey

HashKeys = Callable[[Sequence[int]], np.ndarray]
"""The placement hashes of rows by their keys in some classes."""


@dataclass(frozen=True)
class DescribedColumn:
    """A wire column of an alias."""

    wire: str
    expr: str
    type: str


@dataclass(frozen=True)
class DescribedInput:
    """An alias of a described plan."""

    alias: str
    stream: str
    columns: tuple[DescribedColumn, ...]
    filters: tuple[str, ...]
    rows: int | str | None

    def find(self, expr: str, type_: str | None = None) -> str | None:
        """The wire column that holds an expression, in a type if one is given."""
        return next((c.wire for c in self.columns if c.expr == expr and type_ in (None, c.type)), None)


@dataclass(frozen=True)
class DescribedPlan:
    """What a description says."""

    raw: Mapping[str, Any]

    @cached_property
    def inputs(self) -> dict[str, DescribedInput]:
        """By alias, in the order of FROM."""
        found = {}
        for alias, stream, columns, filters, rows in self.raw.get("inputs", []):
            held = tuple(DescribedColumn(*column) for column in columns)
            found[alias] = DescribedInput(alias, stream, held, tuple(filters), rows)
        return found

    @cached_property
    def streams(self) -> dict[str, StreamSpec]:
        """What is known of disorder, by stream."""
        return {
            stream: StreamSpec(stream, {TIME: "timestamp"}, TIME, lateness, idle)
            for stream, (lateness, idle) in self.raw.get("lateness", {}).items()
        }

    def watermarks(self, maxima: Mapping[str, int]) -> dict[str, int]:
        """By stream, once these maxima have been reached."""
        return watermarks(self.streams, maxima)

    def cut(self, alias: str, maxima: Mapping[str, int]) -> int:
        """The time before which rows of an alias have been dropped by then."""
        names = list(self.inputs)
        row = self.raw["windows"][names.index(alias)]
        bounds = [(self.inputs[y].stream, hi) for y, hi in zip(names, row, strict=True) if y != alias]
        return Clock(self.streams, maxima).cut(bounds)

    @cached_property
    def stages(self) -> list[tuple[tuple[str, ...], Hypercube | Biclique]]:
        """By stage the names of its sides, and its routing."""
        routing = self.raw["routing"]
        if routing and isinstance(routing[0], str):
            names = tuple(self.inputs)
            return [(names, self._read_grid(names, routing))]
        return [(tuple(names), self._read_routing(tuple(names), found)) for names, found in routing]

    def _read_routing(self, names: tuple[str, ...], raw: Any) -> Hypercube | Biclique:
        return Biclique.from_json(raw) if isinstance(raw, Mapping) else self._read_grid(names, raw)

    def _read_grid(self, names: tuple[str, ...], raw: Sequence[Any]) -> Hypercube:
        _, shares, dimensions = raw
        classes_of = []
        for position, name in enumerate(names):
            aliases = set(name.split("+"))
            own = {n for n, (_, members) in enumerate(self.raw["classes"]) if aliases & set(members)}
            if any(spread_class(position) in dim for dim in dimensions):
                own.add(spread_class(position))
            classes_of.append(frozenset(own))
        return Hypercube(tuple(tuple(d) for d in dimensions), tuple(shares), tuple(classes_of))

    def hash_keys(self, alias: str, table: pa.Table) -> HashKeys:
        """The placement hashes of an alias' stored rows."""

        def hash_of(classes: Sequence[int]) -> np.ndarray:
            pairs = []
            for number in classes:
                kind, members = self.raw["classes"][number]
                wire = self.inputs[alias].find(members[alias], kind)
                assert wire is not None, f"class {number} has no column of {alias}"
                pairs.append((table.column(wire).combine_chunks(), kind))
            return place_keys(pairs)

        return hash_of


def find_firsts(
    routing: Hypercube | Biclique, position: int, unit: int, rows: int, hot: Sequence[HotKey], hash_of: HashKeys
) -> np.ndarray:
    """Which stored rows of a side at a unit are no copies of rows that another unit has.

    A row lies where its keys lead. Elsewhere it is a copy, perhaps of a time when its key was hot, unless its key is hot now and its side is the one that is spread.
    """
    if isinstance(routing, Biclique):
        return np.ones(rows, bool)
    if not routing.is_primary(position, unit):
        return np.zeros(rows, bool)
    keep = np.ones(rows, bool)
    fixed = routing.find_fixed(position)
    for number, (dim, share, stride) in enumerate(
        zip(routing.dimensions, routing.shares, routing.strides, strict=True)
    ):
        if not fixed[number] or share == 1 or dim[0] < 0:
            continue
        key = hash_of(dim)
        own = key % share == unit // stride % share
        spread = [h.key for h in hot if h.dimension == number and h.anchor == position]
        keep &= own | np.isin(key, np.array(spread, np.int64)) if spread else own
    return keep
