"""When nodes of the ring come, go or move: what a node takes over is what lies under the keys that it owns now.

    before   -----------1===================2-----        3 joins between 1 and 2, and takes the keys up to its place
    after    -----------1========3==========2-----        rows that wait there, tuples with one of these keys, how busy keys are

Nodes whose keys have not changed keep what they have. A row takes along the tuples that it names, as when it is sent (`registry.rjoin.contents`). Queries that share nothing go to the unit that their
place says, and the tuples that they may use, which `ask()` finds there, go with them.

Invariant: every row waits at the owner of its key, and every tuple of an indexed column lies at the owner of its value, once per node, under whichever rings they came. Whoever
holds a row holds the tuples that it names. Memories are read as they were before the batch.
Implements: Karger, Ruhl (2004), as Idreos, Liarou, Koubarakis (2008) use it; a node that leaves hands over to its successor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.dataflow.contract import Turn
from watersmeet.kernels.registered import rewriting
from watersmeet.kernels.registered.rewriting import LEVEL, TUPLE_KEY, TUPLE_NEXT, VALUE_LEVEL
from watersmeet.registry.kept import Region, find_needs, lie_in
from watersmeet.registry.placement import Placement, find_arc, find_givers
from watersmeet.registry.plan import BATCH
from watersmeet.registry.rjoin.index import ID
from watersmeet.registry.rjoin.memory import INDEXED, RATES, VERSION_OF_ROWS
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.shared.compiled import unit_of_query
from watersmeet.registry.shared.handover import list_stored
from watersmeet.registry.subscription import Registered
from watersmeet.storage.manifest import REWRITTEN
from watersmeet.storage.segment import Segment


def take_arc(turn: Turn, templates: Templates, placement: Placement, own: Mapping[str, Registered]) -> None:
    """Let a node have what lies under its keys, and what those of its queries may use that share nothing."""
    before, now, unit = placement.before, placement.places, turn.unit
    is_old, is_now = unit < len(before), unit < len(now)
    if is_old and is_now and find_arc(before, unit) == find_arc(now, unit) and not own:
        return
    givers = find_givers(before, now, unit)
    needs = find_needs(templates.index.plan, own, turn.state.maxima, len(before))
    others = {unit_of_query(known, len(before)) for known in own.values()}
    turn.state.extra = {name: value for name, value in turn.state.extra.items() if name != VERSION_OF_ROWS}
    rows = _gather_owned(turn, templates, givers, REWRITTEN)
    _store(turn, REWRITTEN, rows)
    _store(turn, RATES, _gather_owned(turn, templates, givers, RATES))
    named = _find_named(rows)
    for stream in templates.index.streams:
        regions = list(needs.get(stream, {}).values())
        _store(turn, stream, _gather_tuples(turn, templates, sorted({*givers, *others}), stream, named, regions))


def _store(turn: Turn, kind: str, tables: Sequence[pa.Table]) -> None:
    turn.state.segments[kind] = [turn.store.write(Segment.of(table)) for table in tables if table.num_rows]


def _read(turn: Turn, givers: Sequence[int], kind: str) -> Iterator[pa.Table]:
    return (turn.store.read(info).table for unit in givers for info in list_stored(turn, unit, kind))


def _gather_owned(turn: Turn, templates: Templates, givers: Sequence[int], kind: str) -> list[pa.Table]:
    """What lies under a node's keys, by the column that says the key. Tables of one layout become one."""
    by_layout: dict[tuple[str, ...], list[pa.Table]] = {}
    for table in _read(turn, givers, kind):
        keys = table.column("key").to_numpy()
        part = table.filter(pa.array(templates.index.owners(keys) == turn.unit))
        by_layout.setdefault(tuple(part.column_names), []).append(part)
    return [pa.concat_tables(parts) for parts in by_layout.values()]


def _find_named(tables: Sequence[pa.Table]) -> np.ndarray:
    """The ids of the tuples that rows name, each once, in ascending order."""
    found = [np.zeros(0, np.int64)]
    for table in tables:
        bound = table.column("bound").to_numpy()
        for alias in range(sum(name.startswith("number") for name in table.column_names)):
            found.append(table.column(f"number{alias}").to_numpy()[(bound >> alias) & 1 != 0])
    return np.unique(np.concatenate(found))


def _gather_tuples(
    turn: Turn, templates: Templates, givers: Sequence[int], stream: str, named: np.ndarray, regions: Sequence[Region]
) -> list[pa.Table]:
    """A stream's tuples that lie under a node's keys, that its rows name, or that lie in some region: each once."""
    parts: list[pa.Table] = []
    for table in _read(turn, givers, stream):
        owned = _find_owned(turn, templates, stream, table)
        keep = owned | np.isin(table.column(ID).to_numpy(), named) | lie_in(regions, table)
        at = table.column_names.index(INDEXED)
        parts.append(table.set_column(at, INDEXED, pa.array(owned)).filter(pa.array(keep)))
    if not parts:
        return []
    whole = pa.concat_tables([part.select(parts[0].column_names) for part in parts])
    order = pc.sort_indices(whole.select([ID, INDEXED]), [(ID, "ascending"), (INDEXED, "descending")])
    ids = whole.column(ID).to_numpy()[order.to_numpy()]
    first = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    return [whole.take(order.filter(pa.array(first)))]


def _find_owned(turn: Turn, templates: Templates, stream: str, table: pa.Table) -> np.ndarray:
    """Which tuples lie under keys, and under one of the node's."""
    indexed = table.column(INDEXED).to_numpy()
    mine, index = table.filter(pa.array(indexed)), templates.index
    block = index.block(stream, mine, mine.column(BATCH).to_numpy(), templates.mask)
    copies = rewriting.copies(block, templates.mask)
    here = (copies[:, LEVEL] == VALUE_LEVEL) & (index.owners(copies[:, TUPLE_KEY]) == turn.unit)
    out = np.zeros(table.num_rows, np.bool_)
    out[np.flatnonzero(indexed)[copies[here, TUPLE_NEXT]]] = True
    return out
