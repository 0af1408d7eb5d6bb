"""Which units of a site tuples, rows and questions belong to.

A stream's tuples are dealt by the class of keys that it shares with most others (`Paths.keyed`), at its home and wherever a copy of it is. Rows go to the
unit that has their partners or, without a key of that class, to all. Codes and filters go to all units: each answers for the tuples that it has.

Invariant: a unit follows from the keys alone; a row and its partners meet at exactly one unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from watersmeet.columns.row_hash import by_hash
from watersmeet.plan.model import Plan
from watersmeet.sites.paths import Leg, Paths
from watersmeet.storage.segment import Segment, key_columns


def deal_tuples(plan: Plan, paths: Paths, stream: int, table: pa.Table, units: int) -> Iterator[tuple[int, pa.Table]]:
    """A stream's tuples by unit."""
    yield from _deal(plan, paths.keyed[stream], paths.sides[stream].keys, table, units)


def deal_rows(plan: Plan, paths: Paths, leg: Leg, table: pa.Table, units: int) -> Iterator[tuple[int, pa.Table]]:
    """Rows that are to be joined with a stream, by unit."""
    key = paths.keyed[leg.to]
    if key is None or key in leg.classes:
        yield from _deal(plan, key, leg.flow.keys, table, units)
    else:
        yield from ((unit, table) for unit in range(units))


def _deal(
    plan: Plan, key: int | None, keys: Mapping[int, str], table: pa.Table, units: int
) -> Iterator[tuple[int, pa.Table]]:
    if units == 1 or key is None or not table.num_rows:
        yield 0, table
        return
    codes = Segment.of(table).key(key_columns(plan, keys, [key]))
    yield from by_hash(table, codes, units)
